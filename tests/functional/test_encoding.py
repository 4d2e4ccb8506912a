"""Scaling to unit length and by σ: the same as torch's, and its derivatives."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_rfa.functional.encoding import FEATURE_MAPS, Directions
from fairseq_rfa.functional.recurrence import LOWEST
from fairseq_rfa.functional.unit_length import SMALLEST_NORM, unit_length_scaled
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
    expected, actual = definition(*inputs), unit_length_scaled(*inputs)
    assert largest_difference(actual, expected) < 1e-12
    of_expected, of_actual = (torch.autograd.grad((out * weights).sum(), inputs) for out in (expected, actual))
    # Up to 1 / SMALLEST_NORM.
    torch.testing.assert_close(of_actual, of_expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("of_x, of_sigma", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_derivatives_are_those_of_the_definition(check, of_x, of_sigma):
    x = (random_tensor(2, 3, 2, 4) + 0.5).requires_grad_(of_x)
    sigma = random_tensor(3, 4, seed=2).requires_grad_(of_sigma)
    assert check(unit_length_scaled, (x, sigma))


def test_nothing_is_kept_without_gradients():
    x, sigma = vectors()
    with torch.no_grad():
        assert torch.equal(unit_length_scaled(x, sigma), F.normalize(x, dim=-1, eps=SMALLEST_NORM) * sigma[:, None])


@pytest.mark.parametrize("unnormalized", [False, True])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_padding_gives_zeros_and_no_gradients(name, unnormalized):
    feature_map = FEATURE_MAPS[name]
    x, sigma = random_tensor(2, 3, 7, 5), random_tensor(3, 5, seed=3)
    w = random_tensor(3, 5 if name == "elu" else 4, 5, seed=2)
    directions = Directions(w, random_tensor(3, 4, seed=4) if name in ("cosine", "learned") else None)
    if name == "oprf":
        directions = directions._replace(a=torch.tensor([-0.1, -0.5, 0.0]), psi=random_tensor(3, 5, seed=5).exp())
    padding = torch.zeros(2, 1, 7, dtype=torch.bool)
    padding[1, :, 2:5] = True

    def encode(x, sigma, w, padding=padding):
        return feature_map.encode(x, sigma, directions._replace(w=w), "key", padding, unnormalized)

    inputs = [tensor.requires_grad_() for tensor in (x, sigma, w)]
    encoded, whole = encode(*inputs), encode(*inputs, padding=None)
    kept = ~padding
    torch.testing.assert_close(encoded.phi, whole.phi * kept.unsqueeze(-1), rtol=0, atol=1e-12)
    if whole.log_factor is not None:
        assert torch.equal(encoded.log_factor, whole.log_factor.masked_fill(~kept, LOWEST))
    (of_x,) = torch.autograd.grad(encoded.phi.sum(), x)
    assert of_x[0].any() and not of_x[1, :, 2:5].any()

    def features(*inputs):
        phi, log_factor, _ = encode(*inputs)
        return phi if log_factor is None else phi * log_factor.exp().unsqueeze(-1)

    assert torch.autograd.gradcheck(features, inputs, fast_mode=True)


@pytest.mark.parametrize("unnormalized", [False, True])
def test_psi_moves_lengths_from_keys_to_queries(unnormalized):
    """The points of the exact kernel have the same products; the features are those of the moved points."""
    x, sigma, psi = random_tensor(2, 3, 7, 5), random_tensor(3, 5, seed=3), random_tensor(3, 5, seed=5).exp()
    plain = Directions(random_tensor(3, 4, 5, seed=2), a=torch.tensor([-0.1, -0.5, 0.0]))
    feature_map = FEATURE_MAPS["oprf"]

    def encode(directions, sigma, role):
        return feature_map.encode(x, sigma, directions, role, unnormalized=unnormalized, with_point=True)

    scaled = plain._replace(psi=psi)
    for role, factor in (("query", psi), ("key", 1 / psi)):
        actual = encode(scaled, sigma, role)
        expected = encode(plain, sigma * factor, role)
        for one, two in zip(actual, expected):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    products = [
        query.point @ key.point.mT + query.log_factor.unsqueeze(-1) + key.log_factor.unsqueeze(-2)
        for query, key in ((encode(one, sigma, "query"), encode(one, sigma, "key")) for one in (plain, scaled))
    ]
    torch.testing.assert_close(*products, rtol=1e-12, atol=1e-12)
