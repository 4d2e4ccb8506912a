"""What recipes/tpu-check.sh found, in one line, or what is wrong.

    PYTHONPATH=recipes/lib python -P -m tpu.verdict OUT
"""

import json
import re
import sys
from pathlib import Path


def problems(first, second, output, sentences):
    """What is not as it should be.

    Args:
        first, second: what count_compilations.py wrote of the first and of the resumed training.
        output: of fairseq-generate, for that many sentences.
    """
    for run, name in ((first, "training"), (second, "resumed training")):
        epochs = sorted(run["compilations"], key=int)
        counts = [run["compilations"][epoch] for epoch in epochs]
        # All steps are compiled in the first epoch. The second adds a graph of two numbers: fairseq's meters of the
        # epoch start anew while others go on.
        if len(counts) < 3:
            yield f"the {name} has {len(counts)} epochs, too few to compare compilations"
        elif counts[-1] != counts[1]:
            yield f"the {name} compiles again after its second epoch: {counts} compilations by the end of each"
        if run["left_to_the_cpu"]:
            yield f"the {name} leaves operations to the CPU: {', '.join(run['left_to_the_cpu'])}"
    if not second["resumed_updates"]:
        yield "the second training did not resume the first"
    scores = [float(score) for score in re.findall(r"^H-\d+\t(\S+)\t", output, flags=re.MULTILINE)]
    if len(scores) != sentences or not all(-1000 < score <= 0 for score in scores):
        yield f"fairseq-generate gave {len(scores)} translations for {sentences} sentences, scores {scores}"


def main(folder):
    folder = Path(folder)
    lines = (folder / "compilations.json").read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    output = (folder / "generate.txt").read_text(encoding="utf-8")
    sentences = len((folder / "raw/test.de").read_text(encoding="utf-8").splitlines())
    found = list(problems(first, second, output, sentences))
    if found:
        sys.exit("\n".join(found))
    counts = " and ".join(str(max(run["compilations"].values())) for run in (first, second))
    print(
        f"torch_xla {first['torch_xla']}: training and resumed training compiled {counts} times, all in their first "
        f"two epochs of {len(first['compilations'])}; resumed after {second['resumed_updates']} updates; "
        f"{sentences} sentences translated on the CPU"
    )


if __name__ == "__main__":
    main(sys.argv[1])
