"""Read the folder of recipes/seeds.sh.

    PYTHONPATH=recipes/lib python -P -m seeds.runs OUT/NAME SUBSET…

prints the result of one run in a line.
"""

import dataclasses
import math
import sys
from pathlib import Path

from study import COMPLETE, FAILED, NOT_RUN, read_score, read_text, read_number, status_of
from training_log import TrainingLog, read_training_log

SCRIPT = "recipes/seeds.sh"


@dataclasses.dataclass
class Run:
    """One arm with one seed; `scores` are the reports of recipes/score.sh by subset."""

    folder: Path
    arm: str = ""
    seed: int = 0
    softmax_epochs: int = 0
    flags: list = dataclasses.field(default_factory=list)
    status: str = NOT_RUN
    reason: str | None = None
    log: TrainingLog = dataclasses.field(default_factory=TrainingLog)
    scores: dict = dataclasses.field(default_factory=dict)
    threads: int | None = None

    @property
    def best_perplexity(self):
        """The smallest validation perplexity of an epoch, or None where none is finite."""
        return min(filter(math.isfinite, self.log.perplexities.values()), default=None)

    def translations(self, subset):
        path = self.folder / subset / "hypotheses.txt"
        return read_lines(path, f"remove '{self.folder / 'complete'}' and start {SCRIPT} again")


def read_lines(path, remedy):
    """The lines of a text, which end where a line ends in a file of data and nowhere else."""
    return read_text(path, remedy, newline="\n").removesuffix("\n").split("\n")


def read_results(run, subsets):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    path = run.folder / "train.log"
    if path.exists() or run.status == COMPLETE:
        run.log = read_training_log(path)
    if run.status == FAILED:
        run.reason = read_text(run.folder / "failed", f"start {SCRIPT} again").strip()
    if run.status == COMPLETE:
        if run.best_perplexity is None:
            raise ValueError(
                f"'{path}' has no finite perplexity of 'valid'; remove '{run.folder}' and train this run again"
            )
        run.threads = read_number(run.folder / "threads")
        run.scores = {subset: read_score(run.folder / subset / "score.json", SCRIPT) for subset in subsets}
    return run


def read_runs(out, subsets):
    """All runs of the queue in its order, those that are missing included.

    Raises ValueError if `out` is no folder of recipes/seeds.sh or holds something unreadable.
    """
    runs = []
    for line in read_text(out / "queue", f"give the folder --out of {SCRIPT}").splitlines():
        name, arm, seed, softmax_epochs, *flags = line.split()
        run = Run(out / name, arm, int(seed), int(softmax_epochs), flags, status_of(out / name))
        runs.append(read_results(run, subsets))
    return runs


def main():
    folder, *subsets = sys.argv[1:]
    try:
        run = read_results(Run(Path(folder), status=COMPLETE), subsets)
    except ValueError as error:
        sys.exit(f"seeds/runs.py: {error}")
    scores = ", ".join(f"{subset} {score['score']:.2f}" for subset, score in run.scores.items())
    print(f"validation perplexity {run.best_perplexity:.2f}, BLEU: {scores}")


if __name__ == "__main__":
    main()
