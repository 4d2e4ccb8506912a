"""Read the folder of recipes/ablation.sh.

    python recipes/ablation_runs.py OUT/NAME

prints the result of one run in a line.
"""

import dataclasses
import json
import math
import sys
from pathlib import Path

from training_log import TrainingLog, read_training_log

COMPLETE, FAILED, NOT_FINISHED, NOT_RUN = "complete", "failed", "not finished", "not run"


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


def read_text(path, remedy):
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"cannot read '{path}' ({reason}); {remedy}") from error


def read_score(path):
    """The report of recipes/score.sh.

    Raises ValueError if the file is missing or is no such report.
    """
    remedy = "remove the file 'complete' beside its folder and start recipes/ablation.sh again"
    try:
        score = json.loads(read_text(path, remedy))
        if isinstance(score["score"], (int, float)) and score["signature"] and score["versions"]:
            return {"commit": None, **score}
    except (json.JSONDecodeError, KeyError, TypeError):
        pass
    raise ValueError(f"'{path}' is no report of recipes/score.sh; {remedy}")


def read_threads(path):
    text = read_text(path, "remove it").strip()
    if not text.isdigit():
        raise ValueError(f"'{path}' holds no number; remove it")
    return int(text)


def read_results(run, folder):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    path = folder / "train.log"
    if path.exists() or run.status == COMPLETE:
        run.log = read_training_log(path)
    if (folder / "threads").exists():
        run.threads = read_threads(folder / "threads")
    if run.status == COMPLETE:
        for what, value in {
            "no line \"valid on 'valid' subset\"": run.log.perplexities,
            "no number of parameters": run.log.parameters,
        }.items():
            if not value:
                raise ValueError(f"'{path}' has {what}; remove '{folder}' and train this run again")
        run.score = read_score(folder / "valid" / "score.json")
    return run


def status_of(folder):
    marks = {"complete": COMPLETE, "failed": FAILED, "train.log": NOT_FINISHED}
    return next((status for mark, status in marks.items() if (folder / mark).exists()), NOT_RUN)


def read_runs(out):
    """All runs of the queue in its order, those that are missing included.

    Raises ValueError if `out` is no folder of recipes/ablation.sh or holds something unreadable.
    """
    runs = []
    for line in read_text(out / "queue", "give the folder --out of recipes/ablation.sh").splitlines():
        name, study, architecture, *flags = line.split()
        run = Run(name, study, architecture, flags, status_of(out / name))
        if run.status == FAILED:
            run.reason = read_text(out / name / "failed", "start recipes/ablation.sh again").strip()
        runs.append(read_results(run, out / name))
    return runs


def main():
    folder = Path(sys.argv[1])
    try:
        run = read_results(Run(folder.name, status=COMPLETE), folder)
    except ValueError as error:
        sys.exit(f"ablation_runs.py: {error}")
    perplexity = "not finite" if run.best_perplexity is None else f"{run.best_perplexity:.2f}"
    print(f"validation perplexity {perplexity}, BLEU {run.score['score']:.2f}, {run.minutes} minutes")


if __name__ == "__main__":
    main()
