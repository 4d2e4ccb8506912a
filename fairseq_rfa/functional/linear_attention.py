"""Everything after the feature map: sums over keys, their order of multiplication, one normaliser.

Letters: B rows of the batch, H heads, N target and M source positions, F entries of a feature vector, d width
of a value, C positions of a chunk. phi_q (B, H, N, F), phi_k (B, H, N or M, F), v (B, H, N or M, d),
gate_logits (B, H, N), padding (B, N or M) bool and True at padding, out (B, H, N, d) in the type of v.

A padded key adds nothing to a sum, and the gate of a padded position is 1; what stands in the padding is never
read. Sums, denominators, gates and states are float32 (float64 for float64 inputs) whatever the inputs' type.
"""

from typing import NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .definition import (
    DENOMINATOR_FLOOR,
    Observe,
    mask_keys,
    normalize,
    reference_causal,
    reference_cross,
)
from .precision import full_precision, wide
from .recurrence import chunked, log_kept_between, recurrence, sums_between_chunks

__all__ = [
    "DENOMINATOR_FLOOR",
    "ScaledState",
    "State",
    "causal",
    "cross",
    "cross_weights",
    "joined",
    "normalize",
    "read",
    "reference_causal",
    "reference_cross",
    "summarize",
    "with_factors",
]


class State(NamedTuple):
    """All that attention keeps of the keys and values that it has seen; its size does not depend on how many."""

    kv: Tensor
    """S = Σ φ(k) ⊗ v, (B, H, F, d)"""
    ksum: Tensor
    """z = Σ φ(k), (B, H, F)"""


class ScaledState(NamedTuple):
    """A State whose keys have factors: S and z are those entries times exp(log_scale)."""

    kv: Tensor
    """S without the greatest factor, (B, H, F, d)."""
    ksum: Tensor
    """z without it, (B, H, F)."""
    log_scale: Tensor
    """The logarithm of the greatest factor so far, (B, H)."""


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
    log_factor: Optional[Tensor] = None,
    observe: Observe = None,
    sentence_gate: bool = False,
) -> Tuple[Tensor, Optional[State]]:
    """Causal attention (eq. 6, algorithm 1; eq. 7 with a gate) of N positions that follow those of `state`.

    Within a chunk (φ(Q)φ(K)ᵀ)V with a triangular mask, between chunks φ(Q)(φ(K)ᵀV): time and memory are linear
    in N, and there is no loop over positions or chunks.

    Args:
        state: what earlier positions left; nothing if None.
        chunk_size: C, at least 1; a speed, not a result.
        need_state: False saves the work of the state after the last position.
        log_factor: (B, H, N); each φ(k) counts exp(log_factor) times, of any size. The floor is then relative
            to the greatest factor up to each position.
        observe: told of the floor, at padding as well.
        sentence_gate: gate_logits are those of a sentence gate, see `reference_causal`.

    Returns:
        out, and the state after the last position: None without need_state, a ScaledState with factors.
    """
    dtype, length = v.dtype, v.size(2)
    phi_q, phi_k, v = wide(phi_q), *mask_keys(wide(phi_k), wide(v), padding)
    log_scale = None if log_factor is None or state is None else state.log_scale
    flow = recurrence(wide(gate_logits), wide(log_factor), padding, log_scale, sentence_gate)
    if flow is not None:
        phi_k = phi_k * flow.log_add.exp().unsqueeze(-1)

    num_chunks = max(1, -(-length // chunk_size))
    phi_q, phi_k, v = (chunked(x, num_chunks) for x in (phi_q, phi_k, v))
    log_keep = None if flow is None else chunked(flow.log_keep, num_chunks)

    scores = phi_q @ phi_k.transpose(-1, -2)
    scores = scores.tril() if flow is None else scores * log_kept_between(log_keep).exp()
    numerator, denominator = scores @ v, scores.sum(-1)

    after = None
    if need_state or state is not None or num_chunks > 1:
        before = None if state is None else (wide(state.kv), wide(state.ksum))
        kv, ksum = sums_between_chunks(phi_k, v, log_keep, before, sentence_gate and log_factor is None)
        if flow is not None:
            phi_q = phi_q * log_keep.cumsum(-1).exp().unsqueeze(-1)
        numerator = numerator + phi_q @ kv[:, :, :-1]
        denominator = denominator + (phi_q @ ksum[:, :, :-1].unsqueeze(-1)).squeeze(-1)
        # Copies: views would keep the states of all chunks in memory.
        after = State(kv[:, :, -1].clone(), ksum[:, :, -1].clone())
        if flow is not None and flow.log_kept_after is not None:
            kept = flow.log_kept_after.exp().unsqueeze(-1)
            after = State(after.kv * kept.unsqueeze(-1), after.ksum * kept)
        after = after if log_factor is None else ScaledState(*after, flow.log_scale)
    numerator, denominator = (x.flatten(2, 3)[:, :, :length] for x in (numerator, denominator))
    out = normalize(numerator, denominator, floor, observe)
    return out.to(dtype), after if need_state else None


@full_precision
def summarize(phi_k: Tensor, v: Tensor, padding: Optional[Tensor] = None) -> State:
    """The sums over all source positions (algorithm 2): S = Σ_j φ(k_j) ⊗ v_j and z = Σ_j φ(k_j)."""
    phi_k, v = mask_keys(wide(phi_k), wide(v), padding)
    return State(phi_k.transpose(-1, -2) @ v, phi_k.sum(-2))


def joined(states: Sequence[State], log_scales: Sequence[Tensor] = ()) -> State:
    """The sums over the keys of all states.

    Args:
        log_scales: of each state (B, H): S and z are its entries times exp(log_scale). The result is relative to the
            greatest of them. Empty where keys have no factors.
    """
    if not log_scales:
        return State(*map(sum, zip(*states)))
    scales = torch.stack([*log_scales])
    scales = (scales - scales.amax(0)).exp().unsqueeze(-1)
    return State(
        sum(scale.unsqueeze(-1) * state.kv for scale, state in zip(scales, states)),
        sum(scale * state.ksum for scale, state in zip(scales, states)),
    )


@full_precision
def read(
    phi_q: Tensor, state: State, floor: float = DENOMINATOR_FLOOR, observe: Observe = None
) -> Tensor:
    """out_t = φ(q_t)ᵀS / max(φ(q_t)·z, floor), (B, H, N, d) in the type of the state."""
    phi_q = wide(phi_q)
    denominator = (phi_q @ state.ksum.unsqueeze(-1)).squeeze(-1)
    return normalize(phi_q @ state.kv, denominator, floor, observe)


@full_precision
def cross(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    padding: Optional[Tensor] = None,
    floor: float = DENOMINATOR_FLOOR,
    observe: Observe = None,
) -> Tensor:
    """Cross attention (eq. 5) in the order of multiplication that is cheaper for these shapes."""
    (length, features), (source_length, width) = phi_q.shape[-2:], v.shape[-2:]
    through_sums = (length + source_length) * features * width
    through_pairs = length * source_length * (features + width)
    if through_sums < through_pairs:
        return read(phi_q, summarize(phi_k, v, padding), floor, observe).to(v.dtype)
    dtype = v.dtype
    phi_k, v = mask_keys(wide(phi_k), wide(v), padding)
    scores = wide(phi_q) @ phi_k.transpose(-1, -2)
    return normalize(scores @ v, scores.sum(-1), floor, observe).to(dtype)


@full_precision
def cross_weights(
    phi_q: Tensor, phi_k: Tensor, padding: Optional[Tensor] = None, floor: float = DENOMINATOR_FLOOR
) -> Tensor:
    """The weight of each source position, (B, H, N, M), in float32: what `cross` multiplies v with.

    A row sums to 1 unless its denominator is below the floor, and a weight can be negative.
    """
    scores = wide(phi_q) @ wide(phi_k).transpose(-1, -2)
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None], 0.0)
    return normalize(scores, scores.sum(-1), floor)


def with_factors(phi_k: Tensor, log_factor: Tensor) -> Tensor:
    """phi_k (B, H, M, F) times exp(log_factor) (B, H, M), relative to the greatest factor of each row."""
    if not log_factor.size(-1):
        return phi_k
    log_factor = log_factor - log_factor.amax(-1, keepdim=True)
    return phi_k * log_factor.exp().unsqueeze(-1)
