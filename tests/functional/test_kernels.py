"""The exact kernels: independent formulas, and gradients where the angle has none."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from fairseq_rfa.functional.kernels import (
    arccos_kernel,
    exponential_kernel,
    gaussian_kernel,
    half_squared_norm,
)
from helpers import random_tensor


def _gaussian(x, y):
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y)) / 2)


def _exponential(x, y):
    return math.exp(sum(a * b for a, b in zip(x, y)))


def _arccos(x, y):
    """E ReLU(w·x) ReLU(w·y) = ‖x‖‖y‖ (sin θ + (π − θ) cos θ) / 2π"""
    lengths = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
    if lengths == 0:
        return 0.0
    cosine = max(-1.0, min(1.0, sum(a * b for a, b in zip(x, y)) / lengths))
    angle = math.acos(cosine)
    return lengths * (math.sin(angle) + (math.pi - angle) * cosine) / (2 * math.pi)


KERNELS = [
    (gaussian_kernel, _gaussian),
    (exponential_kernel, _exponential),
    (arccos_kernel, _arccos),
]
each_kernel = pytest.mark.parametrize("kernel, formula", KERNELS)


@each_kernel
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_kernel_is_its_formula_for_each_pair(kernel, formula, shape):
    x, y = random_tensor(*shape, 4, 5), random_tensor(*shape, 6, 5, seed=2)
    actual = kernel(x, y)
    assert actual.shape == (*shape, 4, 6)
    for index in np.ndindex(*actual.shape):
        *first, n, m = index
        expected = formula(x[(*first, n)].tolist(), y[(*first, m)].tolist())
        assert abs(actual[index] - expected) < 1e-10 * max(1, expected)


@each_kernel
def test_gradients(kernel, formula):
    x, y = random_tensor(2, 4, 5).requires_grad_(), random_tensor(2, 3, 5, seed=2).requires_grad_()
    assert gradcheck(kernel, (x, y))


def test_half_squared_norm():
    assert half_squared_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == [12.5, 0.0]


@pytest.mark.parametrize("length", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arccos_of_equal_and_opposite_vectors(length, dtype):
    """1/2 and 0 for unit vectors, and gradients y/2 and 0: those of the limit."""
    x = random_tensor(6, 5)
    x = (length * x / x.norm(dim=-1, keepdim=True)).to(dtype)
    # cos θ is known to one rounding, and 1 − cos θ is as θ²/2: half of the digits.
    tolerance = dict(rtol=0, atol=4 * torch.finfo(dtype).eps ** 0.5 * max(length, length**2))
    for sign in (1, -1):
        one, two = x.clone().requires_grad_(), (sign * x).requires_grad_()
        pairs = arccos_kernel(one, two).diagonal()
        expected = torch.full_like(pairs, length**2 / 2 if sign == 1 else 0)
        torch.testing.assert_close(pairs, expected, **tolerance)
        pairs.sum().backward()
        for this, other in ((one, two), (two, one)):
            expected = other / 2 if sign == 1 else torch.zeros_like(other)
            torch.testing.assert_close(this.grad, expected.detach(), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arccos_of_zero_vectors(dtype):
    x = random_tensor(3, 5, dtype=dtype)
    zero, y = torch.zeros(2, 5, dtype=dtype, requires_grad=True), x.requires_grad_()
    for one, two in ((zero, y), (y, zero), (zero, zero)):
        values = arccos_kernel(one, two)
        assert not values.any()
        for gradient in torch.autograd.grad(values.sum(), {one, two}):
            assert gradient.isfinite().all()


def test_arccos_stays_within_its_range():
    """Rounding takes the cosine of parallel vectors beyond 1."""
    x = random_tensor(50, 7, dtype=torch.float32)
    x = x / x.norm(dim=-1, keepdim=True)
    values = arccos_kernel(x, 3 * x) / 3
    assert values.isfinite().all()
    assert values.min() >= 0 and values.max() < 0.5 + 1e-6


@pytest.mark.parametrize("kernel", [gaussian_kernel, exponential_kernel, arccos_kernel])
def test_second_derivatives(kernel):
    x, y = (random_tensor(2, 3, 4, seed=seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradgradcheck(kernel, (x, y))
