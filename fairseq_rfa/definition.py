"""The definition of attention through features: slow, obvious, and what the fast forms must equal.

The letters and shapes are those of `linear_attention`.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

DENOMINATOR_FLOOR = 0.1


def normalize(numerator: Tensor, denominator: Tensor, floor: float) -> Tensor:
    """numerator (…, d) / max(denominator (…), floor): the one normaliser of every path.

    Features can make a denominator small or negative. The floor, greater than 0, bounds the output by
    Σ|φ(q)·φ(k)| · max|v| / floor.
    """
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
) -> Tensor:
    """The definition of causal attention (eq. 6, and eq. 7 with a gate), one position after the other.

    S_t = g_t S_{t−1} + (1−g_t) φ(k_t) ⊗ v_t and z_t likewise, with g_t = sigmoid(gate_logits_t);
    without a gate both factors are 1. out_t = φ(q_t)ᵀS_t / max(φ(q_t)·z_t, floor).
    """
    phi_k, v = mask_keys(phi_k, v, padding)
    if gate_logits is not None and padding is not None:
        gate_logits = gate_logits.masked_fill(padding.unsqueeze(1), float("inf"))
    kv = phi_k.new_zeros(*phi_k.shape[:2], phi_k.size(-1), v.size(-1))
    ksum = phi_k.new_zeros(*phi_k.shape[:2], phi_k.size(-1))
    outputs = []
    for t in range(v.size(2)):
        keep, add = 1.0, 1.0
        if gate_logits is not None:
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
