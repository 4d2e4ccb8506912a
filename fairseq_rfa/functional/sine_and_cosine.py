"""Sines and cosines of the same angles side by side, in few passes over memory."""

import math
from functools import lru_cache

import torch
from torch import Tensor


def sine_and_cosine(angles: Tensor, scale: float) -> Tensor:
    """scale · [sin(angles), cos(angles)]: (…, T, D) → (…, T, 2D)"""
    # In one pass, and in the order of rows that attention needs: sin(a) = cos(a − π/2).
    features = angles.new_empty(*angles.shape[:-1], 2, angles.size(-1))
    torch.add(angles.unsqueeze(-2), _phases(angles.dtype, angles.device), out=features)
    return features.cos_().flatten(-2).mul_(scale)


@lru_cache
def _phases(dtype, device):
    return torch.tensor([[-math.pi / 2], [0.0]], dtype=dtype, device=device)


class SineAndCosine(torch.autograd.Function):
    """scale · [sin(x), cos(x)]: its derivative is made of its own entries, so only they are kept."""

    @staticmethod
    def forward(context, x, scale):
        features = sine_and_cosine(x, scale)
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
