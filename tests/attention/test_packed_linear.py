"""Dense layers of a model that only decodes: the same as torch's, and never those of other weights."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from fairseq.optim.adam import Adam as FairseqAdam
from torch import nn

from fairseq_rfa.attention.packed_linear import PackedForward, PackedProduct, is_plain, join_layers, pack_layers, search
from helpers import largest_difference

FLOAT = 1e-5  # float32: sums of 256 products of numbers around 1 and 1/16
SIZE = 256, 512  # E and O: a weight that is large enough

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs torch with oneDNN")


def _layer(bias=True, seed=0, size=SIZE):
    torch.manual_seed(seed)
    return nn.Linear(*size, bias=bias).eval()


def _packed(layer):
    """The layer itself, which keeps its weight packed from now on."""
    pack_layers(nn.Sequential(layer))
    assert type(layer) is nn.Linear and type(layer.forward) is PackedForward
    return layer


def _input(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(256,), (1, 256), (3, 256), (1, 256, 256), (257, 256), (2, 3, 256), (0, 256)])
def test_equals_the_product_of_torch(shape, bias):
    layer, packed, x = _layer(bias), _packed(_layer(bias)), _input(*shape)
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
    [
        torch.ones(512, 256).double(),
        torch.ones(512, 256).bfloat16(),
        torch.ones(511, 256),
        torch.ones(512, 256, device="meta"),
    ],
    ids=["float64", "bfloat16", "small", "elsewhere"],
)
def test_what_is_not_packed(weight):
    assert PackedProduct(weight).packed is None


def test_nothing_is_packed_where_onednn_is_switched_off():
    with torch.backends.mkldnn.flags(enabled=False):
        assert PackedProduct(_layer().weight).packed is None


def _one_step_of_adam(layer):
    optimizer = FairseqAdam(layer.parameters(), lr=0.1)
    with torch.enable_grad():
        layer.weight.grad, layer.bias.grad = torch.ones_like(layer.weight), torch.ones_like(layer.bias)
    optimizer.step()


CHANGES = {
    "in place": lambda layer, other: (layer.weight.copy_(other.weight), layer.bias.copy_(other.bias)),
    "loaded": lambda layer, other: layer.load_state_dict(other.state_dict()),
    "dtype": lambda layer, other: layer.double(),
    "data": lambda layer, other: (setattr(layer.weight, "data", other.weight.data), layer.bias.data.zero_()),
    "into data": lambda layer, other: layer.weight.data.copy_(other.weight.data),
    "bias alone": lambda layer, other: layer.bias.data.add_(1.0),
    "one entry": lambda layer, other: layer.weight.data[7, 9].add_(1.0),
    "negated": lambda layer, other: layer.weight.data.neg_(),
    "rows moved": lambda layer, other: layer.weight.data.copy_(layer.weight.roll(1, 0)),
    "columns moved": lambda layer, other: layer.weight.data.copy_(layer.weight.roll(2, 1)),
    "turned": lambda layer, other: layer.weight.data.copy_(layer.weight.flip(0, 1)),
    "through numpy": lambda layer, other: layer.weight.numpy().__setitem__(slice(None), 0.5),
    "another parameter": lambda layer, other: setattr(layer, "weight", other.weight),
    "no bias": lambda layer, other: setattr(layer, "bias", None),
    "another shape": lambda layer, other: setattr(layer.weight, "data", other.weight.data[:, :128].contiguous()),
    "fairseq's Adam": lambda layer, other: _one_step_of_adam(layer),
}


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changes(change):
    layer, x = _packed(_layer()), _input(3, 256)
    before = layer(x)
    CHANGES[change](layer, _layer(seed=2))
    x = x[:, : layer.weight.size(1)].to(layer.weight.dtype)
    expected = F.linear(x, layer.weight, layer.bias)
    assert largest_difference(layer(x), expected) < FLOAT
    if change != "dtype":
        assert largest_difference(before, expected) > 1e-3


@pytest.mark.usefixtures("without_gradients")
def test_a_search_asks_once():
    layer, x = _packed(_layer()), _input(3, 256)
    with search(goes_on=False):
        before = layer(x)
    layer.weight.data.neg_()
    with search(goes_on=True):
        assert torch.equal(layer(x), before)
    with search(goes_on=False):
        assert largest_difference(layer(x), F.linear(x, layer.weight, layer.bias)) < FLOAT


@pytest.mark.parametrize("size", [(256, 512), (257, 512), (511, 513)])
def test_a_weight_of_any_alignment(size):
    layer = nn.Linear(*size).eval()
    storage = torch.randn(size[0] * size[1] + 1)
    layer.weight.data = storage[1:].view(size[1], size[0])
    x = _input(2, size[0])
    with torch.no_grad():
        _packed(layer)(x)
        storage.neg_()
        assert largest_difference(layer(x), F.linear(x, layer.weight, layer.bias)) < FLOAT


def test_gradients_are_those_of_torch():
    layer, x = _packed(_layer()), _input(3, 256)
    with torch.no_grad():
        layer(x)
    layer(x).sum().backward()
    assert largest_difference(layer.weight.grad, x.sum(0).expand(512, 256)) < FLOAT


@pytest.mark.usefixtures("without_gradients")
def test_copies_and_files():
    layer, x = _packed(_layer()), _input(3, 256)
    expected = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), expected)
        assert other.forward.layer is other and other.forward.packed is not None
    assert layer.state_dict().keys() == _layer().state_dict().keys()


def test_plain_layers_of_a_model_become_packed():
    class Own(nn.Linear):
        pass

    shared, watched, replaced = _layer(), _layer(), _layer()
    watched.register_forward_hook(lambda *_: None)
    replaced.forward = lambda x: F.linear(x, replaced.weight, replaced.bias) + 1
    model = nn.ModuleDict(
        dict(first=shared, inner=nn.Sequential(shared, nn.ReLU()), own=Own(*SIZE), small=nn.Linear(2, 2))
    )
    model.update(dict(watched=watched, replaced=replaced, norm=nn.LayerNorm(2)))
    parameters = {name: id(x) for name, x in model.named_parameters()}
    forward = replaced.forward
    for _ in range(2):
        pack_layers(model)
        assert type(shared.forward) is PackedForward and model["first"] is model["inner"][0] is shared
        assert not any("forward" in vars(model[name]) for name in ("watched", "own", "norm", "small"))
        assert replaced.forward is forward and not is_plain(replaced)
        assert {name: id(x) for name, x in model.named_parameters()} == parameters


@pytest.mark.usefixtures("without_gradients")
def test_a_forward_that_somebody_replaced_later():
    layer, x = _packed(_layer()), _input(3, 256)
    before = layer(x)
    packed = layer.forward
    layer.forward = lambda x: packed(x) + 1
    assert torch.equal(layer(x), before + 1)
    assert join_layers(layer, _layer()) is None


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("bias", [True, False])
def test_layers_as_one_product(bias):
    first, second, x = _layer(bias), _packed(_layer(bias, seed=2)), _input(3, 256)
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
