"""What causal attention keeps while decoding: sums over the older positions, and the newest as they are.

To add a position to S and z at each step would read and write all of S. So positions are first kept as φ(k) and v,
in room for a fixed number of them, and enter the sums together. The output is the same up to rounding.
"""

from typing import Dict, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from .definition import normalize
from .encoding import Directions
from .few_rows import Projection
from .linear_attention import ScaledState, State
from .recurrence import LOWEST, Recurrence

ROOM = 64


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
    phi (B, H, C, F) and values (B, H, C, d + 1): φ(k) and v with a 1 of the newest positions, the first num_newest
    of C.
    With a gate or factors also log_kept (B, H), the logarithm of what is left of S and z, and log_weight (B, H, C),
    that of what each of the newest positions counts for; with factors log_scale (B, H) as in ScaledState.
    """

    def __init__(
        self,
        state: Union[State, ScaledState],
        directions: Directions,
        has_weights: bool,
        has_older: bool = True,
    ):
        """
        Args:
            directions: with which all positions are encoded.
            state: of the older positions.
            has_weights: there is a gate, or there are factors.
            has_older: False if there are no older positions; what stands in S and z is then not read.
        """
        super().__init__(
            sums=torch.cat([state.kv.transpose(-1, -2), state.ksum.unsqueeze(2)], dim=2)
        )
        if isinstance(state, ScaledState):
            self["log_scale"] = state.log_scale
        self.directions = directions
        self.projection: Optional[Projection] = None
        """To query, key and value at once."""
        self.has_older = has_older
        self.num_newest = 0
        # Where rows are copied to when they change their order: new memory is slower than old.
        self.spare: Dict[str, Tensor] = {}
        batch, heads, features, width = state.kv.shape
        self["phi"] = state.kv.new_empty(batch, heads, ROOM, features)
        self["values"] = state.kv.new_ones(batch, heads, ROOM, width + 1)
        if has_weights:
            self["log_weight"] = state.kv.new_empty(batch, heads, ROOM)
            self["log_kept"] = state.kv.new_zeros(batch, heads)

    def totals(self):
        """All positions as a State or ScaledState."""
        if self.num_newest:
            self._fold()
        totals = State(self["sums"][:, :, :-1].transpose(-1, -2), self["sums"][:, :, -1])
        return ScaledState(*totals, self["log_scale"]) if "log_scale" in self else totals

    def append(self, phi_k: Tensor, v: Tensor, flow: Optional[Recurrence] = None) -> None:
        """One position: phi_k (B, H, 1, F), v (B, H, 1, d)."""
        if self.num_newest == (ROOM // 2 if self.has_older else ROOM):
            self._fold()
        slot = self.num_newest
        self["phi"][:, :, slot] = phi_k.squeeze(2)
        self["values"][:, :, slot, :-1] = v.squeeze(2)
        if flow is not None:
            self._newest("log_weight").add_(flow.log_keep)
            self["log_weight"][:, :, slot] = flow.log_add.squeeze(2)
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
        """Row i becomes the former row new_order[i]; only what is in use and changes is copied."""
        rows, new_rows = self["sums"].size(0), new_order.numel()
        if new_rows == rows:
            moved = (new_order != torch.arange(rows, device=new_order.device)).nonzero().squeeze(1)
            if not moved.numel():
                return
            if 4 * moved.numel() < rows and not torch.is_grad_enabled():
                parents = new_order[moved]
                for name in self:
                    used = self._used(name)
                    used.index_copy_(0, moved, used.index_select(0, parents))
                return
        for name, x in self.items():
            used, spare = self._used(name), self.spare.pop(name, None)
            if spare is None or spare.size(0) < new_rows or torch.is_grad_enabled():
                spare = x.new_ones(new_rows, *x.shape[1:])  # the last entry of values is 1
            self[name], self.spare[name] = spare[:new_rows], x
            if torch.is_grad_enabled():
                self._used(name).copy_(used.index_select(0, new_order))
            else:
                torch.index_select(used, 0, new_order, out=self._used(name))

    def _used(self, name: str) -> Tensor:
        if name in ("phi", "values", "log_weight"):
            return self._newest(name)
        return self[name] if self.has_older or name == "log_scale" else self[name][:, :0]

    def _newest(self, name: str) -> Tensor:
        return self[name][:, :, : self.num_newest]

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
        self.has_older = True
        self.num_newest = 0


def empty_state(
    phi_k: Tensor, v: Tensor, directions: Directions, has_weights: bool, has_factors: bool
) -> DecodingState:
    """The state before the first position, for tensors like these."""
    batch, heads, _, features = phi_k.shape
    sums = State(
        phi_k.new_empty(batch, heads, v.size(-1), features).transpose(-1, -2),
        phi_k.new_empty(batch, heads, features),
    )
    if has_factors:
        sums = ScaledState(*sums, phi_k.new_full((batch, heads), LOWEST))
    return DecodingState(sums, directions, has_weights, has_older=False)
