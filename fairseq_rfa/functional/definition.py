"""The definition of attention through features: slow, obvious, and what the fast forms must equal.

The letters and shapes are those of `linear_attention`.
"""

from typing import Callable, Optional, Tuple

import torch
from torch import Tensor

Observe = Optional[Callable[[Tensor], None]]
"""Called with which denominators (B, H, N) the floor replaces, True at those, outside of gradients."""

DENOMINATOR_FLOOR = 0.1
SMALLEST_POSITIVE_SUM = 1e-30
"""The floor of weights that are never negative and kept in range: it only keeps gradients finite."""


def normalize(
    numerator: Tensor, denominator: Tensor, floor: float, observe: Observe = None
) -> Tensor:
    """numerator (…, d) / max(denominator (…), floor): the one normaliser of every path.

    Features can make a denominator small or negative. The floor, greater than 0, bounds the output by
    Σ|φ(q)·φ(k)| · max|v| / floor.
    """
    if observe is not None:
        observe(denominator.detach() <= floor)
    return numerator / denominator.clamp(min=floor).unsqueeze(-1)


def mask_keys(phi_k: Tensor, v: Tensor, padding: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """Zeros at padding, before anything is multiplied: a later mask would leave NaN in the gradients."""
    if padding is None:
        return phi_k, v
    padding = padding[:, None, :, None]
    return phi_k.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)


def reference_causal(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    gate_logits: Optional[Tensor] = None,
    padding: Optional[Tensor] = None,
    floor: float = DENOMINATOR_FLOOR,
    sentence_gate: bool = False,
) -> Tensor:
    """The definition of causal attention (eq. 6, and eq. 7 with a gate), one position after the other.

    S_t = g_t S_{t−1} + (1−g_t) φ(k_t) ⊗ v_t and z_t likewise, with g_t = sigmoid(gate_logits_t);
    without a gate both factors are 1. out_t = φ(q_t)ᵀS_t / max(φ(q_t)·z_t, floor).

    With a sentence gate S_t = g_{t−1} S_{t−1} + φ(k_t) ⊗ v_t and z_t likewise: once position t has been read, its gate
    multiplies the sums for all that follow. Logits are +∞, or as great, where no sentence ends.
    """
    phi_k, v = mask_keys(phi_k, v, padding)
    if gate_logits is not None and padding is not None:
        gate_logits = gate_logits.masked_fill(padding.unsqueeze(1), float("inf"))
    kv = phi_k.new_zeros(*phi_k.shape[:2], phi_k.size(-1), v.size(-1))
    ksum = phi_k.new_zeros(*phi_k.shape[:2], phi_k.size(-1))
    outputs = []
    for t in range(v.size(2)):
        keep, add = 1.0, 1.0
        if gate_logits is not None and sentence_gate:
            keep = torch.sigmoid(gate_logits[:, :, t - 1, None]) if t else torch.ones_like(ksum[..., :1])
            add = torch.ones_like(keep)
        elif gate_logits is not None:
            gate = torch.sigmoid(gate_logits[:, :, t, None])
            keep, add = gate, 1 - gate
        ksum = keep * ksum + add * phi_k[:, :, t]
        if gate_logits is not None:
            keep, add = keep[..., None], add[..., None]
        kv = keep * kv + add * phi_k[:, :, t, :, None] * v[:, :, t, None, :]
        numerator = torch.einsum("bhf,bhfd->bhd", phi_q[:, :, t], kv)
        denominator = torch.einsum("bhf,bhf->bh", phi_q[:, :, t], ksum)
        outputs.append(normalize(numerator, denominator, floor))
    return torch.stack(outputs, dim=2)


def reference_cross(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    padding: Optional[Tensor] = None,
    floor: float = DENOMINATOR_FLOOR,
) -> Tensor:
    """The definition of cross attention (eq. 5).

    out_t = Σ_j φ(q_t)·φ(k_j) v_j / max(Σ_j φ(q_t)·φ(k_j), floor)
    """
    phi_k, v = mask_keys(phi_k, v, padding)
    scores = torch.einsum("bhnf,bhmf->bhnm", phi_q, phi_k)
    return normalize(torch.einsum("bhnm,bhmd->bhnd", scores, v), scores.sum(-1), floor)


def reference_local_window(
    estimate: Tensor,
    kernel: Tensor,
    v: Tensor,
    window: int,
    gate_logits: Optional[Tensor] = None,
    log_factor: Optional[Tensor] = None,
    padding: Optional[Tensor] = None,
    floor: float = DENOMINATOR_FLOOR,
    sentence_gate: bool = False,
) -> Tensor:
    """The definition of causal attention with factors of keys and with a local window, pair by pair.

    out_t = Σ_s w_ts v_s / max(Σ_s w_ts, floor) over s ≤ t without padding, with
    w_ts = (kernel_ts if s is one of the `window` newest keys up to t, else estimate_ts)
    · (1 − g_s) g_{s+1} … g_t · exp(log_factor_s − the greatest log_factor up to t); with a sentence gate
    g_s … g_{t−1} stands in place of the factors of gates.

    Args:
        estimate, kernel: phi(q_t)·phi(k_s) and the kernel of q_t and k_s, (B, H, N, N).
        log_factor: (B, H, N)
    """
    batch, heads, length, _ = v.shape
    kept = v.new_ones(batch, length, dtype=torch.bool) if padding is None else ~padding
    v = v.masked_fill(~kept[:, None, :, None], 0.0)
    outputs = []
    for t in range(length):
        numerator, denominator = v.new_zeros(batch, heads, v.size(-1)), v.new_zeros(batch, heads)
        if log_factor is not None:
            seen = log_factor[:, :, : t + 1].masked_fill(~kept[:, None, : t + 1], float("-inf"))
            greatest = seen.amax(-1)
        for s in range(t + 1):
            newer = kept[:, s + 1 : t + 1].sum(-1)
            weight = torch.where(
                (newer < window)[:, None], kernel[:, :, t, s], estimate[:, :, t, s]
            )
            if gate_logits is not None:
                if not sentence_gate:
                    weight = weight * torch.sigmoid(-gate_logits[:, :, s])
                for r in range(s, t) if sentence_gate else range(s + 1, t + 1):
                    gate = torch.sigmoid(gate_logits[:, :, r])
                    weight = weight * torch.where(kept[:, None, r], gate, torch.ones_like(gate))
            if log_factor is not None:
                weight = weight * (log_factor[:, :, s] - greatest).exp()
            weight = torch.where(kept[:, None, s], weight, torch.zeros_like(weight))
            numerator = numerator + weight.unsqueeze(-1) * v[:, :, s]
            denominator = denominator + weight
        outputs.append(normalize(numerator, denominator, floor))
    return torch.stack(outputs, dim=2)
