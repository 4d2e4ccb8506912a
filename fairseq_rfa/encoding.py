"""From queries and keys to what attention computes with: unit length, σ, features, factors, points of the kernel.

x (B, H, T, d) are queries or keys in float32 or wider, sigma (H, d), padding (B, 1, T) or None.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import feature_maps, kernels
from .kernels import half_squared_norm
from .precision import full_precision
from .recurrence import LOWEST

SMALLEST_NORM = 1e-6


class Directions(NamedTuple):
    """What a feature map multiplies with and adds, for each head; None where it has nothing of the kind."""

    w: Optional[Tensor] = None
    """σ ∘ w̃ (eq. 8) or σ ∘ the learned weights, (H, D, d)"""
    b: Optional[Tensor] = None
    """phases or the learned bias, (H, D)"""


class Encoded(NamedTuple):
    """Queries or keys; their feature vectors are exp(log_factor) · phi."""

    phi: Tensor
    """(B, H, T, F)"""
    log_factor: Optional[Tensor]
    """(B, H, T), None where it is 0 throughout; that of a query cancels in attention"""
    point: Optional[Tensor]
    """(B, H, T, p), what the exact kernel takes; None where nobody asked"""


class FeatureMap:
    """How a map encodes. The maps themselves are the functions of `feature_maps`.

    With unnormalized (appendix A.4) nothing is scaled to unit length; what the map then makes of the lengths is
    said in its class.
    """

    source = "pool"
    """Where the directions come from: "pool", "parameters" or None."""
    unit_length = True
    """Whether queries and keys are scaled to unit length unless told not to."""
    phases = False
    """Whether the pool has a phase for each direction."""
    kernel: Optional[Callable[[Tensor, Tensor], Tensor]] = None
    """Of points, what phi(q)·phi(k) estimates; None where the map is its own kernel."""
    exponential = False
    """Whether phi is an exponential: never 0, never negative, and `kernel` is a logarithm."""

    @full_precision
    def encode(
        self,
        x: Tensor,
        sigma: Tensor,
        directions: Directions,
        padding: Optional[Tensor] = None,
        unnormalized: bool = False,
        role: Optional[str] = None,
    ) -> Encoded:
        """With role "query" or "key" also the points of the exact kernel."""
        if self.unit_length and not unnormalized:
            x = _of_unit_length(x)
        phi, log_factor = self.features(x, sigma, directions, padding, unnormalized)
        point = None if role is None else self.point(_scaled(x, sigma), log_factor, role)
        if padding is not None and log_factor is not None:
            log_factor = log_factor.masked_fill(padding, LOWEST)
        return Encoded(phi, log_factor, point)

    def features(
        self,
        x: Tensor,
        sigma: Tensor,
        directions: Directions,
        padding: Optional[Tensor],
        unnormalized: bool,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """phi, zeros at padding, and log_factor."""
        return _blank(self.phi(x, sigma, directions), padding), None

    def phi(self, x: Tensor, sigma: Tensor, directions: Directions) -> Tensor:
        raise NotImplementedError

    def point(self, y: Tensor, log_factor: Optional[Tensor], role: str) -> Tensor:
        """y = σ∘x"""
        return y


class Gaussian(FeatureMap):
    """Unnormalized: each key carries the factor C(k) = exp(‖σ∘k‖²/2), so that weights estimate exp(σ∘q · σ∘k)."""

    kernel = staticmethod(kernels.gaussian_kernel)

    def features(self, x, sigma, directions, padding, unnormalized):
        phi = feature_maps.gaussian(x, directions.w, padding)
        return phi, _log_gaussian_factor(x, sigma) if unnormalized else None


class Cosine(FeatureMap):
    """Unnormalized: as `Gaussian`."""

    kernel = staticmethod(kernels.gaussian_kernel)
    phases = True

    def features(self, x, sigma, directions, padding, unnormalized):
        phi = _blank(feature_maps.cosine(x, *directions), padding)
        return phi, _log_gaussian_factor(x, sigma) if unnormalized else None


class Arccos(FeatureMap):
    """Unnormalized: each key is weighed by its length ‖σ∘k‖ as well."""

    kernel = staticmethod(kernels.arccos_kernel)

    def phi(self, x, sigma, directions):
        return feature_maps.arccos(x, directions.w)


class Elu(FeatureMap):
    source = None
    unit_length = False

    def phi(self, x, sigma, directions):
        return feature_maps.elu(_scaled(x, sigma))


class Positive(FeatureMap):
    """Its factors are the greatest feature of each vector. Unnormalized: weights estimate exp(σ∘q · σ∘k); from
    lengths ‖σ∘k‖ of about 15 on what is left of them can be too small for float32, and outputs then tend to 0.
    """

    exponential = True

    @staticmethod
    def kernel(query, key):
        return query @ key.transpose(-1, -2)

    def features(self, x, sigma, directions, padding, unnormalized):
        exponents = feature_maps.positive_exponents(x, directions.w, _scaled(x, sigma))
        log_factor = exponents.detach().amax(-1)
        phi = (exponents - log_factor.unsqueeze(-1)).exp() * exponents.size(-1) ** -0.5
        return _blank(phi, padding), log_factor

    def point(self, y, log_factor, role):
        """Such that the product of two points is the logarithm of what phi(q)·phi(k) estimates."""
        ones = torch.ones_like(log_factor)
        further = (ones, -log_factor) if role == "query" else (-log_factor, ones)
        return torch.cat([y, torch.stack(further, dim=-1)], dim=-1)


class Learned(FeatureMap):
    """Unnormalized: as Kasai et al. have it."""

    source = "parameters"

    def phi(self, x, sigma, directions):
        return feature_maps.learned(x, *directions)


def _of_unit_length(x: Tensor) -> Tensor:
    """x (…, d) scaled to length 1; what is shorter than SMALLEST_NORM by its inverse."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _UnitLength.apply(x)
    return F.normalize(x, dim=-1, eps=SMALLEST_NORM)


class _UnitLength(torch.autograd.Function):
    """Its derivative in the fewest passes over memory."""

    @staticmethod
    def forward(context, x):
        unit, norm = _UnitLength.scale(x)
        context.save_for_backward(x, unit, norm)
        return unit

    @staticmethod
    def scale(x):
        norm = x.norm(dim=-1, keepdim=True)
        return x / norm.clamp_min(SMALLEST_NORM), norm

    @staticmethod
    def backward(context, gradient):
        x, unit, norm = context.saved_tensors
        if torch.is_grad_enabled():
            unit, norm = _UnitLength.scale(x)
        along = (gradient * unit).sum(-1, keepdim=True).masked_fill(norm < SMALLEST_NORM, 0.0)
        return gradient.addcmul(unit, along, value=-1) / norm.clamp_min(SMALLEST_NORM)


def _scaled(x: Tensor, sigma: Tensor) -> Tensor:
    """σ∘x"""
    return x * sigma.unsqueeze(1).to(x.dtype)


def _log_gaussian_factor(x: Tensor, sigma: Tensor) -> Tensor:
    """‖σ∘x‖²/2, the logarithm of C"""
    return half_squared_norm(_scaled(x, sigma))


def _blank(phi: Tensor, padding: Optional[Tensor]) -> Tensor:
    return phi if padding is None else phi.masked_fill(padding.unsqueeze(-1), 0.0)


FEATURE_MAPS = {
    "gaussian": Gaussian(),
    "arccos": Arccos(),
    "elu": Elu(),
    "positive": Positive(),
    "cosine": Cosine(),
    "learned": Learned(),
}
