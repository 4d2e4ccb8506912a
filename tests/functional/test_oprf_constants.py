"""A and ψ of optimal positive random features: those of least spread."""

import pytest
import torch

from fairseq_rfa.functional.oprf_constants import Moments, best_a, best_constants
from helpers import random_tensor


@pytest.mark.parametrize("head_dim", [1, 8, 64])
def test_best_a_has_the_least_spread(head_dim):
    """The logarithm of E (φ(x)·φ(y))² for one direction, but for what A leaves alone, with m = ‖x + y‖²."""
    sizes = torch.tensor([0.01, 0.5, 2.0, 30.0, 400.0], dtype=torch.float64)

    def log_square(a):
        stretch, narrow = 1 - 4 * a, 1 - 8 * a
        return head_dim * stretch.log() - head_dim / 2 * narrow.log() + 2 * stretch / narrow * sizes

    a = best_a(sizes, head_dim)
    assert (a < 0).all()
    least = log_square(a)
    for factor in (0.0, 0.5, 0.99, 1.01, 2.0):
        assert (log_square(a * factor) > least).all()


def test_best_a_of_nothing_is_zero():
    sizes = torch.tensor([0.0, 1e-30, 1e30], dtype=torch.float32)
    a = best_a(sizes, 64)
    assert a[0] == 0 and a.isfinite().all() and (a <= 0).all() and a.dtype == torch.float32


def moments_of(query, key):
    """Of queries (H, N, d) and keys (H, M, d) that all see each other."""
    return Moments(query.square().mean(1), key.square().mean(1), (query @ key.mT).mean((1, 2)))


def scaled(scale):
    """Queries and keys (H, N, d) of which some entries are long in one of both."""
    return scale * random_tensor(2, 30, 6), random_tensor(2, 50, 6, seed=2) / scale.sqrt() + 0.5


def test_constants_are_those_of_the_pairs():
    query, key = scaled(torch.tensor([0.2, 1.0, 3.0, 1.0, 0.5, 2.0], dtype=torch.float64))
    constants = best_constants(moments_of(query, key))
    psi = constants.psi.double()[:, None]
    query, key = query * psi, key / psi
    torch.testing.assert_close(query.square().mean(1), key.square().mean(1), rtol=1e-5, atol=0)
    mean_square = (query.unsqueeze(2) + key.unsqueeze(1)).square().sum(-1).mean((1, 2))
    torch.testing.assert_close(constants.a.double(), best_a(mean_square, 6), rtol=1e-5, atol=0)


def test_psi_makes_the_sum_of_the_squares_least():
    query, key = scaled(torch.tensor([0.2, 1.0, 3.0, 1.0, 0.5, 2.0], dtype=torch.float64))
    psi = best_constants(moments_of(query, key)).psi.double()

    def total(psi):
        return sum((x.square().mean(1)).sum() for x in (query * psi[:, None], key / psi[:, None]))

    for seed in range(5):
        assert total(psi) < total(psi * (0.1 * random_tensor(2, 6, seed=seed)).exp())


def test_entries_that_are_zero_leave_the_constants_finite():
    query, key = torch.zeros(2, 3, 6), torch.zeros(2, 4, 6)
    key[..., 0] = 1.0
    constants = best_constants(moments_of(query, key))
    assert all(x.isfinite().all() for x in constants) and (constants.a <= 0).all()
