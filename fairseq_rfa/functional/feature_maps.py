"""Feature maps φ: the dot product of two feature vectors estimates a kernel.

No map scales its input: x (…, T, d) is already of unit length where that is wanted, and already multiplied by σ.
"""

from typing import Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from .kernels import half_squared_norm
from .sine_and_cosine import SineAndCosine, sine_and_cosine


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
        return SineAndCosine.apply(angles, scale)
    return sine_and_cosine(angles, scale)


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


def oprf(x: Tensor, w: Tensor, a: Union[float, Tensor]) -> Tensor:
    """Optimal positive random features of softmax's kernel (FAVOR++, Likhosherstov et al. 2022, theorem 3.2).

    φ(x) = D^-1/2 (1 − 4A)^{d/4} [exp(A‖w_1‖² + √(1 − 4A) w_1·x − ‖x‖²/2), …, the same of w_D]

    With the rows of w drawn from N(0, I), φ(x)·φ(y) is an unbiased estimate of exp(x·y) for every A ≤ 0. Greater than
    0, and with A < 0 no w makes it large, so its spread is smaller. A = 0 is `positive`; `oprf_constants.best_a` is the
    A of least spread. Of the stabiliser holds what stands at `positive`.

    Args:
        x: (…, T, d)
        w: (…, D, d)
        a: A, at most 0: a number, or (…) as w without its last two dimensions.

    Returns:
        (…, T, F) with F = D.

    Raises:
        ValueError: A is greater than 0 or no number.
    """
    a = torch.as_tensor(a, dtype=x.dtype, device=x.device)
    if not bool((a <= 0).all()):
        raise ValueError(f"A of oprf is {a.max().item():g}; use a number of at most 0, as best_a gives it")
    return oprf_exponents(x, w, a).exp() * w.size(-2) ** -0.5


def oprf_exponents(x: Tensor, w: Tensor, a: Tensor) -> Tensor:
    """A‖w_i‖² + √(1 − 4A) w_i·x − ‖x‖²/2 + (d/4) log(1 − 4A), (…, T, D): the logarithms of `oprf` without D^-1/2."""
    stretch = (1 - 4 * a).unsqueeze(-1)
    of_directions = a.unsqueeze(-1) * w.square().sum(-1) + w.size(-1) / 4 * stretch.log()
    return positive_exponents(x, w * stretch.sqrt().unsqueeze(-1)) + of_directions.unsqueeze(-2)


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


def hedgehog(x: Tensor, weight: Tensor) -> Tensor:
    """Features that are learned and as sharp as softmax (Hedgehog, Zhang et al. 2024, with softmax over all entries).

    φ(x) = softmax over all of [2 weight_1·x, …, 2 weight_D·x, −2 weight_1·x, …, −2 weight_D·x]

    φ(x)·φ(y) is a kernel of its own. Greater than 0 and at most 1, and the entries of a vector sum to 1; softmax is
    its stabiliser. Of an x so long that one entry is nearly 1 the other entries may round to 0.

    Args: x (…, T, d), not of unit length, weight (…, D, d).

    Returns: (…, T, F) with F = 2D.
    """
    logits = project(x, 2 * weight)
    return torch.cat([logits, -logits], dim=-1).softmax(-1)


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
