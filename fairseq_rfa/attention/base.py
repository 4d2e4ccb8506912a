"""What the attentions of all places share: projections, directions, features, the state between calls."""

from functools import partial
from itertools import repeat
from typing import Dict, Optional, Tuple, Type, TypeVar

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..functional.definition import DENOMINATOR_FLOOR, SMALLEST_POSITIVE_SUM, Observe
from ..functional.encoding import FEATURE_MAPS, Directions, Encoded
from ..functional.precision import wide
from ..functional.random_matrices import MatrixPool
from .observations import Observations

GROUP_ENTRIES = 2**22
"""So many entries of feature vectors are made together: as float32, 16 MB stay in the cache until they are used."""

IncrementalState = Optional[Dict[str, Dict[str, Optional[Tensor]]]]
State = TypeVar("State", bound=dict)


class RandomFeatureAttention(MultiheadAttention):
    """fairseq's projections and incremental state, with features instead of a softmax.

    Args:
        pool: the random matrices (P, D, d), shared by all layers; None for a map that needs none. A map with
            parameters starts from them.
        layer_index: l; evaluation gives head h the row (l·H + h) mod P of the pool.
        feature_map: a name in `FEATURE_MAPS`.
        unnormalized: queries and keys are not scaled to unit length (appendix A.4).
        sigma_init: where σ (H, d) starts, greater than 0. With unnormalized it counts in units of d^-1/4, so that
            1 is the scale of softmax: exp(σ∘q · σ∘k) = exp(q·k / √d).
        fixed_sigma: σ is not trained.
        fixed_matrices: training uses the matrices of evaluation instead of drawing them.
        exact_updates: so many first updates of a training meet the exact kernel (`exact`) in place of features.
        floor: smallest denominator, greater than 0. Not for the maps `positive`, `oprf` and `hedgehog`, whose
            weights are never negative and kept in range: their own floor, 1e-30, only keeps gradients finite.
        options: those of fairseq's MultiheadAttention.
    """

    place: str
    """Where in a model it stands: "causal", "cross" or "encoder"."""
    observations: Optional[Observations] = None
    """The means of what training does here are taken from this; None where nobody watches."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        pool: Optional[MatrixPool],
        layer_index: int,
        feature_map: str = "gaussian",
        unnormalized: bool = False,
        sigma_init: float = 1.0,
        fixed_sigma: bool = False,
        fixed_matrices: bool = False,
        exact_updates: int = 0,
        floor: float = DENOMINATOR_FLOOR,
        **options,
    ):
        super().__init__(embed_dim, num_heads, **options)
        self.pool = pool
        self.layer_index = layer_index
        self.feature_map = FEATURE_MAPS[feature_map]
        self.unnormalized = unnormalized
        self.fixed_matrices = fixed_matrices
        self.exact_updates = exact_updates
        self.set_num_updates(0)
        self.floor = floor if self.feature_map.has_floor else SMALLEST_POSITIVE_SUM
        if unnormalized:
            sigma_init = sigma_init * self.head_dim**-0.25
        self.sigma = nn.Parameter(
            torch.full((num_heads, self.head_dim), float(sigma_init)), requires_grad=not fixed_sigma
        )
        matrices = None if pool is None else self.evaluation_matrices()
        start = self.feature_map.start(matrices, self.sigma.detach(), unnormalized)
        for kind, name in self.feature_map.parameters.items():
            setattr(self, name, nn.Parameter(start[kind], requires_grad=self.feature_map.constants is None))

    def set_num_updates(self, num_updates: int) -> None:
        """Called by fairseq before each batch of training, after so many updates."""
        self.is_exact_in_training = num_updates < self.exact_updates

    def evaluation_matrices(self) -> Tensor:
        """The w̃ that evaluation uses, (H, D, d)."""
        return self.pool.matrices[self.pool.rows_of_layer(self.layer_index, self.num_heads)]

    def directions(self) -> Directions:
        """w̃ or learned weights in the type of σ, float32 or wider; w̃ is drawn anew at each call in training."""
        dtype = wide(self.sigma).dtype
        parameters = {
            kind: getattr(self, name).to(dtype) for kind, name in self.feature_map.parameters.items()
        }
        if self.feature_map.source != "pool":
            return Directions(**parameters)
        if self.training and not self.fixed_matrices:
            rows = self.pool.draw_rows(self.num_heads)
        else:
            rows = self.pool.rows_of_layer(self.layer_index, self.num_heads)
        phases = self.pool.phases[rows].to(dtype) if self.feature_map.phases else None
        return Directions(self.pool.matrices[rows].to(dtype), phases, **parameters)

    def encode(
        self,
        x: Tensor,
        directions: Directions,
        role: str,
        padding: Optional[Tensor] = None,
        with_point: bool = False,
    ) -> Encoded:
        """Queries or keys (positions, B, embed_dim) as heads and features, (B, H, positions, …).

        Args:
            role: "query", "key", or "both" where the directions have no ψ.
            padding: (B, positions); makes keys there add nothing to any sum.
            with_point: the points of the exact kernel as well.
        """
        return self.encode_heads(self.split_heads(wide(x)), directions, role, padding, with_point)

    def encode_heads(
        self,
        x: Tensor,
        directions: Directions,
        role: str,
        padding: Optional[Tensor] = None,
        with_point: bool = False,
    ) -> Encoded:
        """The same of x (B, H, positions, d) in float32 or wider."""
        if torch.jit.is_tracing() and torch.is_grad_enabled():
            raise ValueError(
                "torch.jit.trace cannot follow the gradients of random feature attention; use it within torch.no_grad()"
            )
        padding = None if padding is None else padding.unsqueeze(1)
        return self.feature_map.encode(
            x, self.sigma, directions, role, padding, self.unnormalized, with_point
        )

    def encode_both(
        self, x: Tensor, directions: Directions, padding: Optional[Tensor], with_point: bool
    ) -> Tuple[Encoded, Encoded]:
        """A query and a key, which are the two positions of x (B, H, 2, d); padding (B, 1) is that of the key."""
        if with_point or directions.psi is not None:
            query, key = x.split(1, dim=2)
            return (
                self.encode_heads(query, directions, "query", with_point=with_point),
                self.encode_heads(key, directions, "key", padding, with_point),
            )
        if padding is not None:
            padding = F.pad(padding, (1, 0))
        phi, log_factor, _ = self.encode_heads(x, directions, "both", padding)
        phi_q, phi_k = phi.split(1, dim=2)
        return Encoded(phi_q), Encoded(phi_k, None if log_factor is None else log_factor[:, :, 1:])

    def split_heads(self, x: Tensor) -> Tensor:
        """The heads of x (positions, B, embed_dim), (B, H, positions, d)."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3)

    def join_heads(self, *parts: Tensor, dtype: torch.dtype) -> Tensor:
        """Parts of the rows (…, H, positions, d) → (positions, B, embed_dim), through the output projection.

        Args:
            dtype: of the model's layers, which the projection takes; its own weight may be quantised.
        """
        rows = [part.permute(2, 0, 1, 3) for part in parts]
        # One part may lie in memory as it must, and a copy of it would cost its gradient another.
        x = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
        return self.out_proj(x.flatten(2).to(dtype))

    def stored_state(self, incremental_state: IncrementalState, kind: Type[State]) -> Optional[State]:
        """What this attention keeps in a search, None before its first call.

        Raises:
            TypeError: somebody put a plain dict of its tensors there.
        """
        state = self._get_input_buffer(incremental_state)
        if state and not isinstance(state, kind):
            raise TypeError(
                f"the decoding state of {type(self).__name__} is a {type(state).__name__} where it must be a "
                f"{kind.__name__}; branch a search with copy.deepcopy(incremental_state)"
            )
        return state or None

    def observer(
        self, gate_logits: Optional[Tensor] = None, padding: Optional[Tensor] = None
    ) -> Observe:
        """What observes a call with these gates and this padding of the queries: None but in a watched training."""
        if self.observations is None or not self.training or not torch.is_grad_enabled():
            return None
        return partial(self.observations.observe, self.sigma, gate_logits, padding)

    def group_size(self, rows: int, positions: int, directions: Directions) -> int:
        """So many rows of a batch at a time that their features, of so many positions in a row, stay in the cache."""
        most = max(1, GROUP_ENTRIES // (max(1, positions) * self._entries(directions)))
        number = max(1, -(-rows // most))
        return max(1, -(-rows // number))

    def segment_length(self, directions: Directions) -> int:
        """So many positions of one row at a time, queries and keys, stay in the cache."""
        return max(1, GROUP_ENTRIES // (2 * self._entries(directions)))

    def __prepare_scriptable__(self):
        """Called by torch.jit.script.

        Raises:
            ValueError
        """
        raise ValueError(
            "torch.jit.script cannot compile random feature attention; use --causal-attention softmax "
            "--cross-attention softmax --encoder-attention softmax, or torch.jit.trace within torch.no_grad()"
        )

    def _entries(self, directions: Directions) -> int:
        """The number of entries of a feature vector of all heads; no map has more than this."""
        width = self.head_dim if directions.w is None else 2 * directions.w.size(1)
        return self.num_heads * width


def in_groups(size: int, *tensors: Tuple[Optional[Tensor], int]):
    """Groups of so many rows, or positions, of the tensors, each given with their dimension; None stays None.

    One split for all groups: a slice for each would cost a whole gradient each. One group is the tensors themselves,
    because a split would copy their gradients.
    """
    if all(x is None or x.size(dim) <= size for x, dim in tensors):
        return iter([tuple(x for x, _ in tensors)])
    return zip(*(repeat(None) if x is None else x.split(size, dim) for x, dim in tensors))


def blank_padding(x: Tensor, padding: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
    """x (positions, B, …) with zeros at padding (B, positions), so that what stands there is never read."""
    if padding is None:
        return x, None
    padding = padding.bool()
    return x.masked_fill(padding.transpose(0, 1).unsqueeze(-1), 0.0), padding
