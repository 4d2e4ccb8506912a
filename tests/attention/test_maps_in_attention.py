"""The two modules with every map and option: their definition, split calls, padding, beams."""

import pytest
import torch

from definitions import attention
from helpers import call, largest_difference, make_causal, padding_mask, random_tensor, trained_parameters
from variants import (
    CAUSAL,
    CROSS,
    each,
    each_causal_variant,
    each_variant,
    every_causal_variant,
    options_of,
)

DOUBLE = 1e-10  # float64: rounding of a few hundred products
each_kind = pytest.mark.parametrize("kind", ["none", "left", "right", "middle", "all"])


def _inputs(make, length, source_length=None, batch=2):
    """query, and source for cross attention"""
    query = random_tensor(length, batch, 32)
    if make.func is make_causal:
        return query, query
    return query, random_tensor(source_length or length, batch, 24, seed=2)


def _where_read(make, out, padding):
    """Nobody reads the outputs of causal attention at padding."""
    out = out.transpose(0, 1)
    return out if padding is None or make.func is not make_causal else out[~padding]


# 10 is longer than the sentence, and chunks of 4 are shorter than it.
@each_kind
@each([*every_causal_variant(windows=(0, 1, 3, 10)), *CROSS])
def test_module_is_its_definition(make, kind):
    module = make(chunk_size=4) if make.func is make_causal else make()
    query, source = _inputs(make, 9, 11)
    padding = padding_mask(kind, len(source))
    expected = attention(module, query=query, source=source, padding=padding, **options_of(make))
    actual, _ = module(query, source, source, padding)
    expected, actual = (_where_read(make, out, padding) for out in (expected, actual))
    assert actual.isfinite().all()
    assert largest_difference(actual, expected) < DOUBLE


def _gradients(module, out):
    module.zero_grad()
    (out * random_tensor(*out.shape, seed=3)).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in trained_parameters(module).items()}


@each_variant
@pytest.mark.parametrize("kind", ["none", "left"])
def test_gradients_are_those_of_the_definition(make, kind):
    module = make(chunk_size=4) if make.func is make_causal else make()
    query, source = _inputs(make, 9, 11)
    padding = padding_mask(kind, len(source))
    of_module, of_definition = (
        _gradients(module, _where_read(make, out, padding))
        for out in (
            module(query, source, source, padding)[0],
            attention(module, query=query, source=source, padding=padding, **options_of(make)),
        )
    )
    expected_names = {"q_proj", "k_proj", "v_proj", "out_proj", "sigma"}
    expected_names |= {"gate_proj"} if make.keywords.get("gate") else set()
    if make.keywords["feature_map"] == "learned":
        expected_names |= {"feature_weight", "feature_bias"}
    if make.keywords["feature_map"] == "hedgehog":
        expected_names |= {"hedgehog_weight"}
    assert {name.split(".")[0] for name in of_module} == expected_names
    for name, gradient in of_module.items():
        assert largest_difference(gradient, of_definition[name]) < 1e-9
        assert gradient.any()


@each_variant
def test_many_queries_take_the_other_order_of_multiplication(make):
    """70 positions: several chunks of 64 in causal attention, sums over the source in cross attention."""
    module = make()
    query, source = _inputs(make, 70, 90)
    expected = attention(module, query=query, source=source, **options_of(make))
    assert largest_difference(module(query, source, source)[0], expected) < DOUBLE


def _in_pieces(module, x, ends, padding):
    start, outputs, state = 0, [], {}
    for end in ends:
        mask = None if padding is None else padding[:, start:end]
        outputs.append(module(x[start:end], key_padding_mask=mask, incremental_state=state)[0])
        start = end
    return torch.cat(outputs)


@each([*every_causal_variant(windows=(0, 3)), "causal cosine window=20", "causal positive gate window=1"])
@pytest.mark.parametrize(
    "kind, ends",
    [
        ("none", range(1, 14)),
        ("left", range(1, 14)),
        ("all", (1, 2, 13)),
        ("middle", (1, 5, 5, 6, 13)),
        ("right", (4, 12, 13)),
    ],
)
def test_any_split_equals_one_call(make, kind, ends):
    module, x, padding = make(chunk_size=4), random_tensor(13, 3, 32), None
    if kind != "none":
        padding = padding_mask(kind, 13, batch=3)
    with torch.no_grad():
        expected, _ = module(x, key_padding_mask=padding)
        actual = _in_pieces(module, x, ends, padding)
    expected, actual = (_where_read(make, out, padding) for out in (expected, actual))
    assert largest_difference(actual, expected) < DOUBLE


@each_causal_variant
def test_gradients_of_single_steps_equal_those_of_one_call(make):
    module, x = make(), random_tensor(6, 2, 32)
    one = _gradients(module, module(x)[0])
    steps = _gradients(module, _in_pieces(module, x, range(1, 7), None))
    for name, gradient in one.items():
        assert largest_difference(steps[name], gradient) < DOUBLE


@each_causal_variant
def test_later_positions_change_nothing(make):
    module, x = make(chunk_size=4), random_tensor(13, 2, 32)
    changed = x.clone()
    changed[7:] = 30 * random_tensor(6, 2, 32, seed=8)
    before, after = module(x)[0], module(changed)[0]
    assert torch.equal(after[:7], before[:7])
    assert not torch.isclose(after[7:], before[7:]).all()


@each_variant
@pytest.mark.parametrize("filler", [1e6, float("nan"), float("-inf")])
@pytest.mark.parametrize("kind, decoding", [("left", False), ("middle", True)])
def test_what_stands_in_the_padding_changes_nothing(make, kind, filler, decoding):
    results = []
    for value in (0.5, filler):
        module = make()
        query, source = _inputs(make, 12)
        padding = padding_mask(kind, 12)
        source.transpose(0, 1)[padding] = value
        state = {} if decoding else None
        out, _ = module(query, source, source, padding, state)
        out = _where_read(make, out, padding)
        results.append([out, *_gradients(module, out).values()])
    for harmless, actual in zip(*results):
        assert torch.equal(harmless, actual)


@each([name for name in CAUSAL + CROSS if "unnormalized" in name])
@pytest.mark.parametrize("kind", ["left", "right"])
def test_factor_of_a_padded_key_does_not_count(make, kind):
    """The bias alone, which is the key of a blank position, is far longer than any key that counts."""
    module = make()
    query, source = _inputs(make, 9)
    center = 2 * random_tensor(1, 1, source.size(-1), seed=7)
    source = center + 0.3 * source
    query = source if make.func is make_causal else query
    with torch.no_grad():
        module.k_proj.bias.copy_(-2 * (module.k_proj.weight @ center.flatten()))
        module.k_proj.weight.mul_(2)
    padding = padding_mask(kind, 9)
    expected = attention(module, query=query, source=source, padding=padding, **options_of(make))
    actual = module(query, source, source, padding)[0]
    expected, actual = (_where_read(make, out, padding) for out in (expected, actual))
    assert largest_difference(actual, expected) < DOUBLE


# Orders of hypotheses: change of parents, fewer rows, more rows, one row, none changed.
ORDERS = [[2, 0, 0, 3], [3, 1], [1, 0, 0, 1, 1], [4], [0]]


@each_causal_variant
@pytest.mark.parametrize("pieces", [1, 3])
def test_reordered_is_recomputed(make, pieces):
    module, state = make(), {}
    prefix = random_tensor(pieces, 4, 32)
    with torch.no_grad():
        module(prefix, incremental_state=state)
        for seed, order in enumerate(ORDERS):
            module.reorder_incremental_state(state, torch.tensor(order))
            new = random_tensor(pieces, len(order), 32, seed=10 + seed)
            prefix = torch.cat([prefix[:, order], new])
            out, _ = module(new, incremental_state=state)
            assert largest_difference(out, module(prefix)[0][-pieces:]) < DOUBLE


@each(CROSS)
def test_hypotheses_read_the_sums_of_their_sentence(make):
    module, state = make(), {}
    module.set_beam_size(3)
    key = random_tensor(9, 2, 24).repeat_interleave(3, dim=1)
    padding = padding_mask("right", 9).repeat_interleave(3, dim=0)
    with torch.no_grad():
        for seed, order in enumerate([range(6), [2, 0, 0, 4, 5, 5], [3, 3, 5]]):
            order = torch.tensor(order)
            module.reorder_incremental_state(state, order)
            key, padding = key[:, order], padding[order]
            query = random_tensor(2, len(order), 32, seed=seed)
            out, _ = module(query, key, key, padding, state)
            expected, _ = module(query, key, key, padding)
            assert largest_difference(out, expected) < DOUBLE


def _bytes_of_state(module, state):
    buffer = module._get_input_buffer(state).values()
    return tuple((x.shape, x.untyped_storage().nbytes()) for x in buffer)


@each(CAUSAL)
def test_state_has_its_size_from_the_first_step_on(make):
    module, sizes = make(), set()
    for length in (1, 2, 7, 100):
        state = {}
        module(random_tensor(length, 2, 32), incremental_state=state)
        sizes.add(_bytes_of_state(module, state))
        module(random_tensor(1, 2, 32), incremental_state=state)
        sizes.add(_bytes_of_state(module, state))
    assert len(sizes) == 1


@each_variant
def test_evaluation_is_repeatable_and_asks_no_random_source(make):
    module, state = make(), torch.get_rng_state()
    assert torch.equal(call(module), call(module))
    assert torch.equal(torch.get_rng_state(), state)
