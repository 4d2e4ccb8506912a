"""What causal and cross attention share: projections, directions, features, the state between calls."""

from typing import Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from .feature_maps import FEATURE_MAPS
from .linear_attention import DENOMINATOR_FLOOR, State
from .random_matrices import MatrixPool

IncrementalState = Optional[Dict[str, Dict[str, Optional[Tensor]]]]
SMALLEST_NORM = 1e-6


class RandomFeatureAttention(MultiheadAttention):
    """fairseq's projections and incremental state, with features instead of a softmax.

    Args:
        pool: the random matrices (P, D, d), shared by all layers.
        layer_index: l; evaluation gives head h the row (l·H + h) mod P of the pool.
        feature_map: a name in `FEATURE_MAPS`.
        sigma_init: where σ (H, d) starts, greater than 0.
        fixed_sigma: σ is not trained.
        fixed_matrices: training uses the matrices of evaluation instead of drawing them.
        floor: smallest denominator, greater than 0.
        options: those of fairseq's MultiheadAttention.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        pool: MatrixPool,
        layer_index: int,
        feature_map: str = "gaussian",
        sigma_init: float = 1.0,
        fixed_sigma: bool = False,
        fixed_matrices: bool = False,
        floor: float = DENOMINATOR_FLOOR,
        **options,
    ):
        super().__init__(embed_dim, num_heads, **options)
        self.pool = pool
        self.layer_index = layer_index
        self.feature_map = FEATURE_MAPS[feature_map]
        self.fixed_matrices = fixed_matrices
        self.floor = floor
        self.sigma = nn.Parameter(
            torch.full((num_heads, self.head_dim), float(sigma_init)), requires_grad=not fixed_sigma
        )

    def evaluation_matrices(self) -> Tensor:
        """The w̃ that evaluation uses, (H, D, d)."""
        return self.pool.of_layer(self.layer_index, self.num_heads)

    def directions(self) -> Tensor:
        """w = σ ∘ w̃ (eq. 8), (H, D, d) in float32 or wider; drawn anew at each call in training."""
        if self.training and not self.fixed_matrices:
            matrices = self.pool.draw(self.num_heads)
        else:
            matrices = self.evaluation_matrices()
        sigma = self.sigma.unsqueeze(1)
        return matrices * sigma.to(torch.promote_types(sigma.dtype, torch.float32))

    def features(self, x: Tensor, directions: Tensor, padding: Optional[Tensor] = None) -> Tensor:
        """φ of queries or keys, scaled to unit length: (positions, B, embed_dim) → (B, H, positions, F).

        padding (B, positions) makes zeros, which add nothing to any sum.
        """
        x = self.split_heads(x).to(directions.dtype)
        padding = None if padding is None else padding.unsqueeze(1)
        with torch.autocast(x.device.type, enabled=False):
            x = F.normalize(x, dim=-1, eps=SMALLEST_NORM)
            return self.feature_map(x, directions, padding)

    def split_heads(self, x: Tensor) -> Tensor:
        """(positions, B, embed_dim) → (B, H, positions, d)"""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def join_heads(self, x: Tensor) -> Tensor:
        """(B, H, positions, d) → (positions, B, embed_dim), through the output projection."""
        x = x.permute(2, 0, 1, 3).flatten(2)
        return self.out_proj(x.to(self.out_proj.weight.dtype))

    def _get_state(self, incremental_state: IncrementalState) -> Optional[State]:
        buffer = self._get_input_buffer(incremental_state)
        return State(buffer["kv"], buffer["ksum"]) if buffer else None

    def _set_state(self, incremental_state: IncrementalState, state: State) -> None:
        self._set_input_buffer(incremental_state, state._asdict())


def blank_padding(x: Tensor, padding: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
    """x (positions, B, …) with zeros at padding (B, positions), so that what stands there is never read."""
    if padding is None:
        return x, None
    padding = padding.bool()
    return x.masked_fill(padding.transpose(0, 1).unsqueeze(-1), 0.0), padding


def reordered(state: State, new_order: Tensor) -> State:
    """Row i becomes the former row new_order[i]; the identity copies nothing."""
    identity = torch.arange(state.ksum.size(0), device=new_order.device)
    if torch.equal(new_order, identity):
        return state
    return State(*(x.index_select(0, new_order) for x in state))
