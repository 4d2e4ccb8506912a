"""Read the folder of recipes/ablation.sh.

    PYTHONPATH=recipes/lib python -P -m ablation.runs OUT/NAME

prints the result of one run in a line.
"""

import dataclasses

from study import COMPLETE, read_score
from study_run import StudyRun, print_run, read_runs

SCRIPT = "recipes/ablation.sh"


@dataclasses.dataclass
class Run(StudyRun):
    study: str = ""
    architecture: str = ""
    flags: list = dataclasses.field(default_factory=list)
    score: dict = dataclasses.field(default_factory=dict)

    @property
    def minutes(self):
        return round(self.log.seconds / 60, 1)


def read_results(run):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    run.read_training(SCRIPT)
    if run.status == COMPLETE:
        run.need_in_log("line \"valid on 'valid' subset\"", run.log.perplexities)
        run.need_in_log("number of parameters", run.log.parameters)
        run.score = read_score(run.folder / "valid" / "score.json", SCRIPT)
    return run


def read_all(out):
    """All runs of the queue in its order. Raises ValueError as `read_runs` and `read_results` do."""

    def read(folder, status, study, architecture, *flags):
        return read_results(Run(folder, study, architecture, list(flags), status=status))

    return read_runs(out, SCRIPT, read)


def line(folder):
    run = read_results(Run(folder, status=COMPLETE))
    perplexity = "not finite" if run.best_perplexity is None else f"{run.best_perplexity:.2f}"
    return f"validation perplexity {perplexity}, BLEU {run.score['score']:.2f}, {run.minutes} minutes"


if __name__ == "__main__":
    print_run("ablation/runs.py", line)
