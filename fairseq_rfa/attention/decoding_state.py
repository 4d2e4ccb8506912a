"""What causal attention keeps while decoding: sums over the older positions, and the newest as they are.

To add a position to S and z at each step would read and write all of S. So positions are first kept as φ(k) and v,
in room for a fixed number of them, and enter the sums together. The output is the same up to rounding.
"""

import math
from typing import Dict, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.definition import normalize
from ..functional.encoding import Directions
from ..functional.linear_attention import ScaledState, State
from ..functional.recurrence import LOWEST, Recurrence
from .order import is_identity
from .packed_linear import PackedProduct

ROOM = 64
"""Positions that are kept as they are before there are any sums."""
ROOM_BESIDE_SUMS = 16
"""Positions that are kept beside the sums, which are read at each step and written once for all of these."""


# All products are batches of a tall matrix with few columns, and numerator and denominator come from one product:
# v carries a further entry, 1, and so z stands below Sᵀ.


def with_one(v: Tensor) -> Tensor:
    """v (…, d) → (…, d + 1), the last entry 1"""
    return F.pad(v, (0, 1), value=1.0)


def read_pairs(
    phi_q: Tensor, phi_k: Tensor, values: Tensor, log_weight: Optional[Tensor] = None
) -> Tensor:
    """Numerators and denominators (B, H, N, d + 1) of few queries phi_q (B, H, N, F) over all keys.

    phi_k (B, H, M, F), values (B, H, M, d + 1), log_weight (B, H, M).
    """
    query = phi_q.flatten(0, 1).transpose(1, 2)
    weights = phi_k.flatten(0, 1).bmm(query)
    if log_weight is not None:
        weights = weights * log_weight.flatten(0, 1).exp().unsqueeze(-1)
    result = weights.transpose(1, 2).bmm(values.flatten(0, 1))
    return result.unflatten(0, phi_q.shape[:2])


def read_sums(phi_q: Tensor, sums: Tensor) -> Tensor:
    """The same of sums (B, H, d + 1, F)."""
    result = sums.flatten(0, 1).bmm(phi_q.flatten(0, 1).transpose(1, 2))
    return result.transpose(1, 2).unflatten(0, phi_q.shape[:2])


def divide(result: Tensor, floor: float) -> Tensor:
    """Numerators and denominators (B, H, N, d + 1) → (B, H, N, d)"""
    return normalize(result[..., :-1], result[..., -1], floor)


class DecodingState(dict):
    """Tensors by name, of sizes that do not depend on the length. B rows, H heads, C = ROOM:

    sums (B, H, d + 1, F): Sᵀ and below it z, of the older positions.
    phi (C, B, H, F) and values (C, B, H, d + 1): φ(k) and v with a 1 of the newest positions, the first num_newest
    of C; in this order, so that what a step writes lies together.
    With a gate or factors also log_kept (B, H), the logarithm of what is left of S and z, and log_weight (C, B, H),
    that of what each of the newest positions counts for; with factors log_scale (B, H) as in ScaledState.
    """

    def __init__(
        self,
        sums: Tensor,
        directions: Directions,
        has_weights: bool,
        log_scale: Optional[Tensor] = None,
        has_older: bool = True,
    ):
        """
        Args:
            sums: (B, H, d + 1, F), of the older positions.
            directions: with which all positions are encoded.
            has_weights: there is a gate, or there are factors.
            log_scale: (B, H), with factors.
            has_older: False if there are no older positions; what stands in the sums is then not read.
        """
        super().__init__(sums=sums)
        self.directions = directions
        self.projection: Optional[PackedProduct] = None
        """To query, key and value at once."""
        self.has_older = has_older
        self.num_newest = 0
        # Rows that change their order are copied to and fro between two places: new memory is slower than old.
        self.memory: Dict[str, Tuple[Tensor, Tensor]] = {}
        # The rows in which the sums and each of the newest positions were made: rows of one origin hold the same.
        batch, heads, width, features = sums.shape
        self.origin = torch.arange(batch, device=sums.device).repeat(1 + ROOM, 1)
        self["phi"] = sums.new_empty(ROOM, batch, heads, features)
        self["values"] = sums.new_empty(ROOM, batch, heads, width)
        if has_weights:
            self["log_weight"] = sums.new_empty(ROOM, batch, heads)
            self["log_kept"] = sums.new_zeros(batch, heads)
        if log_scale is not None:
            self["log_scale"] = log_scale

    def totals(self):
        """All positions as a State or ScaledState."""
        if self.num_newest:
            self._fold()
        totals = State(self["sums"][:, :, :-1].transpose(-1, -2), self["sums"][:, :, -1])
        return ScaledState(*totals, self["log_scale"]) if "log_scale" in self else totals

    def append(self, phi_k: Tensor, v: Tensor, flow: Optional[Recurrence] = None) -> None:
        """One position: phi_k (B, H, 1, F), v (B, H, 1, d)."""
        if self.num_newest == (ROOM_BESIDE_SUMS if self.has_older else ROOM):
            self._fold()
        slot = self.num_newest
        self._originates_here(1 + slot)
        self["phi"][slot] = phi_k.squeeze(2)
        self["values"][slot, :, :, :-1] = v.squeeze(2)
        self["values"][slot, :, :, -1] = 1.0
        if flow is not None:
            self["log_weight"][:slot] += flow.log_keep.squeeze(2)
            self["log_weight"][slot] = flow.log_add.squeeze(2)
            self["log_kept"] += flow.log_keep.squeeze(2)
            if flow.log_scale is not None:
                self["log_scale"] = flow.log_scale
        self.num_newest += 1

    def read(self, phi_q: Tensor, floor: float) -> Tensor:
        """out (B, H, 1, d) of one query phi_q (B, H, 1, F)."""
        log_weight = self._newest("log_weight") if "log_weight" in self else None
        result = read_pairs(phi_q, self._newest("phi"), self._newest("values"), log_weight)
        if self.has_older:
            older = read_sums(phi_q, self["sums"])
            if log_weight is not None:
                older = older * self["log_kept"].exp()[..., None, None]
            result = result.add_(older)
        return divide(result, floor)

    def reorder(self, new_order: Tensor) -> None:
        """Row i becomes the former row new_order[i]; only what is in use and differs is copied."""
        rows = self["sums"].size(0)
        if is_identity(new_order, rows):
            return
        former = self.origin[: 1 + self.num_newest]
        origin = former.index_select(1, new_order)
        differs = None
        if new_order.numel() == rows and not torch.is_grad_enabled():
            differs = origin != former
            former.copy_(origin)
        else:
            self.origin = F.pad(origin, (0, 0, 0, ROOM - self.num_newest))
        self._reorder(("sums",), new_order, None if differs is None else differs[: int(self.has_older)])
        self._reorder(("phi", "values"), new_order, None if differs is None else differs[1:])
        for name in ("log_kept", "log_scale"):
            if name in self:
                self[name] = self[name].index_select(0, new_order)
        if "log_weight" in self:
            self["log_weight"] = self["log_weight"].index_select(1, new_order)

    def _reorder(self, names: Tuple[str, ...], new_order: Tensor, differs: Optional[Tensor]) -> None:
        """Tensors whose slots and rows differ as said (slots, B); None for all."""
        if differs is not None:
            slot, row = differs.nonzero().unbind(1)
            if 2 * row.numel() <= differs.numel():
                slot = slot * new_order.numel()
                here, there = slot + row, slot + new_order[row]
                for name in names:
                    cells = self._slots(name).flatten(0, 1)
                    cells.index_copy_(0, here, cells.index_select(0, there))
                return
        for name in names:
            used = self._slots(name)
            self[name] = self._second_place(name, new_order.numel())
            if torch.is_grad_enabled():
                self._slots(name).copy_(used.index_select(1, new_order))
            else:
                torch.index_select(used, 1, new_order, out=self._slots(name))

    def _second_place(self, name: str, rows: int) -> Tensor:
        """A tensor like that of the name but with so many rows, in memory other than its own."""
        shape = list(self[name].shape)
        shape[0 if name == "sums" else 1] = rows
        first, second = self.memory.get(name, (self[name].flatten(), None))
        if second is None or second.numel() < math.prod(shape) or torch.is_grad_enabled():
            second = first.new_empty(math.prod(shape))
        self.memory[name] = second, first
        return second[: math.prod(shape)].view(shape)

    def _slots(self, name: str) -> Tensor:
        """What is in use, (slots, B, …): the sums as one slot if there are any, or the newest positions."""
        if name == "sums":
            return self[name].unsqueeze(0)[: int(self.has_older)]
        return self[name][: self.num_newest]

    def _newest(self, name: str) -> Tensor:
        """(B, H, num_newest, …)"""
        return self[name][: self.num_newest].movedim(0, 2)

    def _fold(self) -> None:
        """The newest positions enter the sums."""
        phi = self._newest("phi")
        if "log_weight" in self:
            phi = phi * self._newest("log_weight").exp().unsqueeze(-1)
        sums = self["sums"]
        if not self.has_older:
            sums.zero_()
        elif "log_kept" in self:
            sums.mul_(self["log_kept"].exp()[..., None, None])
        values = self._newest("values").flatten(0, 1).transpose(1, 2)
        sums.flatten(0, 1).baddbmm_(values, phi.flatten(0, 1))
        if "log_kept" in self:
            self["log_kept"].zero_()
        self._originates_here(0)
        self.has_older = True
        self.num_newest = 0

    def _originates_here(self, slot: int) -> None:
        torch.arange(self.origin.size(1), out=self.origin[slot])


def state_of(
    totals: Union[State, ScaledState], directions: Directions, has_weights: bool
) -> DecodingState:
    """The state after positions that left these sums."""
    sums = torch.cat([totals.kv.transpose(-1, -2), totals.ksum.unsqueeze(2)], dim=2)
    log_scale = totals.log_scale if isinstance(totals, ScaledState) else None
    return DecodingState(sums, directions, has_weights, log_scale)


def empty_state(
    phi_k: Tensor, v: Tensor, directions: Directions, has_weights: bool, has_factors: bool
) -> DecodingState:
    """The state before the first position, for tensors like these."""
    batch, heads, _, features = phi_k.shape
    sums = phi_k.new_empty(batch, heads, v.size(-1) + 1, features)
    log_scale = phi_k.new_full((batch, heads), LOWEST) if has_factors else None
    return DecodingState(sums, directions, has_weights, log_scale, has_older=False)
