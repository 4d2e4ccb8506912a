"""From queries and keys to what attention computes with: unit length, σ, features, factors, points of the kernel.

x (B, H, T, d) are queries or keys in float32 or wider, sigma (H, d), padding (B, 1, T) or None.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import feature_maps, kernels
from .kernels import half_squared_norm
from .precision import full_precision
from .recurrence import LOWEST

SMALLEST_NORM = 1e-6


class Directions(NamedTuple):
    """What a feature map multiplies with and adds, for each head; None where it has nothing of the kind."""

    w: Optional[Tensor] = None
    """w̃ (eq. 8) or the learned weights, (H, D, d)"""
    b: Optional[Tensor] = None
    """phases or the learned bias, (H, D)"""


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
    """Where the directions come from: "pool", "parameters" or None."""
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

    def features(self, y: Tensor, directions: Directions) -> Tuple[Tensor, Optional[Tensor]]:
        """phi (B, H, T, F) and the logarithm of its factor (B, H, T), None for none, of y (B, H, T, d)."""
        raise NotImplementedError

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
        scale = _unit_length_scaled if self.unit_length and not unnormalized else _scaled
        y = scale(x, sigma.to(x.dtype))
        phi, log_factor = self.features(y, directions)
        if self.of_difference and unnormalized:
            log_factor = half_squared_norm(y)
        point = y
        if role is None:
            point = None
        elif self.exponential:
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
        return feature_maps.cosine(y, *directions), None


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

    def features(self, y, directions):
        exponents = feature_maps.positive_exponents(y, directions.w)
        log_factor = exponents.detach().amax(-1)
        return (exponents - log_factor.unsqueeze(-1)).exp() * exponents.size(-1) ** -0.5, log_factor


class Learned(FeatureMap):
    """Unnormalized: as Kasai et al. have it."""

    source = "parameters"

    def features(self, y, directions):
        return feature_maps.learned(y, *directions), None


def _with_factor(y: Tensor, log_factor: Tensor, role: str) -> Tensor:
    """Points (B, H, T, d + 2): the product of a query's and a key's is y_q·y_k without the factors of both."""
    ones = torch.ones_like(log_factor)
    further = (ones, -log_factor) if role == "query" else (-log_factor, ones)
    return torch.cat([y, torch.stack(further, dim=-1)], dim=-1)


def _scaled(x: Tensor, sigma: Tensor) -> Tensor:
    """σ∘x"""
    return x * sigma.unsqueeze(1)


def _unit_length_scaled(x: Tensor, sigma: Tensor) -> Tensor:
    """σ∘x/‖x‖; what is shorter than SMALLEST_NORM counts as being of that length."""
    if torch.is_grad_enabled() and (x.requires_grad or sigma.requires_grad):
        return _UnitLengthScaled.apply(x, sigma)
    return _of_unit_length(x)[0].mul_(sigma.unsqueeze(1))


def _of_unit_length(x: Tensor) -> Tuple[Tensor, Tensor]:
    """x/‖x‖ and ‖x‖, (…, 1), which is at least SMALLEST_NORM in the former."""
    norm = x.norm(dim=-1, keepdim=True)
    return x / norm.clamp_min(SMALLEST_NORM), norm


class _UnitLengthScaled(torch.autograd.Function):
    """Its derivatives in few passes over memory."""

    @staticmethod
    def forward(context, x, sigma):
        unit, norm = _of_unit_length(x)
        context.save_for_backward(x, sigma, unit, norm)
        return unit * sigma.unsqueeze(1)

    @staticmethod
    def backward(context, gradient):
        x, sigma, unit, norm = context.saved_tensors
        if torch.is_grad_enabled():
            unit, norm = _of_unit_length(x)
        sigma = sigma.unsqueeze(1)
        of_sigma = gradient * unit
        of_unit = gradient * sigma
        along = feature_maps.project(of_sigma, sigma).masked_fill(norm < SMALLEST_NORM, 0.0)
        of_x = of_unit.addcmul_(unit, along, value=-1).div_(norm.clamp_min(SMALLEST_NORM))
        return of_x, of_sigma.sum((0, 2))


FEATURE_MAPS = {
    "gaussian": Gaussian(),
    "arccos": Arccos(),
    "elu": Elu(),
    "positive": Positive(),
    "cosine": Cosine(),
    "learned": Learned(),
}
