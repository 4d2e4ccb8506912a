"""Refuse, before a training, options with which the conversion at its end would fail.

    PYTHONPATH=recipes/lib python -P -m check_conversion --to rfa …

takes the options of fairseq_rfa.transfer without the names of files.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def check(arguments):
    """Raises ValueError, or ends with one line about an option."""
    sys.path.insert(0, str(ROOT))
    from fairseq_rfa.model.config import TransformerRFAConfig
    from fairseq_rfa.transfer.options import attention_options, parse_arguments

    options, given = parse_arguments([*arguments, "IN", "OUT"], description=None)
    found, _ = attention_options({}, given, options.imitate, options.fit_data is not None)
    config = TransformerRFAConfig()
    for name, value in found.items():
        setattr(config, name, value)
    config.validate()


if __name__ == "__main__":
    try:
        check(sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
