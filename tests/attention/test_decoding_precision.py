"""Dense layers in bfloat16 and int8: near those of float32, alike whatever stands beside, and never in silence."""

import copy
import logging
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_rfa.attention import decoding_precision, packed_linear
from fairseq_rfa.attention.packed_linear import PackedForward, PackedProduct, join_layers, pack_layers, search
from helpers import largest_difference
from precisions import here

SIZE = 256, 512  # E and O: a weight that is large enough
# Of the norm of a product of normal entries. int8: rounding to 1/127 of the greatest, about 3.5 deviations, leaves
# 3.5 / 127 / √12 of each factor, which is 0.011 of a product; bfloat16: 2^-9 at most of factors and of the product.
ERRORS = {"int8": 0.02, "bfloat16": 0.006}


@pytest.fixture(params=sorted(ERRORS))
def precision(request, monkeypatch):
    return here(request.param, monkeypatch)


@pytest.fixture
def new_warnings():
    packed_linear._warn.cache_clear()


def _layer(bias=True, seed=0, size=SIZE):
    torch.manual_seed(seed)
    return nn.Linear(*size, bias=bias).eval()


def _packed(layer, precision):
    pack_layers(nn.Sequential(layer), precision)
    return layer


def _input(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _error(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 256), (3, 256), (600, 256), (2, 3, 256)])
def test_is_near_to_the_product_of_torch(precision, shape, bias):
    layer, packed, x = _layer(bias), _packed(_layer(bias), precision), _input(*shape)
    for rows in (x, x.expand(2, *shape).transpose(0, -2)):
        found, expected = packed(rows), layer(rows)
        assert found.shape == expected.shape and found.dtype == torch.float32
        assert 1e-6 < _error(found, expected) < ERRORS[precision]


@pytest.mark.usefixtures("without_gradients")
def test_rows_do_not_see_each_other(precision):
    """Rows of any size beside each other, of which each is as alone: integers have the same sum in any order."""
    x = _input(40, 256) * 10.0 ** torch.arange(-20, 20).unsqueeze(1)
    layer, packed = _layer(bias=False), _packed(_layer(bias=False), precision)
    found, expected = packed(x), layer(x)
    for row in range(len(x)):
        assert precision != "int8" or torch.equal(packed(x[row : row + 1])[0], found[row])
        assert _error(found[row], expected[row]) < 2 * ERRORS[precision]


@pytest.mark.usefixtures("without_gradients")
def test_rows_of_the_weight_have_scales_of_their_own(precision):
    weight = _input(512, 256) * 10.0 ** torch.linspace(-10, 10, 512).unsqueeze(1)
    x = _input(64, 256, seed=2)
    found, expected = PackedProduct(weight, None, precision)(x), F.linear(x, weight)
    assert (found - expected).norm(dim=0).div(expected.norm(dim=0)).max() < 2 * ERRORS[precision]


@pytest.mark.usefixtures("without_gradients")
def test_zeros_stay_and_what_is_not_finite_is_seen(precision):
    layer = _packed(_layer(), precision)
    assert torch.equal(layer(torch.zeros(2, 256)), layer.bias.expand(2, -1))
    assert layer(torch.empty(0, 256)).shape == (0, 512)
    for value in (float("nan"), float("inf")):
        x = _input(2, 256)
        x[1, 5] = value
        found = layer(x)
        assert found[0].isfinite().all() and not found[1].isfinite().any()
        layer.weight.data[3, 4] = value
        found = layer(_input(2, 256))
        assert not found[:, 3].isfinite().any()
        layer.weight.data[3, 4] = 0.0


@pytest.mark.usefixtures("without_gradients")
def test_a_processor_whose_sums_overflow_has_smaller_integers(monkeypatch):
    here("int8", monkeypatch)
    exact = decoding_precision._multiply_integers

    def in_16_bits(x, packed, greatest):
        """As without VNNI: 127 + 128 times 127, twice, is more than 2^15."""
        found = exact(x, packed, greatest)
        return found if greatest < 64 else found.clamp(max=40.0)

    monkeypatch.setattr(decoding_precision, "_multiply_integers", in_16_bits)
    monkeypatch.setattr(decoding_precision, "_greatest_integer", decoding_precision._greatest_integer.__wrapped__)
    assert decoding_precision._greatest_integer() == 63
    layer, x = _layer(), _input(8, 256)
    assert _error(_packed(_layer(), "int8")(x), layer(x)) < 2 * ERRORS["int8"]


CHANGES = {
    "in place": lambda layer, other: (layer.weight.copy_(other.weight), layer.bias.copy_(other.bias)),
    "data": lambda layer, other: (setattr(layer.weight, "data", other.weight.data), layer.bias.data.zero_()),
    "bias alone": lambda layer, other: layer.bias.data.add_(1.0),
    "rows moved": lambda layer, other: layer.weight.data.copy_(layer.weight.roll(1, 0)),
    "no bias": lambda layer, other: setattr(layer, "bias", None),
    "another type": lambda layer, other: layer.double(),
}


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changes(precision, change):
    layer, x = _packed(_layer(), precision), _input(3, 256)
    before = layer(x)
    CHANGES[change](layer, _layer(seed=2))
    x = x.to(layer.weight.dtype)
    with search(goes_on=False):
        found = layer(x)
    expected = F.linear(x, layer.weight, layer.bias)
    assert _error(found, expected) < ERRORS[precision]
    if change != "another type":
        assert _error(before, expected) > 2 * ERRORS[precision]


@pytest.mark.usefixtures("without_gradients")
def test_layers_as_one_product_are_packed_once(precision):
    first, second, x = _packed(_layer(), precision), _packed(_layer(seed=2), precision), _input(3, 256)
    joined = join_layers(first, second)
    assert largest_difference(joined(x), torch.cat([first(x), second(x)], -1)) < 1e-5
    assert join_layers(first, second) is joined
    for change in (lambda: second.weight.data.neg_(), lambda: first.bias.data.add_(1.0)):
        change()
        joined, before = join_layers(first, second), joined
        assert joined is not before
        assert largest_difference(joined(x), torch.cat([first(x), second(x)], -1)) < 1e-5
    assert torch.equal(copy.deepcopy(joined)(x), joined(x))


@pytest.mark.usefixtures("without_gradients")
def test_copies_and_files(precision):
    layer, x = _packed(_layer(), precision), _input(3, 256)
    expected = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), expected)
        assert other.forward.layer is other and other.forward.precision == precision


def test_gradients_are_those_of_torch(precision):
    layer, x = _packed(_layer(), precision), _input(3, 256)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    layer(x).sum().backward()
    assert largest_difference(layer.weight.grad, x.sum(0).expand(512, 256)) < 1e-5


@pytest.mark.usefixtures("without_gradients", "new_warnings")
@pytest.mark.parametrize("name", sorted(ERRORS))
def test_what_is_missing_here_is_said_once(monkeypatch, caplog, name):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
    monkeypatch.setattr(decoding_precision, "_greatest_integer", lambda: None)
    models = [_layer(), _layer(seed=2)]
    with caplog.at_level(logging.WARNING):
        for layer in models:
            _packed(layer, name)(_input(3, 256))
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [f"--decoding-precision {name}"]
    assert "compute in float32" in caplog.text
    expected = _packed(_layer(), "float32")
    assert torch.equal(models[0](_input(3, 256)), expected(_input(3, 256)))
    assert type(models[0].forward) is PackedForward


@pytest.mark.usefixtures("without_gradients", "new_warnings")
def test_a_model_of_another_type_is_computed_in_it_and_that_is_said_once(precision, caplog):
    layers = [_packed(_layer(), precision).bfloat16(), _packed(_layer(), precision).bfloat16()]
    x = _input(3, 256).bfloat16()
    with caplog.at_level(logging.WARNING):
        for layer in layers:
            assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    (record,) = caplog.records
    assert record.getMessage() == (
        f"--decoding-precision {precision} is for float32 on a CPU; dense layers of torch.bfloat16 on cpu compute as "
        "they are"
    )


def test_a_torch_without_the_operators(monkeypatch):
    """Engine, operator, or quantised tensors: whatever is missing."""
    find = decoding_precision._greatest_integer.__wrapped__

    def missing(*_, **__):
        raise NotImplementedError

    with monkeypatch.context() as patch:
        patch.setattr(decoding_precision, "ENGINE", "nobody knows")
        assert find() is None
    with monkeypatch.context() as patch:
        patch.delattr(torch, "quantize_per_channel")
        assert find() is None
    with monkeypatch.context() as patch:
        patch.setattr(decoding_precision, "_multiply_integers", missing)
        assert find() is None


def test_the_engine_of_others_stays(precision, monkeypatch):
    others = [name for name in torch.backends.quantized.supported_engines if name != decoding_precision.ENGINE]
    if not others:
        pytest.skip("there is no other engine")
    monkeypatch.setattr(torch.backends.quantized, "engine", others[0])
    assert PackedProduct(_layer().weight, None, precision).packed is not None
    assert torch.backends.quantized.engine == others[0]
