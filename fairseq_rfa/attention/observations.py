"""What an attention reports while it trains, as sums that stay on its device until somebody asks for the means."""

from typing import Dict, List, Optional, Union

import torch
from torch import Tensor

from ..functional.precision import wide

Number = Union[Tensor, int]


class NoneInCopies:
    """What belongs to one training: in its place a copy of the model, or a file that holds it as a whole, has None."""

    def __reduce__(self):
        return type(None), ()


class Observations(NoneInCopies):
    """Sums over the calls of one attention since their means were taken. No copy of a watched model is watched."""

    def __init__(self):
        self.sums: Dict[str, List[Number]] = {}
        """By name of the scalar: a total, and of how many."""

    @torch.no_grad()
    def observe(
        self,
        sigma: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        at_floor: Tensor,
    ) -> None:
        """One call, or some of its rows.

        Args:
            sigma: (H, d)
            gate_logits: (B, H, N), the greatest number of its type at padding and wherever else there is no gate; None
                without any.
            padding: (B, N), of the queries; they all count where it is None.
            at_floor: (B, H, N), the denominators that the floor replaces.
        """
        number = at_floor.numel()
        if padding is not None:
            kept = ~padding.unsqueeze(1)
            at_floor, number = at_floor & kept, kept.sum() * at_floor.size(1)
        self._add("share_of_denominators_at_floor", at_floor.sum(), number)
        self._add("mean_sigma", wide(sigma).mean(), 1)
        if gate_logits is not None:
            # Of a sentence gate the mean over separators.
            gated = gate_logits < torch.finfo(gate_logits.dtype).max
            self._add("mean_gate", (torch.sigmoid(wide(gate_logits)) * gated).sum(), gated.sum())

    def _add(self, name: str, total: Tensor, number: Number) -> None:
        if name not in self.sums:
            self.sums[name] = [_zero(total), _zero(number)]
        sums = self.sums[name]
        sums[0] += total
        sums[1] += number

    def take_means(self) -> Dict[str, float]:
        """The means by name since they were taken last; what was not observed is missing."""
        sums, self.sums = self.sums, {}
        sums = {name: (float(total), int(number)) for name, (total, number) in sums.items()}
        return {name: total / number for name, (total, number) in sums.items() if number}


def _zero(x: Number) -> Number:
    """Brought from the host, like the sum of earlier calls: XLA compiles one graph for both."""
    return torch.zeros((), dtype=x.dtype).to(x.device) if isinstance(x, Tensor) else 0
