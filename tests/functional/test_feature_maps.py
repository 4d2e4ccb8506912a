import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from fairseq_rfa.functional.feature_maps import (
    arccos,
    cosine,
    elu,
    gaussian,
    hedgehog,
    learned,
    oprf,
    oprf_exponents,
    positive,
    positive_exponents,
)
from helpers import random_tensor

MAPS = {
    "gaussian": gaussian,
    "arccos": arccos,
    "elu": elu,
    "positive": positive,
    "cosine": cosine,
    "learned": learned,
    "oprf": oprf,
    "hedgehog": hedgehog,
}
WITH_BIAS = ("cosine", "learned")


def _products(x, w):
    """w_i·x, one direction after the other."""
    return [np.einsum("...td,...d->...t", x, w[..., i, :]) for i in range(w.shape[-2])]


def _defined_gaussian(x, w):
    """Eq. 2."""
    angles = _products(x, w)
    entries = [np.sin(angle) for angle in angles] + [np.cos(angle) for angle in angles]
    return np.stack(entries, axis=-1) / np.sqrt(len(angles))


def _defined_arccos(x, w):
    return np.stack([np.maximum(product, 0) for product in _products(x, w)], -1) / np.sqrt(w.shape[-2])


def _defined_elu(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def _defined_positive(x, w):
    half_square = sum(x[..., i] ** 2 for i in range(x.shape[-1])) / 2
    entries = [np.exp(product) / np.exp(half_square) for product in _products(x, w)]
    return np.stack(entries, axis=-1) / np.sqrt(len(entries))


def _defined_cosine(x, w, b):
    entries = [np.cos(p + b[..., i, None]) for i, p in enumerate(_products(x, w))]
    return np.stack(entries, axis=-1) * np.sqrt(2) / np.sqrt(len(entries))


def _defined_learned(x, weight, bias):
    entries = [np.maximum(p + bias[..., i, None], 0) for i, p in enumerate(_products(x, weight))]
    return np.stack(entries, axis=-1)


def _defined_oprf(x, w, a):
    width, half_square = x.shape[-1], sum(x[..., i] ** 2 for i in range(x.shape[-1])) / 2
    entries = []
    for i, product in enumerate(_products(x, w)):
        square = (w[..., i, :] ** 2).sum(-1)
        entries.append(np.exp((a * square)[..., None]) * np.exp(np.sqrt(1 - 4 * a)[..., None] * product - half_square))
    return np.stack(entries, axis=-1) * (1 - 4 * a)[..., None, None] ** (width / 4) / np.sqrt(len(entries))


def _defined_hedgehog(x, weight):
    half = [np.exp(2 * product) for product in _products(x, weight)]
    entries = half + [1 / entry for entry in half]
    return np.stack(entries, axis=-1) / sum(entries)[..., None]


DEFINITIONS = {
    "gaussian": _defined_gaussian,
    "arccos": _defined_arccos,
    "elu": _defined_elu,
    "positive": _defined_positive,
    "cosine": _defined_cosine,
    "learned": _defined_learned,
    "oprf": _defined_oprf,
    "hedgehog": _defined_hedgehog,
}
each_map = pytest.mark.parametrize("name", MAPS)


def inputs_of(name, shape_of_x, shape_of_w, dtype=torch.float64):
    inputs = [random_tensor(*shape_of_x, dtype=dtype)]
    if name != "elu":
        inputs.append(random_tensor(*shape_of_w, seed=2, dtype=dtype))
    if name in WITH_BIAS:
        inputs.append(random_tensor(*shape_of_w[:-1], seed=3, dtype=dtype))
    if name == "oprf":
        inputs.append(-random_tensor(1, *shape_of_w[:-2], seed=3, dtype=dtype)[0].abs() / 4 - 0.01)
    return inputs


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)  # float64: rounding


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
@each_map
def test_map_is_its_definition(name, shape_of_x, shape_of_w):
    inputs = inputs_of(name, shape_of_x, shape_of_w)
    actual = MAPS[name](*inputs)
    expected = DEFINITIONS[name](*(x.numpy() for x in inputs))
    features = shape_of_x[-1] if name == "elu" else shape_of_w[-2] * (2 if name in ("gaussian", "hedgehog") else 1)
    assert actual.shape == (*shape_of_x[:-1], features)
    close(actual, torch.from_numpy(expected))


@each_map
def test_broadcasting_changes_nothing(name):
    x, *others = inputs_of(name, (2, 3, 7, 5), (3, 4, 5))
    feature_map = MAPS[name]
    expected = torch.stack(
        [
            torch.stack([feature_map(x[b, h], *(other[h] for other in others)) for h in range(3)])
            for b in range(2)
        ]
    )
    close(feature_map(x, *others), expected)
    close(feature_map(x, *(other.expand(2, *other.shape) for other in others)), expected)


def test_length_of_a_feature_vector_is_one():
    features = gaussian(10 * random_tensor(2, 3, 7, 5), random_tensor(3, 4, 5, seed=2))
    torch.testing.assert_close(
        features.pow(2).sum(-1), torch.ones(2, 3, 7, dtype=torch.float64), rtol=0, atol=1e-12
    )


@each_map
def test_inputs_are_left_alone(name):
    inputs = inputs_of(name, (2, 3, 7, 5), (3, 4, 5))
    before = [x.clone() for x in inputs]
    MAPS[name](*inputs)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before))


@each_map
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_type_of_the_inputs_is_kept(name, dtype):
    assert MAPS[name](*inputs_of(name, (2, 3), (4, 3), dtype)).dtype == dtype


@shapes
@each_map
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_gradients(check, name, shape_of_x, shape_of_w):
    inputs = [x.requires_grad_() for x in inputs_of(name, shape_of_x, shape_of_w)]
    assert check(MAPS[name], inputs, fast_mode=True)


@pytest.mark.parametrize("of_x, of_w", [(True, False), (False, True)])
def test_gradient_of_one_input(of_x, of_w):
    x = random_tensor(2, 3, 7, 5).requires_grad_(of_x)
    w = random_tensor(3, 4, 5, seed=2).requires_grad_(of_w)
    assert gradcheck(gaussian, (x, w), fast_mode=True)


@pytest.mark.parametrize("name", ["gaussian", "arccos", "cosine", "learned", "hedgehog"])
def test_sigma_may_scale_the_directions_instead(name):
    x, sigma = random_tensor(2, 3, 7, 5), random_tensor(3, 5, seed=2)
    w, b = random_tensor(3, 4, 5, seed=3), random_tensor(3, 4, seed=4)
    of_x, of_w = ((x * sigma[:, None], w), (x, w * sigma[:, None]))
    more = (b,) if name in WITH_BIAS else ()
    close(MAPS[name](*of_x, *more), MAPS[name](*of_w, *more))


def test_positive_exponents_are_logarithms_of_positive():
    x, w = random_tensor(2, 3, 7, 5), random_tensor(3, 4, 5, seed=3)
    expected = torch.from_numpy(DEFINITIONS["positive"](x.numpy(), w.numpy())) * 2  # D^1/2
    close(positive_exponents(x, w).exp(), expected)


def test_oprf_without_a_is_positive():
    x, w = random_tensor(2, 3, 7, 5), random_tensor(3, 4, 5, seed=3)
    close(oprf(x, w, 0.0), positive(x, w))
    close(oprf_exponents(x, w, torch.zeros(3, dtype=x.dtype)), positive_exponents(x, w))


@pytest.mark.parametrize("a", [0.1, float("nan"), torch.tensor([-0.1, 1e-9])])
def test_a_above_zero_is_refused(a):
    with pytest.raises(ValueError, match=r"A of oprf is .*; use a number of at most 0"):
        oprf(random_tensor(2, 7, 5), random_tensor(2, 4, 5, seed=3), a)


def test_hedgehog_of_long_vectors_stays_finite():
    x = (1e4 * random_tensor(2, 7, 5, dtype=torch.float32)).requires_grad_()
    features = hedgehog(x, random_tensor(2, 4, 5, seed=3, dtype=torch.float32))
    torch.testing.assert_close(features.sum(-1), torch.ones(2, 7))
    features[..., 0].sum().backward()
    assert x.grad.isfinite().all()
