"""How far random features are from the kernel that they estimate, and attention through them from exact one.

The letters and shapes are those of `linear_attention`. Features and attention are float32 as in a model; exact
kernels and all comparisons are float64.
"""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional import kernels, linear_attention
from ..functional.definition import SMALLEST_POSITIVE_SUM
from ..functional.encoding import FEATURE_MAPS, Directions
from ..functional.oprf_constants import Observed
from ..functional.random_matrices import draw_phases, draw_pool
from ..functional.unit_length import SMALLEST_NORM

KERNELS = {
    "gaussian": kernels.gaussian_kernel,
    "cosine": kernels.gaussian_kernel,
    "arccos": kernels.arccos_kernel,
    "positive": kernels.exponential_kernel,
    "oprf": kernels.exponential_kernel,
}
"""The maps that estimate a kernel, with the kernel of unit-length inputs times σ."""


class Points(NamedTuple):
    """Queries and keys as they leave their projections; what stands at padding is left out of every number."""

    query: Tensor
    """(B, H, N, d)"""
    key: Tensor
    """(B, H, M, d)"""
    sigma: Tensor
    """(H, 1, d)"""
    query_padding: Optional[Tensor] = None
    """(B, 1, N) bool"""
    key_padding: Optional[Tensor] = None
    """(B, 1, M) bool"""
    unnormalized: bool = False
    """Whether queries and keys keep their lengths (appendix A.4)."""

    def prepared(self, device: torch.device, factor: float) -> "Points":
        """On a device, with σ multiplied by a factor."""
        moved = (x.to(device) if isinstance(x, Tensor) else x for x in self)
        points = Points(*moved)
        return points._replace(sigma=points.sigma * factor)

    def scaled(self) -> Tuple[Tensor, Tensor]:
        """Queries and keys times σ, of unit length or of their own, in float64."""
        query, key = self.query.double(), self.key.double()
        if not self.unnormalized:
            query, key = (F.normalize(x, dim=-1, eps=SMALLEST_NORM) for x in (query, key))
        return query * self.sigma, key * self.sigma

    def pairs(self) -> Tensor:
        """1 for each query and key of which neither is padding, else 0: (B, 1, N, M) in float64."""
        query, key = _kept(self.query, self.query_padding), _kept(self.key, self.key_padding)
        return query.unsqueeze(-1) * key.unsqueeze(-2)


class Matrices(NamedTuple):
    """What attention computes on its way, exactly or estimated, with zeros at padding."""

    kernel: Optional[Tensor]
    """(B, H, N, M); None for uniform attention, which has none"""
    attention: Tensor
    """(B, H, N, M)"""
    output: Tensor
    """(B, H, N, d)"""


class Errors(NamedTuple):
    """Relative Frobenius errors ‖estimate − exact‖ / ‖exact‖ over all of the batch, heads and positions."""

    kernel: Optional[float]
    attention: float
    output: float


def draw_directions(
    name: str, points: Points, num_directions: int, seed: int, orthogonal: bool
) -> Directions:
    """D directions for each head of the points, with the phases or constants of the map."""
    num_heads, _, head_dim = points.sigma.shape
    device, feature_map = points.sigma.device, FEATURE_MAPS[name]
    directions = Directions(draw_pool(num_heads, num_directions, head_dim, seed, orthogonal).to(device))
    if feature_map.phases:
        directions = directions._replace(b=draw_phases(num_heads, num_directions, seed).to(device))
    if feature_map.constants is not None:
        observed = Observed()
        observed.add(*points.scaled(), points.pairs().bool())
        directions = directions._replace(**feature_map.constants(observed.moments())._asdict())
    return directions


def exact(name: str, points: Points, v: Tensor) -> Matrices:
    """The kernel of a map and attention with it, in float64 and without a floor.

    Unnormalized, the Gaussian maps carry factors that make theirs the kernel exp(x·y).
    """
    kernel = KERNELS[name]
    if points.unnormalized and kernel is kernels.gaussian_kernel:
        kernel = kernels.exponential_kernel
    scores = kernel(*points.scaled()) * points.pairs()
    return _attend(scores, v, kernel=scores)


def estimated(
    name: str, points: Points, v: Tensor, directions: Directions, floor: float
) -> Matrices:
    """The same through features, with the attention of `CrossRFA`.

    Args:
        floor: the smallest denominator of maps whose weights can be negative or 0; `positive` and `oprf` have none.
    """
    feature_map = FEATURE_MAPS[name]
    query, key = (
        feature_map.encode(x, points.sigma.squeeze(1), directions, role, padding, points.unnormalized)
        for x, role, padding in (
            (points.query, "query", points.query_padding),
            (points.key, "key", points.key_padding),
        )
    )
    kernel = query.phi.double() @ key.phi.double().transpose(-1, -2)
    phi_k = key.phi
    if key.log_factor is not None:
        log_factor = query.log_factor.unsqueeze(-1).double() + key.log_factor.unsqueeze(-2)
        kernel = kernel * log_factor.exp()
        phi_k = linear_attention.with_factors(phi_k, key.log_factor)
    if not feature_map.has_floor:
        floor = SMALLEST_POSITIVE_SUM
    return Matrices(
        kernel,
        linear_attention.cross_weights(query.phi, phi_k, floor=floor),
        linear_attention.cross(query.phi, phi_k, v, floor=floor),
    )


def uniform(points: Points, v: Tensor) -> Matrices:
    """Attention that gives each key the same weight: what costs nothing."""
    pairs = points.pairs().expand(-1, points.query.size(1), -1, -1)
    return _attend(pairs, v, kernel=None)


def errors(estimate: Matrices, truth: Matrices) -> Errors:
    """How far each of the matrices is from the truth.

    Raises:
        ValueError: an error is not finite: values are out of the range of float64.
    """
    result = Errors(
        *(None if a is None else relative_error(a, b) for a, b in zip(estimate, truth))
    )
    if not all(error is None or error < float("inf") for error in result):
        raise ValueError(
            "a kernel is out of the range of numbers; use a smaller --sigma or other inputs"
        )
    return result


def relative_error(estimate: Tensor, truth: Tensor) -> float:
    """‖estimate − truth‖ / ‖truth‖ with Frobenius norms over all entries."""
    truth = truth.double()
    return float((estimate.double() - truth).norm() / truth.norm())


def _attend(scores: Tensor, v: Tensor, kernel: Optional[Tensor]) -> Matrices:
    """Rows of scores (B, H, N, M) divided by their sums; rows of zeros stay zeros."""
    weights = linear_attention.normalize(scores, scores.sum(-1), torch.finfo(scores.dtype).tiny)
    return Matrices(kernel, weights, weights @ v.double())


def _kept(x: Tensor, padding: Optional[Tensor]) -> Tensor:
    """1 at positions of x (B, H, T, d) that are no padding and 0 elsewhere: (B, 1, T) in float64."""
    if padding is None:
        return x.new_ones(x.size(0), 1, x.size(2), dtype=torch.float64)
    return (~padding).double()
