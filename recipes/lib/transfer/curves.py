"""Read the curves of a training from its log."""

import dataclasses
import math
import re

from losses import VALIDATION, Loss, parse_loss, read_lines

INNER = re.compile(
    r"\| train_inner \| epoch \d+:.*\bloss=([^,\s]+), nll_loss=([^,\s]+),.*\bnum_updates=(\d+),"
)
EPOCH = re.compile(r"\| train \| epoch (\d+) \| loss (\S+) \| nll_loss (\S+) \|.*\| num_updates (\d+)\b")


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
