"""Read the folder of recipes/transfer-study.sh.

    PYTHONPATH=recipes/lib python -P -m transfer.runs OUT/NAME MODEL KIND

prints the result of one run in a line.
"""

import dataclasses

from losses import Loss, read_validation
from study import COMPLETE, read_score
from study_run import StudyRun, print_run, read_runs

from .curves import Curves, read_curves

SCRIPT = "recipes/transfer-study.sh"
OTHER = {"softmax": "rfa", "rfa": "softmax"}
SHOWN = {"softmax": "softmax", "rfa": "RFA"}


@dataclasses.dataclass
class Run(StudyRun):
    """One row of the queue.

    Fields:
        model: the attention that is trained or evaluated, softmax or rfa.
        kind: train, source, scratch, continued, kept or reset; see plan.sh.
        way: what RFA made from softmax imitates, and whether its sigma is `fitted`; None elsewhere.
        start: the validation loss before any training, and start_score its BLEU; None where not measured.
        score: BLEU of the best checkpoint; None where nothing was trained.
    """

    model: str = ""
    kind: str = ""
    way: str | None = None
    fitted: str | None = None
    curves: Curves = dataclasses.field(default_factory=Curves)
    start: Loss | None = None
    start_score: dict | None = None
    score: dict | None = None

    @property
    def is_arm(self):
        return self.kind in ("scratch", "continued", "kept", "reset")

    @property
    def origin(self):
        """The model whose parameters this one starts with; None for none."""
        if self.kind in ("train", "scratch"):
            return None
        return self.model if self.kind in ("source", "continued") else OTHER[self.model]

    @property
    def scores(self):
        return [score for score in (self.start_score, self.score) if score]


def read_results(run):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    run.read_training(SCRIPT)
    path, folder = run.folder / "train.log", run.folder
    if path.exists():
        run.curves = read_curves(path)
    if run.status != COMPLETE or run.kind == "train":
        return run
    run.need_in_log("finite loss on 'valid'", run.curves.best)
    run.need_in_log("row of the training loss", run.curves.training)
    run.need_in_log("loss of an epoch", run.curves.epochs or run.kind != "source")
    run.score = read_score(folder / "valid" / "score.json", SCRIPT)
    if run.kind == "kept":
        run.start = run.curves.validation[0] = read_validation(folder / "start" / "validate.log")
        run.start_score = read_score(folder / "start" / "score.json", SCRIPT)
    return run


def read_all(out):
    """All runs of the queue in its order. Raises ValueError as `read_runs` and `read_results` do."""

    def read(folder, status, *fields):
        return read_results(Run(folder, *fields, status=status))

    return read_runs(out, SCRIPT, read)


def line(folder, *fields):
    run = read_results(Run(folder, *fields, status=COMPLETE))
    parts = []
    if run.start:
        bleu = run.start_score["score"]
        parts.append(f"before training validation perplexity {run.start.perplexity:.2f}, BLEU {bleu:.2f}")
    if run.score:
        parts.append(f"validation perplexity {run.curves.best.perplexity:.2f}, BLEU {run.score['score']:.2f}")
    return "; ".join(parts)


if __name__ == "__main__":
    print_run("transfer/runs.py", line)
