"""Read the folder of recipes/seeds.sh.

    PYTHONPATH=recipes/lib python -P -m seeds.runs OUT/NAME SUBSET…

prints the result of one run in a line.
"""

import dataclasses

from study import COMPLETE, read_score, read_text
from study_run import StudyRun, print_run, read_runs

SCRIPT = "recipes/seeds.sh"


@dataclasses.dataclass
class Run(StudyRun):
    """One arm with one seed; `scores` are the reports of recipes/score.sh by subset."""

    arm: str = ""
    seed: int = 0
    softmax_epochs: int = 0
    flags: list = dataclasses.field(default_factory=list)
    scores: dict = dataclasses.field(default_factory=dict)

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
    run.read_training(SCRIPT)
    if run.status == COMPLETE:
        run.need_in_log("finite perplexity of 'valid'", run.best_perplexity)
        run.scores = {subset: read_score(run.folder / subset / "score.json", SCRIPT) for subset in subsets}
    return run


def read_all(out, subsets):
    """All runs of the queue in its order. Raises ValueError as `read_runs` and `read_results` do."""

    def read(folder, status, arm, seed, softmax_epochs, *flags):
        return read_results(Run(folder, arm, int(seed), int(softmax_epochs), list(flags), status=status), subsets)

    return read_runs(out, SCRIPT, read)


def line(folder, *subsets):
    run = read_results(Run(folder, status=COMPLETE), subsets)
    scores = ", ".join(f"{subset} {score['score']:.2f}" for subset, score in run.scores.items())
    return f"validation perplexity {run.best_perplexity:.2f}, BLEU: {scores}"


if __name__ == "__main__":
    print_run("seeds/runs.py", line)
