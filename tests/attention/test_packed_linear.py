"""Dense layers of a model that only decodes: the same as torch's, and never those of other weights."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_rfa.attention.packed_linear import PackedLinear, PackedProduct, is_plain, join_layers, pack_layers
from helpers import largest_difference

FLOAT = 1e-5  # float32: sums of 256 products of numbers around 1 and 1/16
SIZE = 256, 512  # E and O: a weight that is large enough

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs torch with oneDNN")


def _layer(bias=True, seed=0, size=SIZE):
    torch.manual_seed(seed)
    return nn.Linear(*size, bias=bias).eval()


def _input(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(256,), (1, 256), (3, 256), (1, 256, 256), (257, 256), (2, 3, 256), (0, 256)])
def test_equals_the_product_of_torch(shape, bias):
    layer, x = _layer(bias), _input(*shape)
    packed = PackedLinear(layer)
    for rows in (x, x.expand(2, *shape).transpose(0, -2)):
        expected, actual = layer(rows), packed(rows)
        assert actual.shape == expected.shape and actual.dtype == expected.dtype
        assert not expected.numel() or largest_difference(actual, expected) < FLOAT


@pytest.mark.usefixtures("without_gradients")
def test_few_rows_take_the_packed_weight_and_many_do_not(monkeypatch):
    product = PackedProduct(_layer().weight)
    assert product.packed.is_mkldnn
    monkeypatch.setattr(F, "linear", None)
    product(_input(256, 256))
    with pytest.raises(TypeError):
        product(_input(257, 256))


@pytest.mark.parametrize(
    "weight",
    [torch.ones(512, 256).double(), torch.ones(512, 256).bfloat16(), torch.ones(511, 256), torch.ones(512, 256, device="meta")],
    ids=["float64", "bfloat16", "small", "elsewhere"],
)
def test_what_is_not_packed(weight):
    assert PackedProduct(weight).packed is None


def test_nothing_is_packed_where_onednn_is_switched_off():
    with torch.backends.mkldnn.flags(enabled=False):
        assert PackedProduct(_layer().weight).packed is None


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("change", ["in place", "loaded", "dtype", "data"])
def test_a_weight_that_changes(change):
    layer, x = PackedLinear(_layer()), _input(3, 256)
    layer(x)
    other = _layer(seed=2)
    if change == "in place":
        layer.weight.copy_(other.weight)
        layer.bias.copy_(other.bias)
    elif change == "loaded":
        layer.load_state_dict(other.state_dict())
    elif change == "dtype":
        layer, other, x = layer.double(), layer.double(), x.double()
    else:
        layer.weight.data, layer.bias.data = other.weight.data, other.bias.data
    assert largest_difference(layer(x), F.linear(x, other.weight, other.bias)) < FLOAT


def test_gradients_are_those_of_torch():
    layer, x = PackedLinear(_layer()), _input(3, 256)
    with torch.no_grad():
        layer(x)
    layer(x).sum().backward()
    assert largest_difference(layer.weight.grad, x.sum(0).expand(512, 256)) < FLOAT


@pytest.mark.usefixtures("without_gradients")
def test_copies_and_files():
    layer, x = PackedLinear(_layer()), _input(3, 256)
    expected = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), expected)
    assert layer.state_dict().keys() == _layer().state_dict().keys()


def test_plain_layers_of_a_model_become_packed():
    class Own(nn.Linear):
        pass

    shared, watched = _layer(), _layer()
    watched.register_forward_hook(lambda *_: None)
    model = nn.ModuleDict(
        dict(first=shared, inner=nn.Sequential(shared, nn.ReLU()), watched=watched, own=Own(2, 2), norm=nn.LayerNorm(2))
    )
    parameters = {name: id(x) for name, x in model.named_parameters()}
    pack_layers(model)
    packed = model["first"]
    assert type(packed) is PackedLinear and model["inner"][0] is packed and packed.weight is shared.weight
    assert [type(model[name]) for name in ("watched", "own", "norm")] == [nn.Linear, Own, nn.LayerNorm]
    assert {name: id(x) for name, x in model.named_parameters()} == parameters
    pack_layers(model)
    assert model["first"] is packed


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("bias", [True, False])
def test_layers_as_one_product(bias):
    first, second, x = _layer(bias), PackedLinear(_layer(bias, seed=2)), _input(3, 256)
    joined = join_layers(first, second)
    assert largest_difference(joined(x), torch.cat([first(x), second(x)], -1)) < FLOAT


def test_layers_that_are_called_one_by_one():
    plain, hooked = _layer(), _layer()
    hooked.register_forward_pre_hook(lambda *_: None)
    assert not is_plain(hooked)
    assert join_layers(plain, hooked) is None
    assert join_layers(plain, nn.Sequential(plain)) is None
    assert join_layers(plain, _layer().train()) is None
    assert join_layers(plain, _layer()) is not None
