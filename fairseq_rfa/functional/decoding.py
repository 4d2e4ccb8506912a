"""What a decoding step multiplies: few queries with many keys, or with the sums over them.

Every product is a batch of a tall matrix with few columns. Numerator and denominator come from one product: v carries
a further entry, 1 (`with_one`), and so z stands below Sᵀ. The letters are those of `linear_attention`.
"""

from typing import Optional

import torch.nn.functional as F
from torch import Tensor

from .definition import normalize


def with_one(v: Tensor) -> Tensor:
    """v (…, d) → (…, d + 1), the last entry 1"""
    return F.pad(v, (0, 1), value=1.0)


def read_pairs(phi_q: Tensor, phi_k: Tensor, values: Tensor, log_weight: Optional[Tensor] = None) -> Tensor:
    """Numerators and denominators (B, H, N, d + 1) of few queries phi_q (B, H, N, F) over all keys.

    Args:
        phi_k: (B, H, M, F)
        values: (B, H, M, d + 1), v with a 1.
        log_weight: (B, H, M), the logarithm of what each key counts for; 0 if None.
    """
    query = phi_q.flatten(0, 1).transpose(1, 2)
    weights = phi_k.flatten(0, 1).bmm(query)
    if log_weight is not None:
        weights = weights * log_weight.flatten(0, 1).exp().unsqueeze(-1)
    result = weights.transpose(1, 2).bmm(values.flatten(0, 1))
    return result.unflatten(0, phi_q.shape[:2])


def read_sums(phi_q: Tensor, sums: Tensor) -> Tensor:
    """The same over the keys of sums (B, H, d + 1, F), which are Sᵀ and below it z."""
    result = sums.flatten(0, 1).bmm(phi_q.flatten(0, 1).transpose(1, 2))
    return result.transpose(1, 2).unflatten(0, phi_q.shape[:2])


def divide(result: Tensor, floor: float) -> Tensor:
    """Numerators and denominators (B, H, N, d + 1) → (B, H, N, d), by the one normaliser."""
    return normalize(result[..., :-1], result[..., -1], floor)
