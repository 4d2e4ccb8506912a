"""What causal attention keeps while decoding: sums over the older positions, and the newest as they are.

To add a position to S and z at each step would read and write all of S. So positions are first kept as φ(k) and v,
in room for a fixed number of them, and enter the sums together. The output is the same up to rounding.
"""

from typing import Dict, Optional, Union

import torch
from torch import Tensor

from ..functional.decoding import divide, read_pairs, read_sums, with_one
from ..functional.definition import normalize
from ..functional.encoding import Directions, Encoded
from ..functional.linear_attention import ScaledState, State
from ..functional.local_window import add_exact
from ..functional.precision import full_precision, wide
from ..functional.recurrence import LOWEST, Recurrence, recurrence
from ..functional.window_state import Window, WindowState, lengthened
from .order import Slots, is_identity
from .packed_linear import PackedProduct

ROOM = 64
"""Positions that are kept as they are before there are any sums, beside those of a local window."""
ROOM_BESIDE_SUMS = 16
"""Positions that are kept beside the sums, which are read at each step and written once for all of these."""

Totals = Union[State, ScaledState, WindowState]


class DecodingState(dict):
    """Tensors by name, of sizes that do not depend on the length. B rows, H heads, C slots:

    sums (1, B, H, d + 1, F): Sᵀ and below it z, of the older positions.
    phi (C, B, H, F) and values (C, B, H, d + 1): φ(k) and v with a 1 of the newest positions, the first num_newest
    of C; in this order, so that what a step writes lies together. With a window also point (C, B, H, p).
    With a gate, factors or a window also log_kept (B, H), the logarithm of what is left of S and z, and log_weight
    (C, B, H), that of what each of the newest positions counts for; with factors log_scale (B, H) as in ScaledState.

    Its tensors are updated in place, so a search branches by copy.deepcopy of its incremental state.
    """

    def __init__(
        self,
        tensors: Dict[str, Tensor],
        directions: Directions,
        floor: float,
        window: Optional[Window],
        num_newest: int,
        has_older: bool,
    ):
        """
        Args:
            floor: the smallest denominator.
            num_newest: so many slots are in use.
            has_older: False if there are no older positions; what stands in the sums is then not read.
        """
        super().__init__(tensors)
        self.directions = directions
        self.floor = floor
        self.window = window
        self.projection: Optional[PackedProduct] = None
        """To query, key and value at once."""
        self.older = Slots(self, "sums", used=int(has_older))
        self.newest = Slots(self, "phi", "values", *(["point"] if window else []), used=num_newest)

    @property
    def num_newest(self) -> int:
        return self.newest.used

    @property
    def window_size(self) -> int:
        return self.window.size if self.window else 0

    @property
    def num_rows(self) -> int:
        return self["sums"].size(1)

    def is_frozen(self) -> bool:
        """Whether a tensor of inference mode is here outside of that mode, where it cannot be updated in place."""
        if torch.is_inference_mode_enabled():
            return False
        tensors = (*self.values(), *self.older.held(), *self.newest.held())
        return any(x.is_inference() for x in tensors)

    @full_precision
    def advance(
        self, query: Encoded, key: Encoded, v: Tensor, gate_logits: Optional[Tensor] = None, sentence_gate: bool = False
    ) -> Tensor:
        """out (B, H, 1, d) of one more position: query and key encoded, v (B, H, 1, d), gate_logits (B, H, 1)."""
        flow = recurrence(wide(gate_logits), wide(key.log_factor), None, self.get("log_scale"), sentence_gate)
        self._append(key, v, flow)
        out = self._read(query)
        if flow is not None and flow.log_kept_after is not None:
            self._keep(flow.log_kept_after)
        return out

    def totals(self) -> Totals:
        """All positions, in the form in which several further ones can be added at once."""
        if self.num_newest > self.window_size:
            self._fold(keep=self.window_size)
        sums = self["sums"][0]
        if not self.older.used:
            sums.zero_()
        if self.window:
            sums = sums * self["log_kept"].exp()[..., None, None]
        kv, ksum, log_scale = sums[:, :, :-1].transpose(-1, -2), sums[:, :, -1], self.get("log_scale")
        if self.window is None:
            return State(kv, ksum) if log_scale is None else ScaledState(kv, ksum, log_scale)
        phi, point, values, log_weight = map(self._newest, ("phi", "point", "values", "log_weight"))
        state = WindowState(kv, ksum, log_scale, phi, point, values[..., :-1], log_weight)
        return lengthened(state, self.window_size - self.num_newest)

    def reorder(self, new_order: Tensor) -> None:
        """Row i becomes the former row new_order[i]; only what is in use and differs is copied."""
        if is_identity(new_order, self.num_rows):
            return
        self.older.reorder(new_order)
        self.newest.reorder(new_order)
        # What gates leave differs from row to row, wherever the row comes from.
        for name, dim in (("log_kept", 0), ("log_scale", 0), ("log_weight", 1)):
            if name in self:
                self[name] = self[name].index_select(dim, new_order)

    def _append(self, key: Encoded, v: Tensor, flow: Optional[Recurrence]) -> None:
        if self.num_newest == self.window_size + (ROOM_BESIDE_SUMS if self.older.used else ROOM):
            self._fold(keep=max(0, self.window_size - 1))
        slot = self.newest.append()
        self["phi"][slot] = key.phi.squeeze(2)
        torch.cat([v.squeeze(2), v.new_ones(*v.shape[:2], 1)], dim=-1, out=self["values"][slot])
        if self.window:
            self["point"][slot] = key.point.squeeze(2)
            self["log_weight"][slot] = 0.0
        if flow is not None:
            self._keep(flow.log_keep.squeeze(2))
            self["log_weight"][slot] = flow.log_add.squeeze(2)
            if flow.log_scale is not None:
                self["log_scale"] = flow.log_scale

    def _keep(self, log_kept: Tensor) -> None:
        """So much is left of all positions, by its logarithm (B, H)."""
        self["log_weight"][: self.num_newest] += log_kept
        self["log_kept"] += log_kept

    def _read(self, query: Encoded) -> Tensor:
        phi, values = self._newest("phi"), self._newest("values")
        log_weight = self._newest("log_weight") if "log_weight" in self else None
        if self.window:
            first = max(0, self.num_newest - self.window_size)
            by_features, exactly = slice(first), slice(first, None)
            result = self._read_features(
                query.phi, phi[:, :, by_features], values[:, :, by_features], log_weight[:, :, by_features]
            )
            numerator, denominator, greatest = add_exact(
                result[..., :-1],
                result[..., -1],
                self.window.kernel(query.point, self._newest("point")[:, :, exactly]),
                log_weight[:, :, None, exactly],
                values[:, :, exactly, :-1],
                self.window.exponential,
            )
            floor = self.floor if greatest is None else self.floor * (-greatest).exp()
            return normalize(numerator, denominator, floor)
        return divide(self._read_features(query.phi, phi, values, log_weight), self.floor)

    def _read_features(self, phi_q: Tensor, phi: Tensor, values: Tensor, log_weight: Optional[Tensor]) -> Tensor:
        """Numerator and denominator (B, H, 1, d + 1) over these of the newest positions and over the older ones."""
        result = read_pairs(phi_q, phi, values, log_weight)
        if self.older.used:
            older = read_sums(phi_q, self["sums"][0])
            if log_weight is not None:
                older = older * self["log_kept"].exp()[..., None, None]
            result = result.add_(older)
        return result

    def _newest(self, name: str) -> Tensor:
        """The slots of a tensor that are in use, as positions: (B, H, num_newest, …)."""
        return self[name][: self.num_newest].movedim(0, 2)

    def _fold(self, keep: int) -> None:
        """All but so many of the newest positions enter the sums."""
        number = self.num_newest - keep
        phi, values = (self._newest(name)[:, :, :number] for name in ("phi", "values"))
        if "log_weight" in self:
            phi = phi * self._newest("log_weight")[:, :, :number].exp().unsqueeze(-1)
        sums = self["sums"][0]
        if not self.older.used:
            sums.zero_()
        elif "log_kept" in self:
            sums.mul_(self["log_kept"].exp()[..., None, None])
        sums.flatten(0, 1).baddbmm_(values.flatten(0, 1).transpose(1, 2), phi.flatten(0, 1))
        if "log_kept" in self:
            self["log_kept"].zero_()
        if keep:
            self["log_weight"][:keep] = self["log_weight"][number : self.num_newest].clone()
        self.newest.drop(number)
        self.older.used = 0
        self.older.append()


def empty_state(
    key: Encoded, v: Tensor, directions: Directions, floor: float, gate: bool, window: Optional[Window] = None
) -> DecodingState:
    """The state before the first position, with or without a gate, for such keys and values v (B, H, …, d)."""
    batch, heads, _, features = key.phi.shape
    sums = key.phi.new_empty(1, batch, heads, v.size(-1) + 1, features)
    log_scale = None if key.log_factor is None else sums.new_full((batch, heads), LOWEST)
    tensors = _tensors(sums, log_scale, gate, window, key.point)
    return DecodingState(tensors, directions, floor, window, num_newest=0, has_older=False)


def state_after(
    totals: Totals, directions: Directions, floor: float, gate: bool, window: Optional[Window] = None
) -> DecodingState:
    """The state after positions that left these totals."""
    sums = torch.cat([totals.kv.transpose(-1, -2), totals.ksum.unsqueeze(2)], dim=2).unsqueeze(0)
    log_scale = None if isinstance(totals, State) else totals.log_scale
    if window is None:
        tensors = _tensors(sums, log_scale, gate)
        return DecodingState(tensors, directions, floor, None, num_newest=0, has_older=True)
    tensors = _tensors(sums, log_scale, gate, window, totals.point)
    for name in ("phi", "point", "log_weight"):
        tensors[name][: window.size] = getattr(totals, name).movedim(2, 0)
    tensors["values"][: window.size] = with_one(totals.v).movedim(2, 0)
    return DecodingState(tensors, directions, floor, window, num_newest=window.size, has_older=True)


def _tensors(
    sums: Tensor,
    log_scale: Optional[Tensor],
    gate: bool,
    window: Optional[Window] = None,
    point: Optional[Tensor] = None,
) -> Dict[str, Tensor]:
    """Those of a state with these sums, its slots not yet written."""
    _, batch, heads, width, features = sums.shape
    room = ROOM + (window.size if window else 0)
    tensors = {
        "sums": sums,
        "phi": sums.new_empty(room, batch, heads, features),
        "values": sums.new_empty(room, batch, heads, width),
    }
    if gate or window or log_scale is not None:
        tensors["log_weight"] = sums.new_empty(room, batch, heads)
        tensors["log_kept"] = sums.new_zeros(batch, heads)
    if log_scale is not None:
        tensors["log_scale"] = log_scale
    if window:
        tensors["point"] = sums.new_empty(room, batch, heads, point.size(-1))
    return tensors
