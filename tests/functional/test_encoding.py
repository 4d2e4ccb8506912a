"""Scaling to unit length and by σ: the same as torch's, and its derivatives."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_rfa.functional.encoding import SMALLEST_NORM, _unit_length_scaled
from helpers import largest_difference, random_tensor


def definition(x, sigma):
    return sigma[:, None] * F.normalize(x, dim=-1, eps=SMALLEST_NORM)


def vectors():
    """(B, H, T, d) of usual length, near the smallest and below it, and 0; σ (H, d) of both signs and 0."""
    x, sigma = random_tensor(2, 3, 6, 5), random_tensor(3, 5, seed=3)
    scales = torch.tensor([1.0, 100.0, 10 * SMALLEST_NORM, 0.01 * SMALLEST_NORM, 1e-20, 0.0], dtype=x.dtype)
    x = F.normalize(x, dim=-1) * scales[:, None]
    sigma[0, 0] = 0.0
    return x.requires_grad_(), sigma.requires_grad_()


def test_equals_torch_with_gradients():
    inputs = vectors()
    weights = random_tensor(2, 3, 6, 5, seed=2)
    expected, actual = definition(*inputs), _unit_length_scaled(*inputs)
    assert largest_difference(actual, expected) < 1e-12
    of_expected, of_actual = (torch.autograd.grad((out * weights).sum(), inputs) for out in (expected, actual))
    # Up to 1 / SMALLEST_NORM.
    torch.testing.assert_close(of_actual, of_expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("of_x, of_sigma", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_derivatives_are_those_of_the_definition(check, of_x, of_sigma):
    x = (random_tensor(2, 3, 2, 4) + 0.5).requires_grad_(of_x)
    sigma = random_tensor(3, 4, seed=2).requires_grad_(of_sigma)
    assert check(_unit_length_scaled, (x, sigma))


def test_nothing_is_kept_without_gradients():
    x, sigma = vectors()
    with torch.no_grad():
        assert torch.equal(_unit_length_scaled(x, sigma), F.normalize(x, dim=-1, eps=SMALLEST_NORM) * sigma[:, None])
