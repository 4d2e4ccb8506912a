"""Each random map estimates the kernel that it claims: without bias, better with more directions."""

import numpy as np
import pytest
import torch

from fairseq_rfa.functional.feature_maps import arccos, cosine, gaussian, oprf, positive
from fairseq_rfa.functional.oprf_constants import best_a
from fairseq_rfa.functional.random_matrices import draw_phases, draw_pool
from helpers import random_generator, unit_vectors


def _angle(x, y):
    cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    return torch.acos(cosine.clamp(-1, 1))  # rounding goes beyond


def _gaussian(x, y):
    return torch.exp(-(x - y).pow(2).sum(-1) / 2)


def _arccos(x, y):
    lengths, angle = x.norm(dim=-1) * y.norm(dim=-1), _angle(x, y)
    return lengths * (angle.sin() + (torch.pi - angle) * angle.cos()) / (2 * torch.pi)


def _positive(x, y):
    return torch.exp((x * y).sum(-1))


MAPS = {
    "gaussian": (gaussian, _gaussian),
    "cosine": (cosine, _gaussian),
    "arccos": (arccos, _arccos),
    "positive": (positive, _positive),
    "oprf": (oprf, _positive),
}
each_map = pytest.mark.parametrize("name", MAPS)


def _estimates(name, x, y, num_matrices, num_directions, orthogonal, seed):
    """φ(x)·φ(y) for each matrix of a pool: (P, pairs)"""
    feature_map, _ = MAPS[name]
    directions = [draw_pool(num_matrices, num_directions, x.size(-1), seed, orthogonal).double()]
    if name == "cosine":
        directions.append(draw_phases(num_matrices, num_directions, seed).double())
    if name == "oprf":
        directions.append(best_a((x + y).pow(2).sum(-1).mean(), x.size(-1)))
    return (feature_map(x, *directions) * feature_map(y, *directions)).sum(-1)


def _pairs(count, width, seed, length=1.0):
    """Points σ∘x and σ∘y of unit vectors times `length`; the last two pairs are equal and opposite."""
    generator = random_generator(seed)
    sigma = 0.5 + torch.rand(width, generator=generator, dtype=torch.float64)
    x, y = length * unit_vectors(2, count, width, generator=generator)
    return sigma * x, sigma * torch.cat([y[:-2], x[-2:-1], -x[-1:]])


@each_map
@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize(
    "num_directions, length", [(1, 1.0), (8, 1.0), (20, 1.0), (8, 0.3), (8, 1.6)]
)
def test_estimate_is_unbiased(name, num_directions, length, orthogonal):
    """20 is two blocks of orthogonal rows and a part of one."""
    x, y = _pairs(10, 8, seed=3, length=length)
    estimates = _estimates(name, x, y, 5000, num_directions, orthogonal, seed=4)
    error = (estimates.mean(0) - MAPS[name][1](x, y)).abs()
    standard_error = estimates.std(0) / len(estimates) ** 0.5
    # Of equal vectors the Gaussian estimate is exact, and of opposite ones that of arccos: rounding remains.
    assert (error < 4 * standard_error + 1e-7).all()


@each_map
def test_error_falls_like_the_square_root_of_the_directions(name):
    x, y = _pairs(10, 8, seed=5)
    sizes = [8, 32, 128, 512]
    exact = MAPS[name][1](x, y)
    errors = [
        (_estimates(name, x, y, 300, size, False, seed=size) - exact).pow(2).mean().sqrt()
        for size in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.1


@pytest.mark.parametrize("num_directions", [16, 24])
@each_map
def test_orthogonal_directions_estimate_better(name, num_directions):
    """With at least as many directions as the width, for every map.

    Measured in ten draws: half of the pairs have a variance of at most 0.31 (gaussian), 0.94 (cosine),
    0.76 (arccos) and 0.92 (positive) of that with independent rows. The vectors are short because exp(x·y) has
    a long tail elsewhere.
    """
    x, y = (z[:-2] for z in _pairs(20, 16, seed=6, length=0.5))  # not those with exact estimates
    independent, orthogonal = (
        _estimates(name, x, y, 2000, num_directions, kind, seed=7).var(0) for kind in (False, True)
    )
    assert (orthogonal / independent).median() < 0.97
