"""Scaling to unit length: the same as torch's, and its derivative."""

import torch
import torch.nn.functional as F
from helpers import largest_difference, random_tensor

from fairseq_rfa.encoding import SMALLEST_NORM, _of_unit_length


def vectors():
    """Of usual length, near the smallest and below it, and 0."""
    x = random_tensor(6, 3, 5)
    scales = torch.tensor([1.0, 100.0, 10 * SMALLEST_NORM, 0.01 * SMALLEST_NORM, 1e-20, 0.0], dtype=x.dtype)
    return (F.normalize(x, dim=-1) * scales[:, None, None]).requires_grad_()


def test_equals_torch_with_gradients():
    x = vectors()
    weights = random_tensor(6, 3, 5, seed=2)
    expected = F.normalize(x, dim=-1, eps=SMALLEST_NORM)
    (of_expected,) = torch.autograd.grad((expected * weights).sum(), x)
    actual = _of_unit_length(x)
    (of_actual,) = torch.autograd.grad((actual * weights).sum(), x)
    assert largest_difference(actual, expected) < 1e-12
    # Up to 1 / SMALLEST_NORM.
    torch.testing.assert_close(of_actual, of_expected, rtol=1e-9, atol=1e-9)


def test_derivatives_are_those_of_the_definition():
    x = (random_tensor(2, 3, 4) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(_of_unit_length, x)
    assert torch.autograd.gradgradcheck(_of_unit_length, x)


def test_nothing_is_kept_without_gradients():
    x = vectors()
    with torch.no_grad():
        assert torch.equal(_of_unit_length(x), F.normalize(x, dim=-1, eps=SMALLEST_NORM))
