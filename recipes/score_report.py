"""Join sacrebleu's score with what it was measured on, so that the number can be reproduced.

    sacrebleu REFERENCE --input HYPOTHESES --format json | python score_report.py --checkpoint …
"""

import argparse
import importlib.metadata
import json
import logging
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def architecture(checkpoint):
    """Name of the architecture of a checkpoint."""
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu

    model = load_checkpoint_to_cpu(checkpoint)["cfg"]["model"]
    return getattr(model, "arch", None) or model["_name"]


def version(module):
    """Version of what provides a module; its distribution may have another name."""
    names = importlib.metadata.packages_distributions().get(module, [module.replace("_", "-")])
    try:
        return importlib.metadata.version(names[0])
    except importlib.metadata.PackageNotFoundError:
        return getattr(sys.modules.get(module), "__version__", None)


def commit():
    """Commit of this repository, with a mark if files differ from it; None outside git."""
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def report(bleu, checkpoints, options):
    sys.path.insert(0, ROOT)
    import fairseq_rfa  # noqa: F401 the checkpoint may hold its architectures

    return {
        "score": bleu["score"],
        "signature": f"{bleu['name']}|{bleu['signature']}",
        "details": bleu["verbose_score"],
        "checkpoints": [os.path.basename(checkpoint) for checkpoint in checkpoints],
        "architectures": [architecture(checkpoint) for checkpoint in checkpoints],
        "subset": options.subset,
        "sentences": options.sentences,
        "beam": options.beam,
        "flags": options.flags,
        "versions": {
            module: version(module) for module in ("torch", "fairseq", "fairseq_rfa", "sacrebleu")
        },
        "commit": commit(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--checkpoint", required=True, help="one or more, with : between them")
    parser.add_argument("--subset", required=True)
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--sentences", type=int, required=True)
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    logging.disable(logging.INFO)
    result = report(json.load(sys.stdin), options.checkpoint.split(os.pathsep), options)
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
