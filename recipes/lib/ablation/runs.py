"""Read the folder of recipes/ablation.sh.

    PYTHONPATH=recipes/lib python -P -m ablation.runs OUT/NAME

prints the result of one run in a line.
"""

import dataclasses
import math
import sys
from pathlib import Path

from study import COMPLETE, FAILED, NOT_RUN, read_score, read_text, read_number, status_of
from training_log import TrainingLog, read_training_log

SCRIPT = "recipes/ablation.sh"


@dataclasses.dataclass
class Run:
    name: str
    study: str = ""
    architecture: str = ""
    flags: list = dataclasses.field(default_factory=list)
    status: str = NOT_RUN
    reason: str | None = None
    log: TrainingLog = dataclasses.field(default_factory=TrainingLog)
    score: dict = dataclasses.field(default_factory=dict)
    threads: int | None = None

    @property
    def best_perplexity(self):
        """The smallest validation perplexity of an epoch, or None where none is finite."""
        return min(filter(math.isfinite, self.log.perplexities.values()), default=None)

    @property
    def minutes(self):
        return round(self.log.seconds / 60, 1)


def read_results(run, folder):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    path = folder / "train.log"
    if path.exists() or run.status == COMPLETE:
        run.log = read_training_log(path)
    if (folder / "threads").exists():
        run.threads = read_number(folder / "threads")
    if run.status == COMPLETE:
        for what, value in {
            "no line \"valid on 'valid' subset\"": run.log.perplexities,
            "no number of parameters": run.log.parameters,
        }.items():
            if not value:
                raise ValueError(f"'{path}' has {what}; remove '{folder}' and train this run again")
        run.score = read_score(folder / "valid" / "score.json", SCRIPT)
    return run


def read_runs(out):
    """All runs of the queue in its order, those that are missing included.

    Raises ValueError if `out` is no folder of recipes/ablation.sh or holds something unreadable.
    """
    runs = []
    for line in read_text(out / "queue", f"give the folder --out of {SCRIPT}").splitlines():
        name, study, architecture, *flags = line.split()
        run = Run(name, study, architecture, flags, status_of(out / name))
        if run.status == FAILED:
            run.reason = read_text(out / name / "failed", f"start {SCRIPT} again").strip()
        runs.append(read_results(run, out / name))
    return runs


def main():
    folder = Path(sys.argv[1])
    try:
        run = read_results(Run(folder.name, status=COMPLETE), folder)
    except ValueError as error:
        sys.exit(f"ablation/runs.py: {error}")
    perplexity = "not finite" if run.best_perplexity is None else f"{run.best_perplexity:.2f}"
    print(f"validation perplexity {perplexity}, BLEU {run.score['score']:.2f}, {run.minutes} minutes")


if __name__ == "__main__":
    main()
