"""Read the curves of a training, and of fairseq-validate, from fairseq's logs."""

import dataclasses
import math
import re

INNER = re.compile(
    r"\| train_inner \| epoch \d+:.*\bloss=([^,\s]+), nll_loss=([^,\s]+),.*\bnum_updates=(\d+),"
)
EPOCH = re.compile(r"\| train \| epoch (\d+) \| loss (\S+) \| nll_loss (\S+) \|.*\| num_updates (\d+)\b")
VALIDATION = re.compile(
    r"\| valid \| (?:epoch \d+ \| )?valid on 'valid' subset \| loss (\S+) \| nll_loss (\S+) \|"
    r"(?:.*\| num_updates (\d+)\b)?"
)


@dataclasses.dataclass
class Loss:
    """Mean loss per target token in bits (base 2), as fairseq prints it: label-smoothed and not."""

    loss: float
    nll: float

    @property
    def perplexity(self):
        return round(2**self.nll, 2) if self.nll < 1000 else math.inf


@dataclasses.dataclass
class Curves:
    """Losses by the number of updates: `training` of the updates since the row before, `epochs` of
    whole epochs, `validation` after so many updates."""

    training: dict = dataclasses.field(default_factory=dict)
    epochs: dict = dataclasses.field(default_factory=dict)
    validation: dict = dataclasses.field(default_factory=dict)

    @property
    def best(self):
        """The validation loss with the smallest label-smoothed part, by which fairseq chooses its best
        checkpoint; None without a finite one."""
        finite = [loss for loss in self.validation.values() if math.isfinite(loss.loss)]
        return min(finite, key=lambda loss: loss.loss, default=None)


def read_lines(path, remedy):
    """Raises ValueError, with the remedy, where there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().splitlines()
    except OSError as error:
        raise ValueError(f"cannot read '{path}' ({error.strerror}); {remedy}") from error


def read_curves(path):
    """What a train.log says; of updates that a resumed training repeats, the last time counts.

    Raises ValueError if there is no such file or a loss is no number.
    """
    curves = Curves()
    for line in read_lines(path, "remove its folder and start again"):
        if found := INNER.search(line):
            loss, nll, updates = found.groups()
            place = curves.training
        elif found := EPOCH.search(line):
            _, loss, nll, updates = found.groups()
            place = curves.epochs
        elif found := VALIDATION.search(line):
            loss, nll, updates = found.groups()
            place = curves.validation
        else:
            continue
        place[int(updates or 0)] = parse_loss(loss, nll, path)
    return curves


def parse_loss(loss, nll, path):
    try:
        return Loss(float(loss), float(nll))
    except ValueError:
        problem = f"'{path}' gives a loss as '{loss}' or '{nll}', which is no number"
        raise ValueError(f"{problem}; train this run again") from None


def read_validation(path):
    """The loss that fairseq-validate printed into a file.

    Raises ValueError if there is none.
    """
    remedy = "remove the file and start again"
    for line in read_lines(path, remedy):
        if found := VALIDATION.search(line):
            return parse_loss(*found.groups()[:2], path)
    raise ValueError(f"'{path}' holds no validation loss; {remedy}")


def smooth(training, window):
    """Mean of the losses of the last `window` updates, from the first row with a full window.

    Args:
        training: losses by updates, in rows that are equally far apart and divide the window.
    Returns: {updates: (loss, nll)}
    """
    rows = sorted(training.items())
    if not rows:
        return {}
    count = window // rows[0][0]
    smoothed = {}
    for last in range(count, len(rows) + 1):
        part = [loss for _, loss in rows[last - count : last]]
        smoothed[rows[last - 1][0]] = Loss(
            sum(row.loss for row in part) / count, sum(row.nll for row in part) / count
        )
    return smoothed
