"""The kernels that feature maps estimate, exactly: x (…, N, d) and y (…, M, d) → (…, N, M).

Their inputs are those of the maps: already scaled to unit length where that is wanted, and multiplied by σ.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def half_squared_norm(x: Tensor) -> Tensor:
    """‖x‖²/2: (…, d) → (…)"""
    return x.square().sum(-1) / 2


def gaussian_kernel(x: Tensor, y: Tensor) -> Tensor:
    """exp(−‖x − y‖²/2) (eq. 3), estimated by `gaussian` and by `cosine`."""
    exponent = x @ y.transpose(-1, -2)
    exponent = exponent - half_squared_norm(x).unsqueeze(-1) - half_squared_norm(y).unsqueeze(-2)
    return exponent.exp()


def exponential_kernel(x: Tensor, y: Tensor) -> Tensor:
    """exp(x·y), softmax's own kernel, estimated by `positive`."""
    return log_exponential_kernel(x, y).exp()


def log_exponential_kernel(x: Tensor, y: Tensor) -> Tensor:
    """x·y, the logarithm of `exponential_kernel`, which is too large for a number where x and y are long."""
    return x @ y.transpose(-1, -2)


def arccos_kernel(x: Tensor, y: Tensor) -> Tensor:
    """‖x‖‖y‖ (sin θ + (π − θ) cos θ) / 2π with θ the angle between x and y (§3.3), estimated by `arccos`."""
    cosine = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).transpose(-1, -2)
    lengths = x.norm(dim=-1).unsqueeze(-1) * y.norm(dim=-1).unsqueeze(-2)
    return lengths * _OfAngle.apply(cosine) / (2 * math.pi)


class _OfAngle(torch.autograd.Function):
    """sin θ + (π − θ) cos θ as a function of cos θ: its derivative π − θ is finite where that of θ is not."""

    @staticmethod
    def forward(context, cosine):
        # The input itself: what is made here would be a constant for the derivatives of `backward`.
        context.save_for_backward(cosine)
        cosine = cosine.clamp(-1, 1)
        return (1 - cosine.square()).sqrt() + (math.pi - cosine.acos()) * cosine

    @staticmethod
    def backward(context, gradient):
        (cosine,) = context.saved_tensors
        return gradient * (math.pi - cosine.clamp(-1, 1).acos())
