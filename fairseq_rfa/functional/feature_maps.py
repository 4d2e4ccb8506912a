"""Feature maps φ: the dot product of two feature vectors estimates a kernel.

No map scales its input: x (…, T, d) is already of unit length where that is wanted, and already multiplied by σ.
"""

import math
from functools import lru_cache
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .kernels import half_squared_norm


def gaussian(x: Tensor, w: Tensor) -> Tensor:
    """Random Fourier features of the Gaussian kernel (eq. 2).

    φ(x) = D^-1/2 [sin(w_1·x), …, sin(w_D·x), cos(w_1·x), …, cos(w_D·x)]

    With the rows of w drawn from N(0, I), φ(x)·φ(y) is an unbiased estimate of exp(−‖x − y‖²/2) (eq. 3).
    A single estimate lies in [−1, 1] and can be negative; φ(x)·φ(x) is 1. It needs no stabiliser.

    Args:
        x: (…, T, d)
        w: (…, D, d)

    Returns:
        (…, T, F) with F = 2D.
    """
    angles, scale = project(x, w), w.size(-2) ** -0.5
    if torch.is_grad_enabled() and angles.requires_grad:
        return _SineAndCosine.apply(angles, scale)
    return _sine_and_cosine(angles, scale)


def arccos(x: Tensor, w: Tensor) -> Tensor:
    """Features of the arc-cosine kernel of order 1 (§3.3).

    φ(x) = D^-1/2 [ReLU(w_1·x), …, ReLU(w_D·x)]

    With the rows of w drawn from N(0, I), φ(x)·φ(y) is an unbiased estimate of
    ‖x‖‖y‖ (sin θ + (π − θ) cos θ) / 2π, θ the angle between x and y: 1/2 for equal vectors of unit length and 0
    for opposite ones. Never negative. It grows with the lengths alone, so it needs no stabiliser.

    Args: x (…, T, d), w (…, D, d).

    Returns: (…, T, F) with F = D.
    """
    return F.relu(project(x, w)) * w.size(-2) ** -0.5


def elu(x: Tensor) -> Tensor:
    """Features of linear attention without randomness (Katharopoulos et al. 2020), the paper's baseline.

    φ(x) = elu(x) + 1

    φ(x)·φ(y) estimates no kernel: it is one. Greater than 0, and it grows with the lengths alone, so it needs no
    stabiliser.

    Args: x (…, T, d), not of unit length.

    Returns: (…, T, F) with F = d.
    """
    if x.device.type == "xla":
        return F.relu(x) + x.clamp(max=0).exp()  # the gradient of elu in torch_xla 2.9 is wrong
    return F.elu(x) + 1


def positive(x: Tensor, w: Tensor) -> Tensor:
    """Positive random features of softmax's kernel (FAVOR+, Choromanski et al. 2020).

    φ(x) = D^-1/2 [exp(w_1·x − ‖x‖²/2), …, exp(w_D·x − ‖x‖²/2)]

    With the rows of w drawn from N(0, I), φ(x)·φ(y) is an unbiased estimate of exp(x·y). Greater than 0.
    A float32 feature overflows for w·x − ‖x‖²/2 above 88: attention takes the greatest exponent of each vector
    out of its features (`encoding`).

    Args: x (…, T, d), w (…, D, d).

    Returns: (…, T, F) with F = D.
    """
    return positive_exponents(x, w).exp() * w.size(-2) ** -0.5


def positive_exponents(x: Tensor, w: Tensor) -> Tensor:
    """w_i·x − ‖x‖²/2, (…, T, D): the logarithms of `positive` without D^-1/2."""
    return project(x, w) - half_squared_norm(x).unsqueeze(-1)


def cosine(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The other random Fourier features of the Gaussian kernel (Rahimi and Recht 2007).

    φ(x) = (2/D)^1/2 [cos(w_1·x + b_1), …, cos(w_D·x + b_D)]

    With the rows of w drawn from N(0, I) and b uniformly from [0, 2π), φ(x)·φ(y) is an unbiased estimate of
    exp(−‖x − y‖²/2), with a greater spread than that of `gaussian`. It lies in [−2, 2] and can be negative.

    Args: x (…, T, d), w (…, D, d), b (…, D).

    Returns: (…, T, F) with F = D.
    """
    angles, scale = project(x, w, b), (2 / w.size(-2)) ** 0.5
    if angles.requires_grad:
        return angles.cos() * scale
    return torch.mul(angles.cos_(), scale, out=torch.empty_like(angles, memory_format=torch.contiguous_format))


def learned(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Features that are learned and not random (Kasai et al. 2021).

    φ(x) = [ReLU(weight_1·x + bias_1), …, ReLU(weight_D·x + bias_D)]

    φ(x)·φ(y) is a kernel of its own. Never negative. It grows with the lengths alone, so it needs no stabiliser.

    Args: x (…, T, d), weight (…, D, d), bias (…, D).

    Returns: (…, T, F) with F = D.
    """
    return F.relu(project(x, weight, bias))


def _sine_and_cosine(angles, scale):
    # In one pass, and in the order of rows that attention needs: sin(a) = cos(a − π/2).
    features = angles.new_empty(*angles.shape[:-1], 2, angles.size(-1))
    torch.add(angles.unsqueeze(-2), _phases(angles.dtype, angles.device), out=features)
    return features.cos_().flatten(-2).mul_(scale)


@lru_cache
def _phases(dtype, device):
    return torch.tensor([[-math.pi / 2], [0.0]], dtype=dtype, device=device)


class _SineAndCosine(torch.autograd.Function):
    """scale · [sin(x), cos(x)]: its derivative is made of its own entries, so only they are kept."""

    @staticmethod
    def forward(context, x, scale):
        features = _sine_and_cosine(x, scale)
        context.save_for_backward(features)
        context.layout = x.shape, x.stride()
        return features

    @staticmethod
    def backward(context, gradient):
        (features,) = context.saved_tensors
        sine, cosine = features.chunk(2, dim=-1)
        of_sine, of_cosine = gradient.chunk(2, dim=-1)
        if torch.is_grad_enabled():
            return (of_sine * cosine).addcmul(of_cosine, sine, value=-1), None
        # As x lies in memory, so that what is multiplied with it next need not be copied.
        result = torch.empty_strided(*context.layout, dtype=gradient.dtype, device=gradient.device)
        torch.mul(of_sine, cosine, out=result)
        return result.addcmul_(of_cosine, sine, value=-1), None


def project(x: Tensor, w: Tensor, b: Optional[Tensor] = None) -> Tensor:
    """w_i·x + b_i: (…, T, d), (…, D, d) and (…, D) → (…, T, D)"""
    if x.dim() == 4 and w.dim() == 3 and x.size(1) == w.size(0):
        # One product for each head over all rows of the batch, instead of a copy of w for each row; the rows in
        # the order in which they lie in memory, so that nothing is copied.
        batch_first = x.stride(0) > x.stride(2)
        rows = x.transpose(0, 1) if batch_first else x.permute(1, 2, 0, 3)
        shape = rows.shape[1:3]
        rows, w = rows.flatten(1, 2), w.transpose(1, 2)
        result = rows.bmm(w) if b is None else torch.baddbmm(b.unsqueeze(1), rows, w)
        result = result.unflatten(1, shape)
        return result.transpose(0, 1) if batch_first else result.permute(2, 0, 1, 3)
    result = x @ w.transpose(-1, -2)
    return result if b is None else result + b.unsqueeze(-2)
