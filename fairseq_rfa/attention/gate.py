"""The projection of a gate, one scalar for each head: g_t = sigmoid(w_g·x_t + b_g)."""

from typing import Optional

from torch import Tensor, nn

from ..functional.recurrence import kept_at_padding


def gate_projection(embed_dim: int, num_heads: int, bias: float) -> nn.Linear:
    """w_g drawn by Glorot and Bengio, b_g at this bias."""
    projection = nn.Linear(embed_dim, num_heads)
    nn.init.xavier_uniform_(projection.weight)
    nn.init.constant_(projection.bias, bias)
    return projection


def logits_of(projection: nn.Module, x: Tensor, kept: Optional[Tensor]) -> Tensor:
    """w_g·x + b_g of x (N, B, embed_dim), (B, H, N); so great that the gate is 1 where `kept` (B, N) is True."""
    logits = projection(x).permute(1, 2, 0)
    return logits if kept is None else kept_at_padding(logits, kept)
