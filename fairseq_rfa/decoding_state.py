"""What causal attention keeps while decoding: sums over the older positions, and the newest as they are.

To add a position to S and z at each step would read and write all of S. So positions are first kept as φ(k) and v,
in room for a fixed number of them, and enter the sums together. The output is the same up to rounding.
"""

from typing import Dict, Optional, Tuple, Union

import torch
from torch import Tensor

from .definition import normalize
from .encoding import Directions
from .linear_attention import ScaledState, State
from .recurrence import LOWEST, Recurrence

ROOM = 64


# Products of a tall matrix with few columns, and not of few rows with a wide one: the same, and faster where the
# matrix has to come from memory.


def read_pairs(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, log_weight: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    """Numerator (B, H, N, d) and denominator (B, H, N) of few queries phi_q (B, H, N, F) over all keys.

    phi_k (B, H, M, F), v (B, H, M, d), log_weight (B, H, M).
    """
    weights = phi_k @ phi_q.transpose(-1, -2)
    if log_weight is not None:
        weights = weights * log_weight.exp().unsqueeze(-1)
    return weights.transpose(-1, -2) @ v, weights.sum(2)


def read_sums(phi_q: Tensor, vk: Tensor, ksum: Tensor) -> Tuple[Tensor, Tensor]:
    """The same of the sums vk (B, H, d, F), which is Sᵀ, and ksum (B, H, F)."""
    query = phi_q.transpose(-1, -2)
    return (vk @ query).transpose(-1, -2), (ksum.unsqueeze(2) @ query).squeeze(2)


class DecodingState(dict):
    """Tensors by name, of sizes that do not depend on the length. B rows, H heads, C = ROOM:

    vk (B, H, d, F) and ksum (B, H, F): Sᵀ and z of the older positions.
    phi (B, H, C, F) and v (B, H, C, d): φ(k) and v of the newest positions, the first num_newest of C.
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
        super().__init__(vk=state.kv.transpose(-1, -2).contiguous(), ksum=state.ksum)
        if isinstance(state, ScaledState):
            self["log_scale"] = state.log_scale
        self.directions = directions
        self.has_older = has_older
        self.num_newest = 0
        # Where rows are copied to when they change their order: new memory is slower than old.
        self.spare: Dict[str, Tensor] = {}
        batch, heads, features, width = state.kv.shape
        self["phi"] = state.kv.new_empty(batch, heads, ROOM, features)
        self["v"] = state.kv.new_empty(batch, heads, ROOM, width)
        if has_weights:
            self["log_weight"] = state.kv.new_empty(batch, heads, ROOM)
            self["log_kept"] = state.kv.new_zeros(batch, heads)

    def sums(self):
        """All positions as a State or ScaledState."""
        if self.num_newest:
            self._fold()
        sums = State(self["vk"].transpose(-1, -2), self["ksum"])
        return ScaledState(*sums, self["log_scale"]) if "log_scale" in self else sums

    def append(self, phi_k: Tensor, v: Tensor, flow: Optional[Recurrence] = None) -> None:
        """One position: phi_k (B, H, 1, F), v (B, H, 1, d)."""
        if self.num_newest == (ROOM // 2 if self.has_older else ROOM):
            self._fold()
        slot = self.num_newest
        self["phi"][:, :, slot] = phi_k.squeeze(2)
        self["v"][:, :, slot] = v.squeeze(2)
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
        numerator, denominator = read_pairs(
            phi_q, self._newest("phi"), self._newest("v"), log_weight
        )
        if self.has_older:
            older, older_sum = read_sums(phi_q, self["vk"], self["ksum"])
            if log_weight is not None:
                kept = self["log_kept"].exp().unsqueeze(-1)
                older, older_sum = older * kept.unsqueeze(-1), older_sum * kept
            numerator, denominator = numerator + older, denominator + older_sum
        return normalize(numerator, denominator, floor)

    def reorder(self, new_order: Tensor) -> None:
        """Row i becomes the former row new_order[i]; only what is in use and changes is copied."""
        rows, new_rows = self["ksum"].size(0), new_order.numel()
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
                spare = x.new_empty(new_rows, *x.shape[1:])
            self[name], self.spare[name] = spare[:new_rows], x
            if torch.is_grad_enabled():
                self._used(name).copy_(used.index_select(0, new_order))
            else:
                torch.index_select(used, 0, new_order, out=self._used(name))

    def _used(self, name: str) -> Tensor:
        if name in ("phi", "v", "log_weight"):
            return self._newest(name)
        return self[name] if self.has_older or name == "log_scale" else self[name][:, :0]

    def _newest(self, name: str) -> Tensor:
        return self[name][:, :, : self.num_newest]

    def _fold(self) -> None:
        """The newest positions enter the sums."""
        phi = self._newest("phi")
        if "log_weight" in self:
            phi = phi * self._newest("log_weight").exp().unsqueeze(-1)
        vk, ksum = self["vk"], self["ksum"]
        if not self.has_older:
            vk.zero_()
            ksum.zero_()
        elif "log_kept" in self:
            kept = self["log_kept"].exp().unsqueeze(-1)
            vk.mul_(kept.unsqueeze(-1))
            ksum.mul_(kept)
        values = self._newest("v").transpose(-1, -2)
        vk.flatten(0, 1).baddbmm_(values.flatten(0, 1), phi.flatten(0, 1))
        ksum.add_(phi.sum(2))
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
