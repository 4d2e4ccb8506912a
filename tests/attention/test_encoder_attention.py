"""Attention of an encoder: its definition, padding, precision, training, and what a long source costs."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from definitions import attention, heads, joined
from fairseq_rfa.attention import EncoderRFA
from fairseq_rfa.attention import base as attention_base
from fairseq_rfa.attention.observations import Observations
from fairseq_rfa.functional.definition import reference_cross
from helpers import (
    call,
    largest_difference,
    make_cross,
    make_encoder,
    make_pool,
    padding_mask,
    random_tensor,
    trained_parameters,
)
from variants import ENCODER, each, options_of

DOUBLE = 1e-10  # float64: rounding of a few hundred products
each_encoder = each(ENCODER)
each_kind = pytest.mark.parametrize("kind", ["none", "left", "right", "middle", "all"])
each_length = pytest.mark.parametrize("length", [1, 9, 90], ids=["one", "pairs", "sums"])


def without_padding(out, padding):
    """(words, embed_dim): nobody reads the outputs at padding."""
    out = out.transpose(0, 1)
    return out if padding is None else out[~padding]


def gradients(out, module, x):
    parameters = trained_parameters(module)
    found = torch.autograd.grad((out * random_tensor(*out.shape, seed=3)).sum(), [x, *parameters.values()])
    return dict(zip(["x", *parameters], found))


@each_length
@each_kind
@each_encoder
def test_outputs_and_gradients_are_those_of_the_definition(make, kind, length):
    """Cross attention of a sentence with itself, pair by pair."""
    module, x = make(), random_tensor(length, 2, 32).requires_grad_()
    padding = padding_mask(kind, length)
    expected = attention(module, query=x, source=x.clone(), padding=padding, **options_of(make))
    actual, weights = module(x, x, x, key_padding_mask=padding)
    assert weights is None
    actual, expected = (without_padding(out, padding) for out in (actual, expected))
    assert largest_difference(actual, expected) < DOUBLE
    found, wanted = gradients(actual, module, x), gradients(expected, module, x)
    for name, gradient in wanted.items():
        # At padding the definition has its own idea: 0 times what stands there.
        assert largest_difference(found[name], gradient) < 1e-8, name


@each_kind
def test_it_is_the_definition_of_the_package(kind):
    module, x, padding = make_encoder(floor=0.05), random_tensor(90, 2, 32), padding_mask(kind, 90)
    directions = module.directions()
    phi_q, phi_k = (
        module.encode(projection(x), directions, role).phi
        for projection, role in ((module.q_proj, "query"), (module.k_proj, "key"))
    )
    expected = joined(module, reference_cross(phi_q, phi_k, heads(x, module.v_proj), padding, floor=0.05))
    actual = module(x, x, x, key_padding_mask=padding)[0]
    assert largest_difference(*(without_padding(out, padding) for out in (actual, expected))) < DOUBLE


def test_it_is_cross_attention_of_a_sentence_with_itself():
    module, cross = make_encoder(), make_cross(kdim=32, vdim=32)
    cross.load_state_dict(module.state_dict())
    x, padding = random_tensor(12, 2, 32), padding_mask("right", 12)
    expected = cross(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    actual = module(x, x, x, key_padding_mask=padding)[0]
    assert largest_difference(*(without_padding(out, padding) for out in (actual, expected))) < 1e-14


def test_parameters_are_those_of_fairseq_and_sigma():
    softmax = MultiheadAttention(32, 4, self_attention=True).state_dict()
    shapes = {name: x.shape for name, x in make_encoder().state_dict().items()}
    assert shapes == {**{name: x.shape for name, x in softmax.items()}, "sigma": (4, 8)}


@each_kind
@each_length
@each_encoder
def test_rows_do_not_depend_on_each_other(make, kind, length):
    """A row alone, without its padding, gives what it gives in the batch."""
    module, x, padding = make(), random_tensor(length, 2, 32), padding_mask(kind, length)
    together, _ = module(x, x, x, key_padding_mask=padding)
    assert together.isfinite().all()
    for row in range(2):
        kept = slice(None) if padding is None else ~padding[row]
        alone = x[kept, row : row + 1]
        if not alone.numel():
            assert torch.equal(together[:, row], module.out_proj.bias.expand(length, -1))
            continue
        assert largest_difference(together[kept, row], module(alone, alone, alone)[0][:, 0]) < DOUBLE


@each_encoder
def test_the_side_of_the_padding_changes_nothing(make):
    module, x = make(), random_tensor(9, 2, 32)
    outputs = []
    for before, after in ((0, 0), (0, 7), (7, 0), (90, 5)):
        filled = torch.nn.functional.pad(x, (0, 0, 0, 0, before, after), value=1e6)
        padding = torch.ones(2, len(filled), dtype=torch.bool)
        padding[:, before : before + 9] = False
        outputs.append(module(filled, filled, filled, key_padding_mask=padding)[0][before : before + 9])
    for out in outputs[1:]:
        assert largest_difference(out, outputs[0]) < DOUBLE


@each_encoder
@pytest.mark.parametrize("length", [9, 90], ids=["pairs", "sums"])
@pytest.mark.parametrize("kind", ["left", "middle", "right", "all"])
@pytest.mark.parametrize("filler, training", [(1e6, True), (float("inf"), False), (float("nan"), True)])
def test_what_stands_in_the_padding_changes_nothing(make, kind, filler, length, training):
    """No bit of outputs and gradients, not even of the outputs at padding."""
    results = []
    for value in (0.5, filler):
        module, x, padding = make().train(training), random_tensor(length, 2, 32), padding_mask(kind, length)
        x.transpose(0, 1)[padding] = value
        x.requires_grad_()
        torch.manual_seed(1)
        out, _ = module(x, x, x, key_padding_mask=padding)
        results.append([out, *gradients(out, module, x).values()])
    for harmless, actual in zip(*results):
        assert torch.equal(harmless, actual)
    assert not results[0][1].transpose(0, 1)[padding].any()


@pytest.mark.parametrize("name, unnormalized", [("gaussian", True), ("arccos", False), ("positive", True)])
@pytest.mark.parametrize("kind", ["none", "left", "middle"])
@pytest.mark.parametrize("filler", [0.5, float("nan")])
def test_the_first_updates_meet_the_kernel(name, unnormalized, kind, filler):
    module = make_encoder(feature_map=name, unnormalized=unnormalized, floor=0.05, exact_updates=3).train()
    x, padding = random_tensor(13, 2, 32), padding_mask(kind, 13)
    options = dict(unnormalized=unnormalized, exact=True, floor=0.05, padding=padding)
    expected = attention(module, name, x, x.clone(), **options)
    if padding is not None:
        x.transpose(0, 1)[padding] = filler
    actual, _ = module(x.requires_grad_(), x, x, key_padding_mask=padding)
    assert all(gradient.isfinite().all() for gradient in gradients(actual, module, x).values())
    assert largest_difference(*(without_padding(out, padding) for out in (actual, expected))) < DOUBLE
    features = module.eval()(x, x, x, key_padding_mask=padding)[0]
    module.train().set_num_updates(3)
    module.fixed_matrices = True
    assert torch.equal(module(x, x, x, key_padding_mask=padding)[0], features)
    assert largest_difference(features, actual) > 1e-3


@each_encoder
def test_training_draws_and_evaluation_does_not(make):
    module, draws = make(), make().feature_map.source == "pool"
    expected = call(module)
    assert torch.equal(call(module), expected)
    torch.manual_seed(1)
    first, second = (call(module.train()) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(call(module), first)
    assert torch.equal(first, second) is not draws
    module.fixed_matrices = True
    assert torch.equal(call(module), expected)


@each(["encoder gaussian", "encoder gaussian unnormalized", "encoder positive unnormalized", "encoder elu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision(make, dtype):
    """4,096 positions with inputs ten times the usual size."""
    module, x = make().to(dtype), 10 * random_tensor(4096, 1, 32, dtype=dtype)
    out, _ = module(x, x, x)
    out.float().pow(2).mean().backward()
    assert out.dtype == dtype and out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in trained_parameters(module).values())
    if not module.unnormalized:
        with torch.no_grad():
            x = x.double()
            # Projections are rounded to the type: a few of its last digits.
            assert largest_difference(out, module.double()(x, x, x)[0]) < 30 * torch.finfo(dtype).eps


@pytest.mark.parametrize("entries", [1, 300, 2000])
@pytest.mark.parametrize("unnormalized", [False, True])
def test_groups_and_segments_change_nothing(monkeypatch, entries, unnormalized):
    """However many rows and positions have their features made together: outputs, gradients, and what is observed."""
    x = random_tensor(9, 5, 32).requires_grad_()
    padding = torch.arange(9) >= torch.tensor([9, 4, 1, 7, 9]).unsqueeze(1)
    results, means = [], []
    for limit in (2**22, entries):
        monkeypatch.setattr(attention_base, "GROUP_ENTRIES", limit)
        module = make_encoder(unnormalized=unnormalized, fixed_matrices=True, floor=0.5).train()
        module.observations = Observations()
        out, _ = module(x, key_padding_mask=padding)
        results.append([out, *gradients(out, module, x).values()])
        means.append(module.observations.take_means())
    for whole, grouped in zip(*results):
        assert largest_difference(whole, grouped) < 1e-12
    assert means[0] == pytest.approx(means[1])


@pytest.mark.parametrize("kind", ["none", "left", "right"])
def test_what_is_observed_leaves_padding_out(kind):
    module, x, padding = make_encoder(fixed_matrices=True), random_tensor(10, 2, 32), padding_mask(kind, 10)
    kept = torch.ones(2, 10, dtype=torch.bool) if padding is None else ~padding
    directions = module.directions()
    phi_q = module.encode(module.q_proj(x), directions, "query").phi
    phi_k = module.encode(module.k_proj(x), directions, "key", padding).phi
    denominators = (phi_q @ phi_k.mT).sum(-1).transpose(0, 1)[:, kept].detach()
    module.floor = denominators.flatten().quantile(0.3, interpolation="midpoint").item()
    module.observations = Observations()
    module.train()(x, key_padding_mask=padding)
    share = (denominators <= module.floor).double().mean().item()
    assert share == pytest.approx(0.3, abs=0.02)
    assert module.observations.take_means() == pytest.approx(
        {"share_of_denominators_at_floor": share, "mean_sigma": module.sigma.mean().item()}, rel=1e-9
    )


def test_a_mask_of_single_pairs_is_refused():
    x = random_tensor(3, 2, 32)
    with pytest.raises(ValueError, match=r"^attn_mask of \(3, 3\) .*; use --encoder-attention softmax$"):
        make_encoder()(x, x, x, attn_mask=torch.zeros(3, 3))


@pytest.mark.parametrize("rows, length", [(0, 5), (2, 0), (0, 0)])
@pytest.mark.parametrize("is_padded", [False, True])
@each_encoder
def test_empty_inputs(make, rows, length, is_padded):
    module, x = make(), random_tensor(length, rows, 32).requires_grad_()
    padding = torch.zeros(rows, length, dtype=torch.bool) if is_padded else None
    out, _ = module(x, x, x, key_padding_mask=padding)
    assert out.shape == x.shape
    out.sum().backward()


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that is made within it."""

    entries = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **options or {})
        for x in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(x, torch.Tensor):
                self.entries = max(self.entries, x.numel())
        return made


def cost(module, length, training):
    """Products, and entries of the largest tensor, of one row with padding."""
    x = random_tensor(length, 1, 32, dtype=torch.float32).requires_grad_(training)
    padding = torch.zeros(1, length, dtype=torch.bool)
    padding[:, -3:] = True
    with FlopCounterMode(display=False) as products, Largest() as largest, torch.set_grad_enabled(training):
        out, _ = module.train(training)(x, x, x, key_padding_mask=padding)
        if training:
            out.sum().backward()
    return products.get_total_flops(), largest.entries


@each_encoder
@pytest.mark.parametrize("training", [False, True], ids=["decoding", "training"])
@pytest.mark.parametrize("entries", [attention_base.GROUP_ENTRIES, 2**14], ids=["whole", "segments"])
def test_the_cost_of_a_long_source_is_linear(monkeypatch, make, training, entries):
    """Twice the source, twice the products, but for σ, whose size has nothing to do with it; and no N×N tensor."""
    monkeypatch.setattr(attention_base, "GROUP_ENTRIES", entries)
    module = make().float()
    (products, _), (more, largest) = (cost(module, length, training) for length in (1024, 2048))
    assert products < more <= 2 * products
    assert largest <= 2048 * 4 * 2 * 16  # features of all heads, of at most twice 16 entries


def test_the_pool_is_shared_and_heads_of_layers_differ():
    pool = make_pool()
    first, second = (EncoderRFA(32, 4, pool, layer_index) for layer_index in (0, 1))
    assert first.pool is second.pool
    assert torch.equal(second.evaluation_matrices(), pool.matrices[4:8])
