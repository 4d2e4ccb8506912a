"""Hybrid causal attention: the newest keys by the exact kernel, the older ones by features, one normaliser.

Letters are those of `linear_attention`; W is the number of newest keys, the current one included. Keys are counted
without padding. With factors (`Encoded.log_factor`) the sums are divided as in `recurrence`.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .definition import DENOMINATOR_FLOOR, Observe, normalize
from .encoding import Encoded
from .precision import full_precision, wide
from .recurrence import (
    LOWEST,
    Recurrence,
    chunked,
    extended,
    log_kept_between,
    log_kept_to_end,
    recurrence,
    sums_between_chunks,
)

SMALLEST_LOG = -60.0
"""exp of its negative is far from the end of float32, and so are gradients that hold it."""


class Keys(NamedTuple):
    """Keys and values in the order of their positions."""

    phi: Tensor
    """(B, H, T, F)"""
    point: Tensor
    """(B, H, T, p)"""
    v: Tensor
    """(B, H, T, d)"""
    log_weight: Tensor
    """Logarithm of what each counts for, (B, H, T)"""


class WindowState(NamedTuple):
    """A state of fixed size: the sums over older keys, and the W newest keys."""

    kv: Tensor
    """S of the older keys, (B, H, F, d)"""
    ksum: Tensor
    """z of the older keys, (B, H, F)"""
    log_scale: Tensor
    """(B, H), the greatest logarithm of a factor so far; 0 without factors"""
    phi: Tensor
    point: Tensor
    v: Tensor
    log_weight: Tensor


def empty_state(key: Encoded, v: Tensor, window: int) -> WindowState:
    """The state before the first position."""
    batch, heads, _, features = key.phi.shape
    phi = wide(key.phi).new_zeros(batch, heads, window, features)
    return WindowState(
        kv=phi.new_zeros(batch, heads, features, v.size(-1)),
        ksum=phi.new_zeros(batch, heads, features),
        log_scale=phi.new_full((batch, heads), 0.0 if key.log_factor is None else LOWEST),
        phi=phi,
        point=phi.new_zeros(batch, heads, window, key.point.size(-1)),
        v=phi.new_zeros(batch, heads, window, v.size(-1)),
        log_weight=phi.new_full((batch, heads, window), LOWEST),
    )


@full_precision
def causal(
    query: Encoded,
    key: Encoded,
    v: Tensor,
    kernel: Callable[[Tensor, Tensor], Tensor],
    window: int,
    exponential: bool = False,
    gate_logits: Optional[Tensor] = None,
    padding: Optional[Tensor] = None,
    state: Optional[WindowState] = None,
    chunk_size: int = 64,
    floor: float = DENOMINATOR_FLOOR,
    observe: Observe = None,
) -> Tuple[Tensor, WindowState]:
    """out_t = Σ_s w_ts v_s / max(Σ_s w_ts, floor) of N positions that follow those of `state`.

    w_ts is the kernel of the points of query t and key s if s is one of the W newest keys up to t, and
    phi(q_t)·phi(k_s) if it is older, each times what the gates leave of s and its factor. Time and memory are linear
    in N, without a loop over positions or chunks.

    Args:
        query, key: encoded with points; padding in `key` is blank.
        kernel: takes points; the logarithm of the kernel if exponential.
        window: W, at least 1.
        exponential: weights of any size, which are divided by the greatest of each query.
        observe: told of the floor, at padding as well.

    Returns:
        out (B, H, N, d) and the state after the last position.
    """
    dtype, length = v.dtype, v.size(2)
    state = state or empty_state(key, v, window)
    has_factors = key.log_factor is not None
    flow = recurrence(
        wide(gate_logits), wide(key.log_factor), padding, state.log_scale if has_factors else None
    )
    if flow is None:
        nothing = wide(v).new_zeros(v.shape[:3])
        flow = Recurrence(nothing, nothing, None)
    log_add = flow.log_add
    v = wide(v)
    if padding is not None:
        log_add = log_add.masked_fill(padding.unsqueeze(1), LOWEST)
        v = v.masked_fill(padding[:, None, :, None], 0.0)
    phi_q, point_q = wide(query.phi), wide(query.point)
    keys = Keys(wide(key.phi), wide(key.point), v, log_add)
    log_keep, places = flow.log_keep, None
    if padding is not None:
        order = padding.int().argsort(dim=1, stable=True)
        phi_q, point_q, log_keep = (_take(x, order) for x in (phi_q, point_q, log_keep))
        keys = Keys(*(_take(x, order) for x in keys))
        places = order.argsort(dim=1)
    keys = Keys(*(torch.cat(pair, dim=2) for pair in zip(_window_of(state), keys)))
    log_keep = F.pad(log_keep, (window, 0))

    num_chunks = max(1, -(-length // chunk_size))
    numerator, denominator, greatest = _older_and_newest(
        phi_q, point_q, keys, log_keep, state, kernel, window, exponential, num_chunks
    )

    def in_place(x):
        x = x.flatten(2, 3)[:, :, :length]
        return x if places is None else _take(x, places)

    if greatest is not None:
        floor = in_place(floor * (-greatest).exp())
    out = normalize(in_place(numerator), in_place(denominator), floor, observe)
    num_new = v.new_full((v.size(0),), length, dtype=torch.long)
    if padding is not None:
        num_new = (~padding).sum(1)
    after = _state_after(keys, log_keep, state, num_new, window)
    if has_factors:
        after = after._replace(log_scale=flow.log_scale)
    return out.to(dtype), after


def _older_and_newest(
    phi_q: Tensor,
    point_q: Tensor,
    keys: Keys,
    log_keep: Tensor,
    state: WindowState,
    kernel: Callable[[Tensor, Tensor], Tensor],
    window: int,
    exponential: bool,
    num_chunks: int,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Numerator (B, H, chunks, C, d) and denominator (B, H, chunks, C), and the logarithm of what both are divided by.

    keys and log_keep begin W positions before the queries. The C queries of a chunk meet W + C keys in pairs; what
    is older stands in sums.
    """
    phi_q, point_q = chunked(phi_q, num_chunks), chunked(point_q, num_chunks)
    chunk_length = phi_q.size(3)
    length = window + num_chunks * chunk_length
    keys = Keys(*(extended(x, length) for x in keys))
    log_keep = extended(log_keep, length)

    def older(x):
        return x[:, :, : num_chunks * chunk_length].unflatten(2, (num_chunks, chunk_length))

    first = torch.arange(num_chunks, device=log_keep.device) * chunk_length
    positions = first.unsqueeze(-1) + torch.arange(window + chunk_length, device=log_keep.device)

    def met(x):
        # Not by unfold, which XLA lacks.
        return x.index_select(2, positions.flatten()).unflatten(2, positions.shape)

    add = keys.log_weight.exp().unsqueeze(-1)
    kv, ksum = sums_between_chunks(
        older(keys.phi * add), older(keys.v), older(log_keep), (state.kv, state.ksum)
    )
    kept = met(log_keep).cumsum(-1)[..., window:].exp().unsqueeze(-1)
    numerator = (phi_q @ kv[:, :, :-1]) * kept
    denominator = (phi_q @ ksum[:, :, :-1].unsqueeze(-1) * kept).squeeze(-1)

    log_weight = log_kept_between(met(log_keep))[..., window:, :]
    log_weight = log_weight + met(keys.log_weight).unsqueeze(-2)
    t = torch.arange(chunk_length, device=log_keep.device).unsqueeze(-1)
    newest = torch.arange(window + chunk_length, device=log_keep.device) > t
    estimate = phi_q @ met(keys.phi).transpose(-1, -2) * log_weight.exp()
    estimate = estimate.masked_fill(newest, 0.0)
    numerator = numerator + estimate @ met(keys.v)
    denominator = denominator + estimate.sum(-1)

    exact, greatest = kernel(point_q, met(keys.point)), None
    if exponential:
        exact = (exact + log_weight).masked_fill(~newest, float("-inf"))
        greatest = torch.maximum(exact.amax(-1), denominator.log()).clamp(min=SMALLEST_LOG).detach()
        exact = (exact - greatest.unsqueeze(-1)).exp()
        numerator = numerator * (-greatest).exp().unsqueeze(-1)
        denominator = denominator * (-greatest).exp()
    else:
        exact = (exact * log_weight.exp()).masked_fill(~newest, 0.0)
    return numerator + exact @ met(keys.v), denominator + exact.sum(-1), greatest


def _state_after(
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
        *(_take(x, rows) for x in keys),
    )


def _window_of(state: WindowState) -> Keys:
    return Keys(state.phi, state.point, state.v, state.log_weight)


def _take(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, H, T, …) at positions (B, P) → (B, H, P, …)"""
    positions = positions[(slice(None), None, slice(None)) + (None,) * (x.dim() - 3)]
    return x.gather(2, positions.expand(*x.shape[:2], -1, *x.shape[3:]))
