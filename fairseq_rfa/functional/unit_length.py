"""Queries and keys times σ, of unit length or of their own: x (B, H, T, d), sigma (H, d)."""

from typing import Tuple

import torch
from torch import Tensor

from .feature_maps import project

SMALLEST_NORM = 1e-6


def scaled(x: Tensor, sigma: Tensor) -> Tensor:
    """σ∘x"""
    return x * sigma.unsqueeze(1)


def unit_length_scaled(x: Tensor, sigma: Tensor) -> Tensor:
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
        along = project(of_sigma, sigma).masked_fill(norm < SMALLEST_NORM, 0.0)
        of_x = of_unit.addcmul_(unit, along, value=-1).div_(norm.clamp_min(SMALLEST_NORM))
        return of_x, of_sigma.sum((0, 2))
