"""The two modules against a definition of their own, with padding and with weights."""

import pytest
import torch
from fairseq.modules import MultiheadAttention

from definitions import heads, joined
from fairseq_rfa.attention import CausalRFA
from fairseq_rfa.attention import base as attention_base
from fairseq_rfa.functional.oprf_constants import best_a
from helpers import (
    call,
    defined_causal,
    defined_cross,
    each_module,
    largest_difference,
    make_causal,
    make_cross,
    make_pool,
    padding_mask,
    random_tensor,
)
from variants import CAUSAL, CROSS, NEVER_SCALED, each, each_variant

with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
each_kind = pytest.mark.parametrize("kind", ["none", "left", "right", "middle", "all"])
DOUBLE = 1e-10  # float64: rounding of a few hundred products


def _features(module, x, projection, rows):
    """Unit length, σ, eq. 2, head by head."""
    result = []
    for head, (vectors, row) in enumerate(zip(heads(x, projection).unbind(1), rows)):
        vectors = vectors / vectors.norm(dim=-1, keepdim=True)
        angles = (vectors * module.sigma[head]) @ module.pool.matrices[row].double().T
        result.append(torch.cat([angles.sin(), angles.cos()], dim=-1) / angles.size(-1) ** 0.5)
    return torch.stack(result, dim=1)


@with_and_without_gate
@each_kind
@pytest.mark.parametrize(
    "num_matrices, layer_index, rows",
    [(8, 0, [0, 1, 2, 3]), (8, 4, [0, 1, 2, 3]), (5, 1, [4, 0, 1, 2])],
)
def test_causal_is_its_definition(gate, kind, num_matrices, layer_index, rows):
    pool = make_pool(num_matrices=num_matrices)
    module = make_causal(gate, pool=pool, layer_index=layer_index, floor=0.05)
    x, padding = random_tensor(70, 2, 32), padding_mask(kind, 70)
    phi_q, phi_k = (_features(module, x, p, rows) for p in (module.q_proj, module.k_proj))
    logits = None
    if gate:
        logits = torch.stack([module.gate_proj(x)[..., h].T for h in range(4)], dim=1)
    expected = defined_causal(phi_q, phi_k, heads(x, module.v_proj), logits, padding, floor=0.05)
    actual, weights = module(x, x, x, key_padding_mask=padding)
    expected = joined(module, expected)
    if padding is not None:  # nobody reads the outputs at padding
        actual, expected = (out.transpose(0, 1)[~padding] for out in (actual, expected))
    assert weights is None
    assert largest_difference(actual, expected) < DOUBLE


@each_kind
@pytest.mark.parametrize("length, source_length", [(3, 11), (70, 90)])
def test_cross_is_its_definition(kind, length, source_length):
    module = make_cross(floor=0.05)
    query, key = random_tensor(length, 2, 32), random_tensor(source_length, 2, 24, seed=2)
    padding = padding_mask(kind, source_length)
    phi_q = _features(module, query, module.q_proj, [4, 5, 6, 7])
    phi_k = _features(module, key, module.k_proj, [4, 5, 6, 7])
    out = defined_cross(phi_q, phi_k, heads(key, module.v_proj), padding, floor=0.05)
    actual, _ = module(query, key, key, key_padding_mask=padding)
    assert largest_difference(actual, joined(module, out)) < DOUBLE


def test_parameters_are_those_of_fairseq_and_sigma():
    def shapes(module):
        return {name: tuple(x.shape) for name, x in module.state_dict().items()}

    softmax = shapes(MultiheadAttention(32, 4, self_attention=True))
    gate = {"gate_proj.weight": (4, 32), "gate_proj.bias": (4,)}
    assert shapes(make_causal()) == {**softmax, "sigma": (4, 8)}
    assert shapes(make_causal(gate=True)) == {**softmax, "sigma": (4, 8), **gate}
    assert shapes(make_causal(feature_map="elu")) == {**softmax, "sigma": (4, 8)}
    learned = {"feature_weight": (4, 16, 8), "feature_bias": (4, 16)}
    assert shapes(make_causal(feature_map="learned")) == {**softmax, "sigma": (4, 8), **learned}
    hedgehog, oprf = {"hedgehog_weight": (4, 16, 8)}, {"oprf_a": (4,), "oprf_psi": (4, 8)}
    assert shapes(make_causal(feature_map="hedgehog")) == {**softmax, "sigma": (4, 8), **hedgehog}
    assert shapes(make_causal(feature_map="oprf")) == {**softmax, "sigma": (4, 8), **oprf}
    softmax = MultiheadAttention(32, 4, kdim=24, vdim=24, encoder_decoder_attention=True)
    assert shapes(make_cross()) == {**shapes(softmax), "sigma": (4, 8)}


def test_initial_values():
    module = CausalRFA(32, 4, make_pool(), 0, gate=True, gate_bias=2.0, sigma_init=1.25)
    assert (module.sigma == 1.25).all()
    assert (module.gate_proj.bias == 2.0).all()
    assert torch.equal(module.evaluation_matrices(), module.pool.matrices[:4])


def test_initial_values_without_unit_length():
    """σ counts in units of d^-1/4, so that 1 is the scale of softmax."""
    module = CausalRFA(32, 4, make_pool(), 0, unnormalized=True, sigma_init=1.25)
    torch.testing.assert_close(module.sigma.detach(), torch.full((4, 8), 1.25 * 8**-0.25))


def test_learned_features_start_from_the_matrices_of_the_layer():
    module = CausalRFA(32, 4, make_pool(), 1, "learned")
    torch.testing.assert_close(module.feature_weight.detach(), module.pool.matrices[4:8] / 16**0.5)
    assert not module.feature_bias.any()


@pytest.mark.parametrize("num_directions", [5, 8, 16])
def test_hedgehog_starts_from_the_identity(num_directions):
    module = CausalRFA(32, 4, make_pool(num_directions=num_directions), 1, "hedgehog")
    weight, rows = module.hedgehog_weight.detach(), min(num_directions, 8)
    assert torch.equal(weight[:, :rows], torch.eye(8)[:rows].expand(4, rows, 8))
    torch.testing.assert_close(weight[:, 8:], module.pool.matrices[4:8, 8:] / 8**0.5)
    assert weight.requires_grad is False and module.hedgehog_weight.requires_grad


@pytest.mark.parametrize("unnormalized", [False, True])
def test_constants_of_oprf_start_from_the_lengths_and_are_not_trained(unnormalized):
    """Of unit vectors ‖q + k‖² is σ²·2 in the mean, of vectors of d entries with variance 1 d^-1/2·d·2."""
    module = CausalRFA(32, 4, make_pool(), 1, "oprf", unnormalized=unnormalized, sigma_init=1.5)
    mean_square = 2 * 1.5**2 * (8**0.5 if unnormalized else 1)
    expected = best_a(torch.full((4,), mean_square), 8)
    torch.testing.assert_close(module.oprf_a.detach(), expected)
    assert (module.oprf_psi == 1).all()
    assert not module.oprf_a.requires_grad and not module.oprf_psi.requires_grad


@each_kind
@each_variant
def test_rows_do_not_depend_on_each_other(make, kind):
    """A row alone, without its padding, gives what it gives in the batch."""
    module = make()
    query, key = random_tensor(12, 2, 32), random_tensor(12, 2, 24, seed=2)
    padding = padding_mask(kind, 12)
    source = query if isinstance(module, CausalRFA) else key
    together, _ = module(query, source, source, key_padding_mask=padding)
    assert together.isfinite().all()
    for row in range(2):
        kept = slice(None) if padding is None else ~padding[row]
        alone_source = source[kept, row : row + 1]
        if not alone_source.numel():
            assert torch.equal(together[:, row], module.out_proj.bias.expand(12, -1))
            continue
        kept = kept if isinstance(module, CausalRFA) else slice(None)
        alone, _ = module(query[kept, row : row + 1], alone_source, alone_source)
        assert largest_difference(together[kept, row], alone[:, 0]) < DOUBLE


def _with_filler(module, kind, filler, incremental_state):
    """Outputs outside of the padding, and gradients."""
    query, key = random_tensor(12, 2, 32), random_tensor(12, 2, 24, seed=2)
    padding = padding_mask(kind, 12)
    is_causal = isinstance(module, CausalRFA)
    source = query if is_causal else key
    source.transpose(0, 1)[padding] = filler
    out = module(query, source, source, padding, incremental_state)[0].transpose(0, 1)
    out = out[~padding] if is_causal else out
    (out * random_tensor(*out.shape, seed=3)).sum().backward()
    return [out, *(parameter.grad for parameter in module.parameters())]


@each_module
@pytest.mark.parametrize("kind", ["left", "middle", "right", "all"])
@pytest.mark.parametrize("filler", [1e6, float("inf"), float("nan")])
@pytest.mark.parametrize("decoding", [False, True])
def test_what_stands_in_the_padding_changes_nothing(make, kind, filler, decoding):
    results = [_with_filler(make(), kind, x, {} if decoding else None) for x in (0.5, filler)]
    for harmless, actual in zip(*results):
        assert torch.equal(harmless, actual)


@each([name for name in CAUSAL + CROSS if not {"unnormalized", *NEVER_SCALED} & {*name.split()}])
@pytest.mark.parametrize("projection", ["q_proj", "k_proj"])
@pytest.mark.parametrize("factor", [1e-2, 7.0, 1e3])
def test_lengths_of_queries_and_keys_do_not_matter(make, projection, factor):
    module = make()
    before = call(module)
    with torch.no_grad():
        for parameter in getattr(module, projection).parameters():
            parameter.mul_(factor)
    assert largest_difference(call(module), before) < DOUBLE


def _cross_weights(module, **options):
    query, key = random_tensor(5, 3, 32), random_tensor(7, 3, 24, seed=2)
    padding = padding_mask("right", 7, batch=3)
    out, weights = module(query, key, key, key_padding_mask=padding, **options)
    return out, weights, key, padding


@pytest.mark.parametrize("decoding", [False, True])
def test_weights_of_heads_make_the_output(decoding):
    module = make_cross(pool=make_pool(num_directions=256), floor=1e-3)
    out, weights, key, padding = _cross_weights(
        module, need_head_weights=True, incremental_state={} if decoding else None
    )
    assert weights.shape == (4, 3, 5, 7)
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-10)
    assert not weights[:, -1, :, padding[-1]].any()
    made = weights.transpose(0, 1) @ heads(key, module.v_proj)
    assert largest_difference(joined(module, made), out) < DOUBLE


def test_weights_are_the_mean_of_the_heads_and_only_when_asked():
    module = make_cross()
    _, of_heads, _, _ = _cross_weights(module, need_head_weights=True)
    _, mean, _, _ = _cross_weights(module, need_weights=True)
    assert largest_difference(mean, of_heads.mean(0)) < DOUBLE
    assert _cross_weights(module, need_weights=False)[1] is None


@pytest.mark.parametrize("entries", [1, 300, 2000])
def test_groups_change_nothing(monkeypatch, entries):
    """However many rows and positions have their features made together: outputs and gradients."""
    query, source = random_tensor(6, 5, 32), random_tensor(9, 5, 24, seed=2).requires_grad_()
    padding = torch.arange(9) >= torch.tensor([9, 4, 1, 7, 9]).unsqueeze(1)
    results = []
    for limit in (2**22, entries):
        monkeypatch.setattr(attention_base, "GROUP_ENTRIES", limit)
        module = make_cross()
        out, _ = module(query, source, key_padding_mask=padding, need_weights=False)
        results.append([out, *torch.autograd.grad(out.sum(), [source, module.sigma, module.q_proj.weight])])
    for whole, grouped in zip(*results):
        assert largest_difference(whole, grouped) < 1e-12


@pytest.mark.parametrize("entries", [1, 1000])
@pytest.mark.parametrize("options", [{}, {"unnormalized": True}], ids=["unit length", "unnormalized"])
def test_groups_change_nothing_in_causal_attention(monkeypatch, entries, options):
    """With a gate, in training, as `test_groups_change_nothing`."""
    query = random_tensor(6, 5, 32).requires_grad_()
    padding = torch.arange(6) >= torch.tensor([6, 4, 1, 5, 6]).unsqueeze(1)
    results = []
    for limit in (2**22, entries):
        monkeypatch.setattr(attention_base, "GROUP_ENTRIES", limit)
        module = make_causal(gate=True, **options)
        out, _ = module(query, key_padding_mask=padding)
        wanted = [query, module.sigma, module.q_proj.weight, module.gate_proj.weight]
        results.append([out, *torch.autograd.grad(out.square().sum(), wanted)])
    for whole, grouped in zip(*results):
        assert largest_difference(whole, grouped) < 1e-12


@pytest.mark.parametrize("source_length", [3, 40], ids=["pairs", "sums"])
def test_groups_of_rows_change_nothing_in_what_is_kept_of_the_source(monkeypatch, source_length):
    query, source = random_tensor(1, 5, 32), random_tensor(source_length, 5, 24, seed=2)
    padding = torch.arange(source_length) >= torch.tensor([source_length, 2, 1, 3, 2]).unsqueeze(1)
    kept = []
    for limit in (2**22, 1):
        monkeypatch.setattr(attention_base, "GROUP_ENTRIES", limit)
        module, state = make_cross(), {}
        out, _ = module(query, source, key_padding_mask=padding, incremental_state=state, need_weights=False)
        kept.append({"out": out, **module._get_input_buffer(state)})
    assert kept[0].keys() == kept[1].keys()
    for name, whole in kept[0].items():
        assert largest_difference(whole, kept[1][name]) < 1e-12
