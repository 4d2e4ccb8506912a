"""Attention with the kernel that random features estimate: what endlessly many directions would give."""

import math

import torch
from torch import nn

from ..attention.base import blank_padding
from ..attention.causal import CausalRFA
from ..functional import linear_attention


class ExactAttention(nn.Module):
    """In the place of an attention through features, with its projections, σ, floor and scaling; it cannot decode
    step by step. Each row of a batch needs a word.

    Args:
        attention: CausalRFA without a gate, or CrossRFA, of a map that estimates a kernel.
    """

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.causal = isinstance(attention, CausalRFA)

    def forward(self, query, key=None, value=None, key_padding_mask=None, **unused):
        """query (N, B, embed_dim), key (M, B, embed_dim) of cross attention → (N, B, embed_dim) and no weights."""
        attention = self.attention
        key, padding = blank_padding(query if self.causal else key, key_padding_mask)
        directions = attention.directions()
        encoded_q = attention.encode(attention.q_proj(query), directions, "query", with_point=True)
        encoded_k = attention.encode(attention.k_proj(key), directions, "key", padding, with_point=True)
        v = attention.split_heads(attention.v_proj(key))
        hidden = torch.zeros(query.size(0), key.size(0), dtype=torch.bool, device=query.device)
        if self.causal:
            hidden = torch.ones_like(hidden).triu(1)
        if padding is not None:
            hidden = hidden | padding[:, None, None, :]
        weights = self._weights(encoded_q, encoded_k, hidden)
        out = linear_attention.normalize(weights @ v, weights.sum(-1), attention.floor)
        return attention.join_heads(out, dtype=query.dtype), None

    def _get_input_buffer(self, incremental_state):
        return {}

    def _weights(self, query, key, hidden):
        """(B, H, N, M), with the factors of keys relative to the greatest that the query sees."""
        feature_map = self.attention.feature_map
        weights = feature_map.kernel(query.point, key.point)
        if key.log_factor is None:
            return weights.masked_fill(hidden, 0.0)
        log_factor = key.log_factor.unsqueeze(-2).masked_fill(hidden, -math.inf)
        if feature_map.exponential:
            logits = weights + log_factor
            return (logits - logits.amax(-1, keepdim=True)).exp()
        return weights * (log_factor - log_factor.amax(-1, keepdim=True)).exp()


def to_the_limit(model):
    """Replace each attention through features in a model's decoder."""
    for layer in model.decoder.layers:
        for name in ("self_attn", "encoder_attn"):
            attention = getattr(layer, name)
            if hasattr(attention, "feature_map"):
                setattr(layer, name, ExactAttention(attention))
    return model
