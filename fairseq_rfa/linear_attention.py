"""Everything after the feature map: sums over keys, their order of multiplication, one normaliser.

Letters: B rows of the batch, H heads, N target and M source positions, F entries of a feature vector, d width
of a value, C positions of a chunk. phi_q (B, H, N, F), phi_k (B, H, N or M, F), v (B, H, N or M, d),
gate_logits (B, H, N), padding (B, N or M) bool and True at padding, out (B, H, N, d) in the type of v.

A padded key adds nothing to a sum, and the gate of a padded position is 1; what stands in the padding is never
read. Sums, denominators, gates and states are float32 (float64 for float64 inputs) whatever the inputs' type.
"""

import functools
from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .definition import DENOMINATOR_FLOOR, mask_keys, normalize, reference_causal, reference_cross

__all__ = [
    "DENOMINATOR_FLOOR",
    "State",
    "causal",
    "cross",
    "cross_weights",
    "empty_state",
    "normalize",
    "read",
    "reference_causal",
    "reference_cross",
    "step",
    "summarize",
]


def full_precision(function):
    """Automatic mixed precision does not reach into the function."""

    @functools.wraps(function)
    def without_autocast(*arguments, **options):
        values = (*arguments, *options.values())
        device = next(value.device for value in values if isinstance(value, Tensor))
        with torch.autocast(device.type, enabled=False):
            return function(*arguments, **options)

    return without_autocast


class State(NamedTuple):
    """All that attention keeps of the keys and values that it has seen; its size does not depend on how many."""

    kv: Tensor
    """S = Σ φ(k) ⊗ v, (B, H, F, d)"""
    ksum: Tensor
    """z = Σ φ(k), (B, H, F)"""


@full_precision
def causal(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    gate_logits: Optional[Tensor] = None,
    padding: Optional[Tensor] = None,
    state: Optional[State] = None,
    chunk_size: int = 64,
    floor: float = DENOMINATOR_FLOOR,
    need_state: bool = True,
) -> Tuple[Tensor, Optional[State]]:
    """Causal attention (eq. 6, algorithm 1; eq. 7 with a gate) of N positions that follow those of `state`.

    Within a chunk (φ(Q)φ(K)ᵀ)V with a triangular mask, between chunks φ(Q)(φ(K)ᵀV): time and memory are linear
    in N, and there is no loop over positions or chunks.

    Args:
        state: what earlier positions left; nothing if None.
        chunk_size: C, at least 1; a speed, not a result.
        need_state: False saves the work of the state after the last position.

    Returns:
        out, and the state after the last position (None without need_state).
    """
    dtype, length = v.dtype, v.size(2)
    phi_q, phi_k, v = _wide(phi_q), *mask_keys(_wide(phi_k), _wide(v), padding)
    log_gate = None
    if gate_logits is not None:
        gate_logits = _wide(gate_logits)
        if padding is not None:
            gate_logits = gate_logits.masked_fill(padding.unsqueeze(1), float("inf"))
        log_gate = F.logsigmoid(gate_logits)
        phi_k = phi_k * torch.sigmoid(-gate_logits).unsqueeze(-1)

    num_chunks = max(1, -(-length // chunk_size))
    phi_q, phi_k, v = (_chunked(x, num_chunks) for x in (phi_q, phi_k, v))
    log_gate = None if log_gate is None else _chunked(log_gate, num_chunks)
    decay = None if log_gate is None else _decay_between(log_gate)

    scores = phi_q @ phi_k.transpose(-1, -2)
    scores = scores.tril() if decay is None else scores * decay
    numerator, denominator = scores @ v, scores.sum(-1)

    after = None
    if need_state or state is not None or num_chunks > 1:
        to_end = None if decay is None else decay[..., -1, :]
        before, after = _states_between_chunks(phi_k, v, log_gate, to_end, state)
        if log_gate is not None:
            phi_q = phi_q * log_gate.cumsum(-1).exp().unsqueeze(-1)
        numerator = numerator + phi_q @ before.kv
        denominator = denominator + (phi_q @ before.ksum.unsqueeze(-1)).squeeze(-1)
    out = normalize(numerator, denominator, floor).flatten(2, 3)[:, :, :length]
    return out.to(dtype), after if need_state else None


@full_precision
def step(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    state: State,
    gate_logits: Optional[Tensor] = None,
    floor: float = DENOMINATOR_FLOOR,
) -> Tuple[Tensor, State]:
    """Causal attention of one position, N = 1: constant time and memory.

    Where no gradient is recorded the tensors of `state` are updated in place.
    """
    key, value = _wide(phi_k).squeeze(2), _wide(v).squeeze(2)
    kv, ksum = state
    if torch.is_grad_enabled():
        kv, ksum = kv.clone(), ksum.clone()
    if gate_logits is not None:
        logits = _wide(gate_logits)
        gate = torch.sigmoid(logits)
        key = key * torch.sigmoid(-logits)
        kv.mul_(gate.unsqueeze(-1))
        ksum.mul_(gate)
    kv.addcmul_(key.unsqueeze(-1), value.unsqueeze(-2))
    ksum.add_(key)
    state = State(kv, ksum)
    return read(phi_q, state, floor).to(v.dtype), state


@full_precision
def summarize(phi_k: Tensor, v: Tensor, padding: Optional[Tensor] = None) -> State:
    """The sums over all source positions (algorithm 2): S = Σ_j φ(k_j) ⊗ v_j and z = Σ_j φ(k_j)."""
    phi_k, v = mask_keys(_wide(phi_k), _wide(v), padding)
    return State(phi_k.transpose(-1, -2) @ v, phi_k.sum(-2))


@full_precision
def read(phi_q: Tensor, state: State, floor: float = DENOMINATOR_FLOOR) -> Tensor:
    """out_t = φ(q_t)ᵀS / max(φ(q_t)·z, floor), (B, H, N, d) in the type of the state."""
    phi_q = _wide(phi_q)
    denominator = (phi_q @ state.ksum.unsqueeze(-1)).squeeze(-1)
    return normalize(phi_q @ state.kv, denominator, floor)


@full_precision
def cross(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    padding: Optional[Tensor] = None,
    floor: float = DENOMINATOR_FLOOR,
) -> Tensor:
    """Cross attention (eq. 5) in the order of multiplication that is cheaper for these shapes."""
    (length, features), (source_length, width) = phi_q.shape[-2:], v.shape[-2:]
    through_state = (length + source_length) * features * width
    through_scores = length * source_length * (features + width)
    if through_state < through_scores:
        return read(phi_q, summarize(phi_k, v, padding), floor).to(v.dtype)
    dtype = v.dtype
    phi_k, v = mask_keys(_wide(phi_k), _wide(v), padding)
    scores = _wide(phi_q) @ phi_k.transpose(-1, -2)
    return normalize(scores @ v, scores.sum(-1), floor).to(dtype)


@full_precision
def cross_weights(
    phi_q: Tensor, phi_k: Tensor, padding: Optional[Tensor] = None, floor: float = DENOMINATOR_FLOOR
) -> Tensor:
    """The weight of each source position, (B, H, N, M), in float32: what `cross` multiplies v with.

    A row sums to 1 unless its denominator is below the floor, and a weight can be negative.
    """
    scores = _wide(phi_q) @ _wide(phi_k).transpose(-1, -2)
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None], 0.0)
    return normalize(scores, scores.sum(-1), floor)


def empty_state(phi_k: Tensor, v: Tensor) -> State:
    """The state before the first position."""
    return summarize(phi_k[:, :, :0], v[:, :, :0])


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _chunked(x: Tensor, num_chunks: int) -> Tensor:
    """(B, H, N, …) → (B, H, chunks, C, …) with chunks of equal length, the last one filled up with zeros."""
    chunk_length = max(1, -(-x.size(2) // num_chunks))
    missing = num_chunks * chunk_length - x.size(2)
    if missing:
        x = torch.cat([x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])], dim=2)
    return x.unflatten(2, (num_chunks, chunk_length))


def _decay_between(log_gate: Tensor) -> Tensor:
    """The product of the gates after s up to t for s ≤ t and 0 elsewhere, (…, T, T) of (…, T).

    Each sum of logarithms runs over those gates alone: the difference of two long sums would lose digits.
    """
    length = log_gate.size(-1)
    future = torch.ones(length, length, dtype=torch.bool, device=log_gate.device).triu(1)
    sums = log_gate.unsqueeze(-1).expand(*log_gate.shape, length).tril(-1).cumsum(-2)
    return sums.masked_fill(future, float("-inf")).exp()


def _states_between_chunks(
    phi_k: Tensor,
    v: Tensor,
    log_gate: Optional[Tensor],
    to_end: Optional[Tensor],
    state: Optional[State],
) -> Tuple[State, State]:
    """The state before each chunk, kv (B, H, chunks, F, d) and ksum (B, H, chunks, F), and that after the last.

    phi_k (B, H, chunks, C, F), v (B, H, chunks, C, d), log_gate (B, H, chunks, C), to_end (B, H, chunks, C):
    the product of the gates after each position up to the end of its chunk.
    """
    if log_gate is not None:
        phi_k = phi_k * to_end.unsqueeze(-1)
    kv, ksum = phi_k.transpose(-1, -2) @ v, phi_k.sum(-2)
    if state is None:
        state = State(torch.zeros_like(kv[:, :, 0]), torch.zeros_like(ksum[:, :, 0]))
    kv = torch.cat([_wide(state.kv).unsqueeze(2), kv], dim=2)
    ksum = torch.cat([_wide(state.ksum).unsqueeze(2), ksum], dim=2)
    if log_gate is None:
        kv, ksum = kv.cumsum(2), ksum.cumsum(2)
    else:
        weights = _decay_between(F.pad(log_gate.sum(-1), (1, 0)))
        kv = (weights @ kv.flatten(-2)).view_as(kv)
        ksum = weights @ ksum
    # Copies: views would keep the states of all chunks in memory.
    after = State(kv[:, :, -1].clone(), ksum[:, :, -1].clone())
    return State(kv[:, :, :-1], ksum[:, :, :-1]), after
