"""Attention with the kernel that random features estimate: what endlessly many directions would give."""

import math
from typing import Optional

import torch
from torch import Tensor

from ..functional.definition import normalize
from ..functional.kernels import half_squared_norm
from ..functional.precision import full_precision, wide
from .base import RandomFeatureAttention, blank_padding


@full_precision
def exact_attention(
    attention: RandomFeatureAttention, query: Tensor, key: Tensor, padding: Optional[Tensor], causal: bool
) -> Tensor:
    """out_t = Σ_s w_ts v_s / max(Σ_s w_ts, floor) with w_ts = K(q_t, k_s), the kernel of eq. 3 or that of another map.

    It has the projections, σ, floor and scaling of the attention, and no gate. Its time and memory grow with N·M.

    Args:
        attention: of a map that estimates a kernel.
        query: (N, B, embed_dim)
        key: (M, B, kdim); query itself in self-attention, whose queries at padding are blank as well.
        padding: (B, M), True at padding; what stands there changes nothing.
        causal: key is query, and a position sees itself and those before it.

    Returns:
        (N, B, embed_dim), at a position that sees no key through v = 0.
    """
    query, _ = blank_padding(query, padding if attention.self_attention else None)
    key, padding = blank_padding(key, padding)
    q, k, v = (
        wide(attention.split_heads(projection(x)))
        for projection, x in ((attention.q_proj, query), (attention.k_proj, key), (attention.v_proj, key))
    )
    q, k = (attention.feature_map.scale(x, attention.sigma, attention.unnormalized) for x in (q, k))
    hidden = torch.zeros(query.size(0), key.size(0), dtype=torch.bool, device=query.device)
    if causal:
        hidden = torch.ones_like(hidden).triu(1)
    if padding is not None:
        hidden = hidden | padding[:, None, None, :]
    weights = _weights(attention, q, k, hidden)
    out = normalize(weights @ v, weights.sum(-1), attention.floor)
    return attention.join_heads(out, dtype=query.dtype)


def _weights(attention: RandomFeatureAttention, q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
    """(B, H, N, M), where weights can be large beside the greatest that the query sees."""
    feature_map = attention.feature_map
    weights = feature_map.kernel(q, k)
    if feature_map.exponential:
        return _beside_the_greatest(weights, hidden)
    if feature_map.of_difference and attention.unnormalized:
        weights = weights * _beside_the_greatest(half_squared_norm(k).unsqueeze(-2).expand_as(weights), hidden)
    return weights.masked_fill(hidden, 0.0)


def _beside_the_greatest(logarithms: Tensor, hidden: Tensor) -> Tensor:
    """exp(logarithms − the greatest in a row), 0 where hidden and where a row has nothing else."""
    logarithms = logarithms.masked_fill(hidden, -math.inf)
    greatest = logarithms.amax(-1, keepdim=True).clamp(min=torch.finfo(logarithms.dtype).min)
    return (logarithms - greatest).exp()
