"""Read the folder of recipes/transfer-study.sh.

    PYTHONPATH=recipes/lib python -P -m transfer.runs OUT/NAME MODEL KIND

prints the result of one run in a line.
"""

import dataclasses
import sys
from pathlib import Path

from study import COMPLETE, FAILED, NOT_RUN, read_score, read_text, read_number, status_of
from training_log import TrainingLog, read_training_log

from .curves import Curves, Loss, read_curves, read_validation

SCRIPT = "recipes/transfer-study.sh"
OTHER = {"softmax": "rfa", "rfa": "softmax"}
SHOWN = {"softmax": "softmax", "rfa": "RFA"}


@dataclasses.dataclass
class Run:
    """One row of the queue.

    Fields:
        model: the attention that is trained or evaluated, softmax or rfa.
        kind: train, source, scratch, continued, kept or reset; see plan.sh.
        way: what RFA made from softmax imitates, and whether its sigma is `fitted`; None elsewhere.
        start: the validation loss before any training, and start_score its BLEU; None where not measured.
        score: BLEU of the best checkpoint; None where nothing was trained.
    """

    name: str
    model: str
    kind: str
    way: str | None = None
    fitted: str | None = None
    status: str = NOT_RUN
    reason: str | None = None
    log: TrainingLog | None = None
    curves: Curves = dataclasses.field(default_factory=Curves)
    start: Loss | None = None
    start_score: dict | None = None
    score: dict | None = None
    threads: int | None = None

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


def read_results(run, folder):
    """Fill in what a run with a status has left in its folder.

    Raises ValueError if a complete run lacks something or a file is not as it should be.
    """
    path = folder / "train.log"
    complete = run.status == COMPLETE
    if path.exists() or complete:
        run.log, run.curves = read_training_log(path), read_curves(path)
    if (folder / "threads").exists():
        run.threads = read_number(folder / "threads")
    if not complete or run.kind == "train":
        return run
    for what, value in {
        "no finite loss on 'valid'": run.curves.best,
        "no row of the training loss": run.curves.training,
        "no loss of an epoch": run.curves.epochs or run.kind != "source",
    }.items():
        if not value:
            raise ValueError(f"'{path}' has {what}; remove '{folder}' and start {SCRIPT} again")
    run.score = read_score(folder / "valid" / "score.json", SCRIPT)
    if run.kind == "kept":
        run.start = run.curves.validation[0] = read_validation(folder / "start" / "validate.log")
        run.start_score = read_score(folder / "start" / "score.json", SCRIPT)
    return run


def read_runs(out):
    """All runs of the queue in its order, those that are missing included.

    Raises ValueError if `out` is no folder of recipes/transfer-study.sh or holds something unreadable.
    """
    runs = []
    for line in read_text(out / "queue", f"give the folder --out of {SCRIPT}").splitlines():
        name, model, kind, *way = line.split()
        run = Run(name, model, kind, *way, status=status_of(out / name))
        if run.status == FAILED:
            run.reason = read_text(out / name / "failed", f"start {SCRIPT} again").strip()
        runs.append(read_results(run, out / name))
    return runs


def one_line(run):
    parts = []
    if run.start:
        bleu = run.start_score["score"]
        parts.append(f"before training validation perplexity {run.start.perplexity:.2f}, BLEU {bleu:.2f}")
    if run.score:
        parts.append(f"validation perplexity {run.curves.best.perplexity:.2f}, BLEU {run.score['score']:.2f}")
    return "; ".join(parts)


def main():
    folder, *fields = sys.argv[1:]
    folder = Path(folder)
    try:
        print(one_line(read_results(Run(folder.name, *fields, status=COMPLETE), folder)))
    except ValueError as error:
        sys.exit(f"transfer/runs.py: {error}")


if __name__ == "__main__":
    main()
