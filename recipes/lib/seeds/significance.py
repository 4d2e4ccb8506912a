"""Differences of BLEU, tested with SacreBLEU's own paired bootstrap."""

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest


def paired_bootstrap(systems, reference, lowercase=False):
    """Test each system against the first one.

    Args:
        systems: lines of translations, by name.
        reference: the lines of the reference.
        lowercase: whether the score leaves case aside.

    Returns:
        SacreBLEU's signature, and the p-value of each system but the first, by name.

    Raises:
        ValueError: a system has not one translation for each line of the reference.
    """
    for name, lines in systems.items():
        if len(lines) != len(reference):
            raise ValueError(
                f"'{name}' has {len(lines)} translations for {len(reference)} lines of reference; decode the same data"
            )
    test = PairedTest(list(systems.items()), {"BLEU": BLEU(lowercase=lowercase)}, [reference], test_type="bs")
    signatures, results = test()
    tested = list(zip(results["System"], results["BLEU"]))[1:]
    return f"BLEU|{signatures['BLEU'].format()}", {name: result.p_value for name, result in tested}
