"""What causal attention with a local window keeps of the positions before: sums, and the newest keys.

The letters are those of `local_window`.
"""

from typing import Callable, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .encoding import Encoded
from .precision import wide
from .recurrence import LOWEST, log_kept_to_end


class Window(NamedTuple):
    """The newest keys of causal attention, which meet the exact kernel in place of features."""

    size: int
    """W of `local_window`, at least 1"""
    kernel: Callable[[Tensor, Tensor], Tensor]
    exponential: bool
    """Whether the kernel is a logarithm."""


class Keys(NamedTuple):
    """Keys and values in the order of their positions."""

    phi: Tensor
    """Feature vectors without their factors, (B, H, T, F)."""
    point: Tensor
    """What the exact kernel takes, (B, H, T, p)."""
    v: Tensor
    """Values, (B, H, T, d)."""
    log_weight: Tensor
    """The logarithm of what each key counts for, (B, H, T)."""


class WindowState(NamedTuple):
    """A state of fixed size: the sums over older keys, and the W newest keys."""

    kv: Tensor
    """S of the older keys, (B, H, F, d)"""
    ksum: Tensor
    """z of the older keys, (B, H, F)"""
    log_scale: Optional[Tensor]
    """(B, H), the greatest logarithm of a factor so far; None without factors"""
    phi: Tensor
    point: Tensor
    v: Tensor
    log_weight: Tensor
    """The W newest keys, the oldest first, as in Keys."""

    def keys(self) -> Keys:
        return Keys(self.phi, self.point, self.v, self.log_weight)

    def times(self, log_kept: Tensor) -> "WindowState":
        """The state of which so much is left, by its logarithm (B, H)."""
        kept = log_kept.exp().unsqueeze(-1)
        return self._replace(
            kv=self.kv * kept.unsqueeze(-1),
            ksum=self.ksum * kept,
            log_weight=self.log_weight + log_kept.unsqueeze(-1),
        )


def empty_state(key: Encoded, v: Tensor, window: int) -> WindowState:
    """The state before the first position."""
    batch, heads, _, features = key.phi.shape
    phi = wide(key.phi).new_zeros(batch, heads, window, features)
    return WindowState(
        kv=phi.new_zeros(batch, heads, features, v.size(-1)),
        ksum=phi.new_zeros(batch, heads, features),
        log_scale=None if key.log_factor is None else phi.new_full((batch, heads), LOWEST),
        phi=phi,
        point=phi.new_zeros(batch, heads, window, key.point.size(-1)),
        v=phi.new_zeros(batch, heads, window, v.size(-1)),
        log_weight=phi.new_full((batch, heads, window), LOWEST),
    )


def state_after(
    keys: Keys, log_keep: Tensor, state: WindowState, num_new: Tensor, window: int
) -> WindowState:
    """keys hold the W of the state and then N new ones, of which the first num_new (B,) are not padding."""
    length = log_keep.size(2) - window
    keys = keys._replace(log_weight=keys.log_weight + log_kept_to_end(log_keep))
    leaving = torch.arange(length, device=num_new.device) < num_new.unsqueeze(-1)
    weight = keys.log_weight[:, :, :length].exp() * leaving.unsqueeze(1)
    phi = keys.phi[:, :, :length] * weight.unsqueeze(-1)
    kept = log_keep.sum(-1).exp().unsqueeze(-1)
    rows = num_new.unsqueeze(-1) + torch.arange(window, device=num_new.device)
    return WindowState(
        state.kv * kept.unsqueeze(-1) + phi.transpose(-1, -2) @ keys.v[:, :, :length],
        state.ksum * kept + phi.sum(2),
        state.log_scale,
        *(take(x, rows) for x in keys),
    )


def lengthened(state: WindowState, missing: int) -> WindowState:
    """The state with room for so many keys more, of which there are none yet."""
    if not missing:
        return state
    phi, point, v = (F.pad(x, (0, 0, missing, 0)) for x in (state.phi, state.point, state.v))
    log_weight = F.pad(state.log_weight, (missing, 0), value=LOWEST)
    return state._replace(phi=phi, point=point, v=v, log_weight=log_weight)


def take(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, H, T, …) at positions (B, P) → (B, H, P, …)"""
    positions = positions[(slice(None), None, slice(None)) + (None,) * (x.dim() - 3)]
    return x.gather(2, positions.expand(*x.shape[:2], -1, *x.shape[3:]))
