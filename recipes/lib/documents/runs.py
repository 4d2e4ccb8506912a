"""Read the folder of recipes/documents.sh.

    PYTHONPATH=recipes/lib python -P -m documents.runs OUT/NAME WINDOW SUBSET…

prints the result of one run in a line.
"""

import dataclasses

from losses import read_validation
from study import COMPLETE, read_number, read_score
from study_run import StudyRun, print_run, read_runs

SCRIPT = "recipes/documents.sh"
REFERENCE = "valid-reference"


@dataclasses.dataclass
class Run(StudyRun):
    """One arm on windows of one size with one seed.

    Fields:
        perplexity: that of the last sentences of the windows of the validation data.
        scores: reports of recipes/score.sh by subset; REFERENCE is the validation data after the reference.
        jobs: how many runs the queue ran at a time when a subset was decoded, by subset.
    """

    arm: str = ""
    window: int = 0
    seed: int = 0
    softmax_epochs: int = 0
    flags: list = dataclasses.field(default_factory=list)
    perplexity: float | None = None
    scores: dict = dataclasses.field(default_factory=dict)
    jobs: dict = dataclasses.field(default_factory=dict)

    @property
    def own_scores(self):
        """Those after own translations."""
        return [score for subset, score in self.scores.items() if subset != REFERENCE]

    @property
    def seconds(self):
        """Of decoding a sentence; None where other runs were at work or there is no time."""
        seconds = [score["decoding"]["seconds"] for score in self.own_scores]
        if None in seconds or {jobs for subset, jobs in self.jobs.items() if subset != REFERENCE} != {1}:
            return None
        return sum(seconds) / sum(score["sentences"] for score in self.own_scores)

    @property
    def peak_memory(self):
        """Bytes of the greatest process that decoded."""
        return max((score["decoding"]["peak_memory"] for score in self.own_scores), default=None)


def read_results(run, subsets):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    run.read_training(SCRIPT)
    if run.status != COMPLETE:
        return run
    run.perplexity = read_validation(run.folder / "validate.log").perplexity
    for subset in [*subsets, REFERENCE] if run.window > 1 else subsets:
        path = run.folder / subset / "score.json"
        run.scores[subset] = read_score(path, SCRIPT)
        if not {"documents", "decoding"} <= run.scores[subset].keys():
            raise ValueError(f"'{path}' says nothing of documents or time; remove it and 'complete' beside its folder")
        run.jobs[subset] = read_number(run.folder / subset / "jobs")
    return run


def read_all(out, subsets):
    """All runs of the queue in its order. Raises ValueError as `read_runs` and `read_results` do."""

    def read(folder, status, arm, window, seed, softmax_epochs, *flags):
        run = Run(folder, arm, int(window), int(seed), int(softmax_epochs), list(flags), status=status)
        return read_results(run, subsets)

    return read_runs(out, SCRIPT, read)


def line(folder, window, *subsets):
    run = read_results(Run(folder, window=int(window), status=COMPLETE), subsets)
    scores = ", ".join(
        f"{subset} {score['score']:.2f} ({score['documents']['score']:.2f})" for subset, score in run.scores.items()
    )
    return f"validation perplexity {run.perplexity:.2f}, BLEU of sentences (and whole documents): {scores}"


if __name__ == "__main__":
    print_run("documents/runs.py", line)
