"""Feature maps φ: the dot product of two feature vectors estimates a kernel.

No map scales its input: x is already of unit length where that is wanted, and already multiplied by σ.
"""

from typing import Optional

import torch
from torch import Tensor


def gaussian(x: Tensor, w: Tensor, padding: Optional[Tensor] = None) -> Tensor:
    """Random Fourier features of the Gaussian kernel (eq. 2).

    φ(x) = D^-1/2 [sin(w_1·x), …, sin(w_D·x), cos(w_1·x), …, cos(w_D·x)]

    With the rows of w drawn from N(0, I), φ(x)·φ(y) is an unbiased estimate of exp(−‖x − y‖²/2) (eq. 3).
    A single estimate lies in [−1, 1] and can be negative; φ(x)·φ(x) is 1.

    Args:
        x: (…, T, d)
        w: (…, D, d)
        padding: bool, broadcast to (…, T); True gives a vector of zeros where x is finite.

    Returns:
        (…, T, F) with F = 2D.
    """
    scale = torch.tensor(w.size(-2) ** -0.5, dtype=x.dtype, device=x.device)
    if padding is not None:
        scale = scale.where(~padding, 0.0).unsqueeze(-1)
    return _SineAndCosine.apply(_project(x, w), scale)


class _SineAndCosine(torch.autograd.Function):
    """scale · [sin(x), cos(x)]: its derivative is made of its own entries, so only they are kept."""

    @staticmethod
    def forward(context, x, scale):
        features = torch.cat([x.sin(), x.cos()], dim=-1).mul_(scale)
        context.save_for_backward(features)
        return features

    @staticmethod
    def backward(context, gradient):
        (features,) = context.saved_tensors
        sine, cosine = features.chunk(2, dim=-1)
        of_sine, of_cosine = gradient.chunk(2, dim=-1)
        return (of_sine * cosine).addcmul(of_cosine, sine, value=-1), None


def _project(x: Tensor, w: Tensor) -> Tensor:
    """w_i·x: (…, T, d) and (…, D, d) → (…, T, D)"""
    if x.dim() == 4 and w.dim() == 3:
        # One product for each head over all rows of the batch, instead of a copy of w for each row.
        return torch.einsum("bhtd,hfd->bhtf", x, w)
    return x @ w.transpose(-1, -2)


FEATURE_MAPS = {"gaussian": gaussian}
