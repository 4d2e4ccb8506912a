"""From queries and keys to what attention computes with: unit length, σ, features, factors, points of the kernel.

x (B, H, T, d) are queries or keys in float32 or wider, sigma (H, d), padding (B, 1, T) or None.
"""

from typing import Callable, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import feature_maps, kernels
from .kernels import half_squared_norm
from .oprf_constants import Constants, Moments, best_a, best_constants
from .precision import full_precision
from .recurrence import LOWEST
from .unit_length import scaled, unit_length_scaled


class Directions(NamedTuple):
    """What a feature map multiplies with and adds, for each head; None where it has nothing of the kind."""

    w: Optional[Tensor] = None
    """w̃ (eq. 8) or the learned weights, (H, D, d)"""
    b: Optional[Tensor] = None
    """phases or the learned bias, (H, D)"""
    a: Optional[Tensor] = None
    """A of `feature_maps.oprf`, (H,)"""
    psi: Optional[Tensor] = None
    """ψ (H, d): queries are multiplied by it and keys divided, which leaves q·k as it is"""


class Encoded(NamedTuple):
    """Queries or keys; their feature vectors are exp(log_factor) · phi."""

    phi: Tensor
    """(B, H, T, F), zeros at padding"""
    log_factor: Optional[Tensor] = None
    """(B, H, T), None where it is 0 throughout; that of a query cancels in attention"""
    point: Optional[Tensor] = None
    """(B, H, T, p), what the exact kernel takes; None where nobody asked"""


class FeatureMap:
    """How a map encodes: a new one needs `features` and the facts below that are not as here.

    The maps themselves are the functions of `feature_maps`, and take y = σ∘x with x of unit length: (σ∘w̃)·x of eq. 8
    is w̃·y, and a product with w̃, which is not trained, has a gradient less. With unnormalized (appendix A.4) nothing
    is scaled to unit length; what a map then makes of the lengths is said in its class.
    """

    source: Optional[str] = "pool"
    """Where w̃ comes from: "pool", "parameters", which start from the pool, or None."""
    parameters: Dict[str, str] = {}
    """What attention calls the parameters of the map, by their names in `Directions`."""
    constants: Optional[Callable[[Moments], Constants]] = None
    """Where the parameters are constants that no training changes: what they are for given queries and keys, by their
    names in `Directions`."""
    square = False
    """Whether there are d directions unless told otherwise."""
    unit_length = True
    """Whether queries and keys are scaled to unit length unless told not to."""
    phases = False
    """Whether the pool has a phase for each direction."""
    kernel: Optional[Callable[[Tensor, Tensor], Tensor]] = None
    """Of points, what phi(q)·phi(k) estimates; None where the map is its own kernel."""
    of_difference = False
    """Whether the kernel is exp(−‖q − k‖²/2): unnormalized, each key carries the factor C(k) = exp(‖σ∘k‖²/2), so that
    weights estimate exp(σ∘q · σ∘k)."""
    exponential = False
    """Whether phi is an exponential: never 0, never negative, and `kernel` is the logarithm of exp(q·k), of which
    `features` has taken the factors out."""
    has_floor = True
    """Whether a denominator can be too small: where entries can be negative, or all of them 0."""

    def features(self, y: Tensor, directions: Directions) -> Tuple[Tensor, Optional[Tensor]]:
        """phi (B, H, T, F) and the logarithm of its factor (B, H, T), None for none, of y (B, H, T, d)."""
        raise NotImplementedError

    def start(self, matrices: Optional[Tensor], sigma: Tensor, unnormalized: bool) -> Dict[str, Tensor]:
        """Where the parameters start, by their names in `Directions`.

        Args:
            matrices: rows of the pool (H, D, d); None without a pool.
            sigma: where σ starts, (H, d).
        """
        return {}

    def scale(self, x: Tensor, sigma: Tensor, unnormalized: bool = False) -> Tensor:
        """y = σ∘x, x of unit length where the map and the options say so."""
        scale = unit_length_scaled if self.unit_length and not unnormalized else scaled
        return scale(x, sigma.to(x.dtype))

    @full_precision
    def encode(
        self,
        x: Tensor,
        sigma: Tensor,
        directions: Directions,
        role: str,
        padding: Optional[Tensor] = None,
        unnormalized: bool = False,
        with_point: bool = False,
    ) -> Encoded:
        """
        Args:
            role: "query", "key", or "both" where the directions have no ψ.
            with_point: the points of the exact kernel as well, of a query or a key.
        """
        y = self.scale(x, sigma, unnormalized)
        if directions.psi is not None:
            psi = directions.psi.unsqueeze(1)
            y = y * psi if role == "query" else y / psi
        phi, log_factor = self.features(y, directions)
        if self.of_difference and unnormalized:
            log_factor = half_squared_norm(y)
        point = y if with_point else None
        if with_point and self.exponential:
            point = _with_factor(y, log_factor, role)
        if padding is not None:
            fill = phi.masked_fill if phi.requires_grad else phi.masked_fill_
            phi = fill(padding.unsqueeze(-1), 0.0)
            log_factor = None if log_factor is None else log_factor.masked_fill(padding, LOWEST)
        return Encoded(phi, log_factor, point)


class Gaussian(FeatureMap):
    kernel = staticmethod(kernels.gaussian_kernel)
    of_difference = True

    def features(self, y, directions):
        return feature_maps.gaussian(y, directions.w), None


class Cosine(FeatureMap):
    kernel = staticmethod(kernels.gaussian_kernel)
    of_difference = True
    phases = True

    def features(self, y, directions):
        return feature_maps.cosine(y, directions.w, directions.b), None


class Arccos(FeatureMap):
    """Unnormalized: each key is weighed by its length ‖σ∘k‖ as well."""

    kernel = staticmethod(kernels.arccos_kernel)

    def features(self, y, directions):
        return feature_maps.arccos(y, directions.w), None


class Elu(FeatureMap):
    source = None
    unit_length = False

    def features(self, y, directions):
        return feature_maps.elu(y), None


class Positive(FeatureMap):
    """Its factors are the greatest feature of each vector. Unnormalized: weights estimate exp(σ∘q · σ∘k); from
    lengths ‖σ∘k‖ of about 15 on what is left of them can be too small for float32, and outputs then tend to 0.
    """

    kernel = staticmethod(kernels.log_exponential_kernel)
    exponential = True
    has_floor = False

    def exponents(self, y, directions):
        return feature_maps.positive_exponents(y, directions.w)

    def features(self, y, directions):
        exponents = self.exponents(y, directions)
        log_factor = exponents.detach().amax(-1)
        return (exponents - log_factor.unsqueeze(-1)).exp() * exponents.size(-1) ** -0.5, log_factor


class Oprf(Positive):
    """As `Positive`. A and ψ are no more than a smaller spread, whatever their values: they start from what lengths
    of queries and keys say before there are any data, and `transfer` fits them.
    """

    parameters = {"a": "oprf_a", "psi": "oprf_psi"}
    constants = staticmethod(best_constants)

    def start(self, matrices, sigma, unnormalized):
        # Of independent queries and keys the mean of ‖q + k‖² is that of ‖q‖² + ‖k‖²; entries that are not scaled are
        # taken to have variance 1.
        square = sigma.square()
        mean_square = 2 * (square.sum(-1) if unnormalized else square.mean(-1))
        return {"a": best_a(mean_square, sigma.size(-1)), "psi": torch.ones_like(sigma)}

    def exponents(self, y, directions):
        return feature_maps.oprf_exponents(y, directions.w, directions.a)


class Learned(FeatureMap):
    """Unnormalized: as Kasai et al. have it."""

    source = "parameters"
    parameters = {"w": "feature_weight", "b": "feature_bias"}

    def start(self, matrices, sigma, unnormalized):
        return {"w": matrices * matrices.size(1) ** -0.5, "b": matrices.new_zeros(matrices.shape[:2])}

    def features(self, y, directions):
        return feature_maps.learned(y, directions.w, directions.b), None


class Hedgehog(FeatureMap):
    source = "parameters"
    parameters = {"w": "hedgehog_weight"}
    square = True
    unit_length = False
    has_floor = False

    def start(self, matrices, sigma, unnormalized):
        """The identity, and beside it, where there are more than d directions, rows of the pool."""
        num_directions, head_dim = matrices.shape[1:]
        weight = matrices * head_dim**-0.5
        rows = min(num_directions, head_dim)
        weight[:, :rows] = torch.eye(head_dim)[:rows]
        return {"w": weight}

    def features(self, y, directions):
        return feature_maps.hedgehog(y, directions.w), None


def _with_factor(y: Tensor, log_factor: Tensor, role: str) -> Tensor:
    """Points (B, H, T, d + 2): the product of a query's and a key's is y_q·y_k without the factors of both."""
    ones = torch.ones_like(log_factor)
    further = (ones, -log_factor) if role == "query" else (-log_factor, ones)
    return torch.cat([y, torch.stack(further, dim=-1)], dim=-1)


FEATURE_MAPS = {
    "gaussian": Gaussian(),
    "arccos": Arccos(),
    "elu": Elu(),
    "positive": Positive(),
    "oprf": Oprf(),
    "cosine": Cosine(),
    "learned": Learned(),
    "hedgehog": Hedgehog(),
}
