"""Join sacrebleu's score with what it was measured on, so that the number can be reproduced.

    sacrebleu REFERENCE --input HYPOTHESES --format json |
        PYTHONPATH=recipes/lib python -P -m score_report --checkpoint …
"""

import argparse
import json
import logging
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = re.compile(r"Translated [\d,]+ sentences \([\d,]+ tokens\) in ([\d.]+)s ")


def made_with():
    """Versions and commit. Importing the plugin also lets checkpoints with its architectures load."""
    sys.path.insert(0, str(ROOT))
    from fairseq_rfa.programs.signature import commit, version

    modules = ("torch", "fairseq", "fairseq_rfa", "sacrebleu")
    return {"versions": {module: version(module) for module in modules}, "commit": commit()}


def architecture(checkpoint):
    """Name of the architecture of a checkpoint."""
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu

    model = load_checkpoint_to_cpu(checkpoint)["cfg"]["model"]
    return getattr(model, "arch", None) or model["_name"]


def score_of(bleu):
    return {
        "score": bleu["score"],
        "signature": f"{bleu['name']}|{bleu['signature']}",
        "details": bleu["verbose_score"],
    }


def decoding(log, peak_memory):
    """Seconds of the searches by fairseq-generate's own clock, None where its log lacks them, and bytes at the peak."""
    with open(log, encoding="utf-8", errors="replace") as stream:
        found = [match[1] for match in map(SECONDS.search, stream) if match]
    with open(peak_memory, encoding="ascii") as stream:
        return {"seconds": float(found[-1]) if found else None, "peak_memory": int(stream.read())}


def report(bleu, checkpoints, options):
    signature = made_with()
    documents = {}
    if options.documents:
        with open(options.documents, encoding="utf-8") as stream:
            whole = json.load(stream)
        documents["documents"] = {**score_of(whole), "number": options.number_of_documents}
    return {
        **score_of(bleu),
        **documents,
        "checkpoints": [os.path.basename(checkpoint) for checkpoint in checkpoints],
        "architectures": [architecture(checkpoint) for checkpoint in checkpoints],
        "subset": options.subset,
        "sentences": options.sentences,
        "beam": options.beam,
        "decoding": decoding(options.log, options.peak_memory),
        "case": options.case,
        "flags": options.flags,
        **signature,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--checkpoint", required=True, help="one or more, with : between them")
    parser.add_argument("--subset", required=True)
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--sentences", type=int, required=True)
    parser.add_argument("--documents", help="what sacrebleu says of whole documents")
    parser.add_argument("--number-of-documents", type=int)
    parser.add_argument("--log", required=True, help="what fairseq-generate says of itself")
    parser.add_argument("--peak-memory", required=True, help="file with the bytes that decoding took")
    parser.add_argument("--case", choices=("mixed", "lowercase"), default="mixed")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    logging.disable(logging.INFO)
    result = report(json.load(sys.stdin), options.checkpoint.split(os.pathsep), options)
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
