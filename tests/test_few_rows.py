"""Dense layers for few rows: the same as torch's, whichever way the product is taken."""

import pytest
import torch
import torch.nn.functional as F
from helpers import largest_difference, random_tensor
from torch import nn

from fairseq_rfa.few_rows import FewRowsLinear, Projection, linear, project

DOUBLE = 1e-12  # float64: rounding of sums of some ten products


def _layer(bias=True, kind=nn.Linear):
    torch.manual_seed(0)
    return kind(24, 40, bias=bias, dtype=torch.float64).eval()


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (3, 24), (1, 24, 24), (25, 24), (2, 3, 24), (0, 24)])
def test_equals_the_product_of_torch(shape, bias):
    layer, x = _layer(bias), random_tensor(*shape)
    expected = F.linear(x, layer.weight, layer.bias)
    several = Projection.of(layer, _layer(bias))
    for actual in (linear(x, layer.weight, layer.bias), project(layer, x)):
        assert actual.shape == expected.shape and actual.dtype == expected.dtype
        assert not expected.numel() or largest_difference(actual, expected) < DOUBLE
    assert not expected.numel() or largest_difference(several(x), torch.cat([expected] * 2, -1)) < DOUBLE


def test_training_takes_the_product_of_torch_to_the_last_digit():
    layer, x = _layer(kind=FewRowsLinear).train(), random_tensor(3, 24)
    expected = F.linear(x, layer.weight, layer.bias)
    with torch.no_grad():
        assert torch.equal(layer(x), expected)
    out = layer(x)
    assert torch.equal(out, expected) and out.requires_grad


@pytest.mark.usefixtures("without_gradients")
def test_hooks_and_other_layers_are_called():
    layer, calls = _layer(), []
    handle = layer.register_forward_hook(lambda *_: calls.append(1))
    project(layer, random_tensor(2, 24))
    assert calls == [1] and Projection.of(layer, _layer()) is None
    handle.remove()
    assert Projection.of(layer, _layer()) is not None
    assert Projection.of(_layer(), nn.Sequential(layer)) is None
    assert torch.equal(project(nn.Sequential(layer, nn.ReLU()), random_tensor(2, 24)), layer(random_tensor(2, 24)).relu())
