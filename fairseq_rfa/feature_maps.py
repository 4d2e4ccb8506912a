"""Feature maps φ: the dot product of two feature vectors estimates a kernel.

No map scales its input: x is already of unit length where that is wanted, and already multiplied by σ.
"""

import torch
from torch import Tensor


def gaussian(x: Tensor, w: Tensor) -> Tensor:
    """Random Fourier features of the Gaussian kernel (eq. 2).

    φ(x) = D^-1/2 [sin(w_1·x), …, sin(w_D·x), cos(w_1·x), …, cos(w_D·x)]

    With the rows of w drawn from N(0, I), φ(x)·φ(y) is an unbiased estimate of exp(−‖x − y‖²/2) (eq. 3).
    A single estimate lies in [−1, 1] and can be negative; φ(x)·φ(x) is 1.

    Args:
        x: (…, T, d)
        w: (…, D, d)

    Returns:
        (…, T, F) with F = 2D.
    """
    projected = x @ w.transpose(-1, -2)
    return torch.cat([projected.sin(), projected.cos()], dim=-1) * w.size(-2) ** -0.5


FEATURE_MAPS = {"gaussian": gaussian}
