"""What the sums over keys keep and add at each position: the gates, and the factors of keys without overflow.

S_t = keep_t S_{t−1} + add_t φ(k_t) ⊗ v_t, with keep and add as logarithms (B, H, N).

The gate of eq. 7 has keep_t = g_t and add_t = 1 − g_t. A sentence gate multiplies the sums by g_t after position t has
been read: keep_t = g_{t−1} and add_t = 1, and what follows the last position begins with its sums times g_N.
"""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

LOWEST = -1e30
"""The logarithm of nothing: finite, so that differences are never NaN."""


class Recurrence(NamedTuple):
    """What `recurrence` makes of gates and factors."""

    log_keep: Tensor
    """The logarithm of keep_t, (B, H, N)."""
    log_add: Tensor
    """The logarithm of add_t, (B, H, N)."""
    log_scale: Optional[Tensor]
    """The m of `recurrence` after the last position, (B, H); None without factors."""
    log_kept_after: Optional[Tensor] = None
    """The logarithm of what is left of the sums after the last position, (B, H); all of it if None."""


def recurrence(
    gate_logits: Optional[Tensor],
    log_factor: Optional[Tensor],
    padding: Optional[Tensor],
    log_scale: Optional[Tensor] = None,
    sentence_gate: bool = False,
) -> Optional[Recurrence]:
    """The gate g_t = sigmoid(gate_logits_t) of eq. 7 or of sentences, and factors exp(log_factor_t) of the keys.

    The sums are divided by exp(m_t), m_t the greatest log_factor up to t. It cancels in the output, whose
    denominator so has a floor relative to the greatest factor; it sees neither later positions nor padding.

    Args:
        gate_logits, log_factor: (B, H, N), either may be None.
        padding: (B, N); there keep is 1 and add is 0.
        log_scale: m after the positions before, (B, H); none if None.
        sentence_gate: gate_logits are those of a sentence gate.

    Returns:
        None where keep and add are 1 throughout.
    """
    if gate_logits is None and log_factor is None:
        return None
    log_keep = log_add = 0.0
    log_kept_after = None
    if gate_logits is not None:
        if padding is not None:
            gate_logits = kept_at_padding(gate_logits, padding)
        log_gate = F.logsigmoid(gate_logits)
        if sentence_gate:
            log_keep, log_add = F.pad(log_gate[..., :-1], (1, 0)), torch.zeros_like(log_gate)
            log_kept_after = log_gate[..., -1:].sum(-1)
        else:
            log_keep, log_add = log_gate, F.logsigmoid(-gate_logits)
    if log_factor is None:
        return Recurrence(log_keep, log_add, None, log_kept_after)
    if padding is not None:
        log_factor = log_factor.masked_fill(padding.unsqueeze(1), LOWEST)
    if log_scale is None:
        log_scale = log_factor.new_full(log_factor.shape[:2], LOWEST)
    log_scales = torch.cat([log_scale.unsqueeze(-1), log_factor], dim=-1).cummax(-1).values
    log_keep = log_keep + log_scales[..., :-1] - log_scales[..., 1:]
    log_add = log_add + log_factor - log_scales[..., 1:]
    # A copy: a view would keep all positions in memory.
    return Recurrence(log_keep, log_add, log_scales[..., -1].clone(), log_kept_after)


def kept_at_padding(gate_logits: Tensor, padding: Tensor) -> Tensor:
    """gate_logits (B, H, N) with gates of 1 at padding (B, N)."""
    # Not infinity, of whose negative torch_xla 2.9 takes the logarithm of the sigmoid for NaN.
    return gate_logits.masked_fill(padding.unsqueeze(1), torch.finfo(gate_logits.dtype).max)


def log_kept_between(log_keep: Tensor) -> Tensor:
    """The sum of log_keep after s up to t for s ≤ t and −∞ elsewhere, (…, T, T) of (…, T).

    Each sum runs over those entries alone: the difference of two long sums would lose digits.
    """
    length = log_keep.size(-1)
    future = torch.ones(length, length, dtype=torch.bool, device=log_keep.device).triu(1)
    sums = log_keep.unsqueeze(-1).expand(*log_keep.shape, length).tril(-1).cumsum(-2)
    return sums.masked_fill(future, float("-inf"))


def log_kept_to_end(log_keep: Tensor) -> Tensor:
    """The sum of log_keep after s up to the last position, (…, T)."""
    later = F.pad(log_keep[..., 1:], (0, 1))
    return later.flip(-1).cumsum(-1).flip(-1)


def chunked(x: Tensor, num_chunks: int) -> Tensor:
    """(B, H, N, …) → (B, H, chunks, C, …) with chunks of equal length, the last one filled up with zeros."""
    chunk_length = max(1, -(-x.size(2) // num_chunks))
    return extended(x, num_chunks * chunk_length).unflatten(2, (num_chunks, chunk_length))


def extended(x: Tensor, length: int) -> Tensor:
    """x (B, H, N, …) with zeros for the positions from N up to the length."""
    missing = length - x.size(2)
    if not missing:
        return x
    return torch.cat([x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])], dim=2)


def sums_between_chunks(
    phi_k: Tensor,
    v: Tensor,
    log_keep: Optional[Tensor],
    before: Optional[Tuple[Tensor, Tensor]],
    rarely_less: bool = False,
) -> Tuple[Tensor, Tensor]:
    """S and z before each chunk and after the last: (B, H, chunks + 1, F, d) and (B, H, chunks + 1, F).

    phi_k (B, H, chunks, C, F) with `add` in it, v (B, H, chunks, C, d), log_keep (B, H, chunks, C);
    before: S and z before the first chunk, zeros if None. rarely_less: as long as all of the sums is kept, they are
    those without log_keep to the last bit.
    """
    if log_keep is not None:
        phi_k = phi_k * log_kept_to_end(log_keep).exp().unsqueeze(-1)
    kv, ksum = phi_k.transpose(-1, -2) @ v, phi_k.sum(-2)
    if before is None:
        before = torch.zeros_like(kv[:, :, 0]), torch.zeros_like(ksum[:, :, 0])
    kv = torch.cat([before[0].unsqueeze(2), kv], dim=2)
    ksum = torch.cat([before[1].unsqueeze(2), ksum], dim=2)
    if log_keep is None:
        return kv.cumsum(2), ksum.cumsum(2)
    kept = log_kept_between(F.pad(log_keep.sum(-1), (1, 0))).exp()
    sums = (kept @ kv.flatten(-2)).view_as(kv), kept @ ksum
    if not rarely_less:
        return sums
    whole = kept.eq(torch.ones_like(kept).tril()).all(-1)
    return tuple(
        torch.where(whole.reshape(*whole.shape, *[1] * (x.dim() - 3)), x.cumsum(2), gated)
        for x, gated in zip((kv, ksum), sums)
    )
