import numpy as np
import pytest
import torch
from helpers import random_generator, random_tensor, unit_vectors
from torch.autograd import gradcheck, gradgradcheck

from fairseq_rfa.feature_maps import gaussian
from fairseq_rfa.random_matrices import draw_pool


def _defined_gaussian(x, w):
    """Eq. 2, one direction after the other."""
    directions = [w[..., i, :] for i in range(w.shape[-2])]
    angles = [np.einsum("...td,...d->...t", x, direction) for direction in directions]
    entries = [np.sin(angle) for angle in angles] + [np.cos(angle) for angle in angles]
    return np.stack(entries, axis=-1) / np.sqrt(len(directions))


shapes = pytest.mark.parametrize(
    "shape_of_x, shape_of_w",
    [
        ((2, 3, 7, 5), (3, 4, 5)),  # one w for each head, shared by the rows of the batch
        ((2, 3, 7, 5), (2, 3, 4, 5)),
        ((2, 3, 7, 5), (1, 4, 5)),
        ((2, 3, 7, 5), (4, 5)),
        ((3, 7, 5), (3, 4, 5)),
        ((3, 7, 5), (4, 5)),
        ((7, 5), (4, 5)),
        ((2, 3, 0, 5), (3, 4, 5)),
        ((2, 3, 1, 1), (3, 1, 1)),
    ],
)


@shapes
def test_gaussian_is_its_definition(shape_of_x, shape_of_w):
    x, w = random_tensor(*shape_of_x), random_tensor(*shape_of_w, seed=2)
    actual = gaussian(x, w)
    expected = torch.from_numpy(_defined_gaussian(x.numpy(), w.numpy()))
    assert actual.shape == (*shape_of_x[:-1], 2 * shape_of_w[-2])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_broadcasting_changes_nothing():
    x, w = random_tensor(2, 3, 7, 5), random_tensor(3, 4, 5, seed=2)
    expected = torch.stack(
        [torch.stack([gaussian(x[b, h], w[h]) for h in range(3)]) for b in range(2)]
    )
    torch.testing.assert_close(gaussian(x, w), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gaussian(x, w.expand(2, 3, 4, 5)), expected, rtol=0, atol=1e-12)


def test_length_of_a_feature_vector_is_one():
    features = gaussian(10 * random_tensor(2, 3, 7, 5), random_tensor(3, 4, 5, seed=2))
    torch.testing.assert_close(
        features.pow(2).sum(-1), torch.ones(2, 3, 7, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_padding_gives_zeros_and_no_gradients():
    x = random_tensor(2, 3, 7, 5).requires_grad_()
    w = random_tensor(3, 4, 5, seed=2).requires_grad_()
    padding = torch.zeros(2, 1, 7, dtype=torch.bool)
    padding[1, :, 2:5] = True
    features = gaussian(x, w, padding)
    kept = ~padding.unsqueeze(-1)
    torch.testing.assert_close(features, gaussian(x, w) * kept, rtol=0, atol=1e-12)
    assert gradcheck(gaussian, (x, w, padding), fast_mode=True)
    features.sum().backward()
    assert not x.grad[1, :, 2:5].any()


def test_inputs_are_left_alone():
    x, w = random_tensor(2, 3, 7, 5), random_tensor(3, 4, 5, seed=2)
    x_before, w_before = x.clone(), w.clone()
    gaussian(x, w)
    assert torch.equal(x, x_before) and torch.equal(w, w_before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_type_of_the_inputs_is_kept(dtype):
    assert gaussian(random_tensor(2, 3).to(dtype), random_tensor(4, 3).to(dtype)).dtype == dtype


@shapes
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_gradients(check, shape_of_x, shape_of_w):
    x = random_tensor(*shape_of_x).requires_grad_()
    w = random_tensor(*shape_of_w, seed=2).requires_grad_()
    assert check(gaussian, (x, w), fast_mode=True)


@pytest.mark.parametrize("of_x, of_w", [(True, False), (False, True)])
def test_gradient_of_one_input(of_x, of_w):
    x = random_tensor(2, 3, 7, 5).requires_grad_(of_x)
    w = random_tensor(3, 4, 5, seed=2).requires_grad_(of_w)
    assert gradcheck(gaussian, (x, w), fast_mode=True)


def _kernel_estimates(x, y, num_matrices, num_directions, orthogonal, seed):
    """φ(x)·φ(y) for each matrix of a pool: (P, pairs)"""
    w = draw_pool(num_matrices, num_directions, x.size(-1), seed, orthogonal).double()
    return (gaussian(x, w) * gaussian(y, w)).sum(-1)


def _kernel(x, y):
    return torch.exp(-(x - y).pow(2).sum(-1) / 2)


def _pairs(count, width, seed):
    generator = random_generator(seed)
    sigma = 0.5 + torch.rand(width, generator=generator, dtype=torch.float64)
    x, y = unit_vectors(2, count, width, generator=generator)
    return sigma * x, sigma * y


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("num_directions", [1, 8, 20])
def test_kernel_estimate_is_unbiased(num_directions, orthogonal):
    x, y = _pairs(10, 8, seed=3)
    estimates = _kernel_estimates(x, y, 5000, num_directions, orthogonal, seed=4)
    error = (estimates.mean(0) - _kernel(x, y)).abs()
    standard_error = estimates.std(0) / len(estimates) ** 0.5
    assert (error < 4 * standard_error).all()


def test_sigma_may_scale_the_directions_instead():
    x, sigma = random_tensor(2, 3, 7, 5), random_tensor(3, 5, seed=2)
    w = random_tensor(3, 4, 5, seed=3)
    torch.testing.assert_close(
        gaussian(x * sigma[:, None], w), gaussian(x, w * sigma[:, None]), rtol=0, atol=1e-12
    )


def test_error_falls_like_the_square_root_of_the_directions():
    x, y = _pairs(10, 8, seed=5)
    sizes = [8, 32, 128, 512]
    errors = [
        (_kernel_estimates(x, y, 300, size, False, seed=size) - _kernel(x, y)).pow(2).mean().sqrt()
        for size in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.1


def test_orthogonal_directions_estimate_better():
    x, y = _pairs(10, 16, seed=6)
    independent, orthogonal = (
        _kernel_estimates(x, y, 2000, 16, kind, seed=7).var(0).mean() for kind in (False, True)
    )
    assert orthogonal < independent
