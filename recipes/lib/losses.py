"""Losses in fairseq's logs, and what fairseq-validate prints."""

import dataclasses
import math
import re

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


def read_lines(path, remedy):
    """Raises ValueError, with the remedy, where there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().splitlines()
    except OSError as error:
        raise ValueError(f"cannot read '{path}' ({error.strerror}); {remedy}") from error


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
