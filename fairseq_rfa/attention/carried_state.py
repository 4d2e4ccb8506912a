"""What causal attention carries from one segment of a text to the next, without gradient."""

from typing import Dict, Iterator, List, Optional

import torch
from torch import Tensor

from ..functional.linear_attention import ScaledState, State
from ..functional.window_state import WindowState
from .decoding_state import Totals


class CarriedState:
    """S and z of the positions before a segment, and with a window its newest keys; where they are left after it.

    What was before stays as it is, so that a segment can be computed again, as activation checkpointing does.
    """

    def __init__(self, before: Optional[Totals] = None):
        self.before = before
        """None at the start of a text."""
        self.after: Optional[Totals] = None
        """Left by the attention, without gradient; None until it was called."""

    def before_groups(self, size: int) -> Iterator[Optional[Totals]]:
        """What was before, for groups of so many rows."""
        while self.before is None:
            yield None
        parts = [None if x is None else x.split(size) for x in self.before]
        for number in range(-(-self.before.kv.size(0) // size)):
            yield type(self.before)(*(None if x is None else x[number] for x in parts))

    def leave(self, groups: List[Totals]) -> None:
        """Groups of rows after the segment."""
        self.after = type(groups[0])(*map(_joined, zip(*groups)))


def as_tensors(totals: Totals) -> Dict[str, Tensor]:
    """Their tensors by name, as a checkpoint holds them."""
    return {name: x for name, x in totals._asdict().items() if x is not None}


def from_tensors(tensors: Dict[str, Tensor]) -> Totals:
    """The totals that `as_tensors` took apart."""
    if "phi" in tensors:
        return WindowState(**{"log_scale": None, **tensors})
    return ScaledState(**tensors) if "log_scale" in tensors else State(**tensors)


def _joined(parts: List[Optional[Tensor]]) -> Optional[Tensor]:
    return None if parts[0] is None else torch.cat([x.detach() for x in parts])
