"""A model in which the kernel itself stands in the place of features."""

from torch import nn

from ..attention.causal import CausalRFA
from ..attention.exact import exact_attention
from ..model.parameters import PLACES


class ExactAttention(nn.Module):
    """`exact_attention` in the place of an attention through features; it cannot decode step by step.

    Args:
        attention: CausalRFA without a gate, CrossRFA or EncoderRFA, of a map that estimates a kernel.
    """

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.causal = isinstance(attention, CausalRFA)

    def forward(self, query, key=None, value=None, key_padding_mask=None, **unused):
        """query (N, B, embed_dim), key (M, B, embed_dim) of cross attention → (N, B, embed_dim) and no weights."""
        key = query if self.attention.self_attention else key
        return exact_attention(self.attention, query, key, key_padding_mask, self.causal), None

    def _get_input_buffer(self, incremental_state):
        return {}


def to_the_limit(model):
    """Replace each attention through features of a model."""
    for side, name in PLACES.values():
        for layer in getattr(model, side).layers:
            attention = getattr(layer, name)
            if hasattr(attention, "feature_map"):
                setattr(layer, name, ExactAttention(attention))
    return model
