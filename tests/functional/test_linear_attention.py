"""Every path of the algebra is its definition, at any length and in any number of pieces."""

from functools import lru_cache

import pytest
import torch

from fairseq_rfa.functional import linear_attention as rfa
from helpers import (
    PADDINGS,
    attention_inputs,
    decode,
    defined_causal,
    defined_cross,
    defined_state,
    gradients,
    largest_difference,
    padding_mask,
    piece,
    position,
    random_tensor,
)

# What the acceptance list asks for: rounding stays orders of magnitude below.
DOUBLE, SINGLE, GRADIENT = 1e-8, 2e-4, 1e-7

CHUNK_SIZES = (1, 7, 64, 200)
with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
each_length = pytest.mark.parametrize("length", [1, 63, 65, 130])
each_chunk_size = pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
each_padding = pytest.mark.parametrize("kind", PADDINGS)


@lru_cache(maxsize=None)
def _causal_case(length, gate, kind="none"):
    """Inputs, padding, outputs and state after the last position, the last two by definition."""
    inputs, padding = attention_inputs(length, gate=gate), padding_mask(kind, length)
    state = defined_state(**_keys(inputs), padding=padding)
    return inputs, padding, defined_causal(**inputs, padding=padding), state


@lru_cache(maxsize=None)
def _causal_gradients(length, gate, kind="none"):
    inputs, padding, _, _ = _causal_case(length, gate, kind)
    return gradients(defined_causal, inputs, padding=padding)


def _as_float(inputs):
    return {name: x.float() for name, x in inputs.items()}


def _keys(inputs):
    return {name: x for name, x in inputs.items() if name != "phi_q"}


def _causal(**options):
    return rfa.causal(**options)[0]


def _step_by_step(**inputs):
    return decode(**inputs)[0]


def _one_by_one(state=None, **inputs):
    """As where gradients are recorded: one call for each position."""
    outputs = []
    for t in range(inputs["v"].size(2)):
        out, state = rfa.causal(**position(inputs, t), state=state)
        outputs.append(out)
    return torch.cat(outputs, dim=2)


def _assert_same_state(actual, expected, tolerance):
    assert isinstance(actual, rfa.State)
    assert largest_difference(actual.kv, expected.kv) < tolerance
    assert largest_difference(actual.ksum, expected.ksum) < tolerance


@each_length
@with_and_without_gate
@each_padding
def test_references_are_the_definition(length, gate, kind):
    inputs, padding, expected, _ = _causal_case(length, gate, kind)
    assert largest_difference(rfa.reference_causal(**inputs, padding=padding), expected) < DOUBLE
    inputs = attention_inputs(length, source_length=2 * length)
    padding = padding_mask(kind, 2 * length)
    actual = rfa.reference_cross(**inputs, padding=padding)
    assert largest_difference(actual, defined_cross(**inputs, padding=padding)) < DOUBLE


@each_length
@each_chunk_size
@with_and_without_gate
@each_padding
def test_causal(length, chunk_size, gate, kind):
    inputs, padding, expected, state = _causal_case(length, gate, kind)
    for values, tolerance in ((inputs, DOUBLE), (_as_float(inputs), SINGLE)):
        out, after = rfa.causal(**values, padding=padding, chunk_size=chunk_size)
        assert out.dtype == after.kv.dtype == after.ksum.dtype == values["v"].dtype
        assert largest_difference(out, expected) < tolerance
        _assert_same_state(after, state, tolerance)


@with_and_without_gate
@pytest.mark.parametrize("length", [5, 130])
def test_causal_without_its_state(length, gate):
    inputs, _, expected, _ = _causal_case(length, gate)
    out, state = rfa.causal(**inputs, need_state=False)
    assert state is None
    assert largest_difference(out, expected) < DOUBLE


@each_length
@with_and_without_gate
def test_step_by_step(length, gate):
    inputs, _, expected, _ = _causal_case(length, gate)
    assert largest_difference(_step_by_step(**inputs), expected) < DOUBLE
    assert largest_difference(_step_by_step(**_as_float(inputs)), expected) < SINGLE


@pytest.mark.parametrize(
    "ends", [(0, 130), (1, 130), (64, 130), (65, 65, 66, 130), (3, 3, 70, 127, 130, 130)]
)
@each_chunk_size
@with_and_without_gate
@each_padding
def test_split_and_resumed(ends, chunk_size, gate, kind):
    """A piece may be empty, first, last or in between."""
    inputs, padding, expected, expected_state = _causal_case(130, gate, kind)
    start, state, outputs = 0, None, []
    for end in ends:
        mask = None if padding is None else padding[:, start:end]
        out, state = rfa.causal(
            **piece(inputs, start, end), padding=mask, state=state, chunk_size=chunk_size
        )
        outputs.append(out)
        start = end
    assert largest_difference(torch.cat(outputs, dim=2), expected) < DOUBLE
    _assert_same_state(state, expected_state, DOUBLE)


@with_and_without_gate
def test_causal_then_step_by_step(gate):
    inputs = attention_inputs(80, gate=gate)
    out, state = rfa.causal(**piece(inputs, 0, 70))
    rest = _step_by_step(totals=state, **piece(inputs, 70, 80))
    assert largest_difference(torch.cat([out, rest], dim=2), defined_causal(**inputs)) < DOUBLE


def test_a_state_that_was_handed_in_is_left_alone_by_causal():
    inputs = attention_inputs(20, gate=True)
    _, state = rfa.causal(**piece(inputs, 0, 10))
    before = [x.clone() for x in state]
    _, after = rfa.causal(**piece(inputs, 10, 20), state=state)
    decode(**position(inputs, 0), totals=after)
    assert all(torch.equal(x, y) for x, y in zip(state, before))


# The first two shapes are cheaper through scores, the others through the state.
@pytest.mark.parametrize("length, source_length", [(1, 1), (3, 65), (63, 130), (130, 65), (65, 63)])
@each_padding
def test_cross(length, source_length, kind):
    inputs = attention_inputs(length, source_length)
    padding = padding_mask(kind, source_length)
    expected = defined_cross(**inputs, padding=padding)
    for values, tolerance in ((inputs, DOUBLE), (_as_float(inputs), SINGLE)):
        assert largest_difference(rfa.cross(**values, padding=padding), expected) < tolerance
        state = rfa.summarize(values["phi_k"], values["v"], padding)
        assert largest_difference(rfa.read(values["phi_q"], state), expected) < tolerance


def test_cross_without_any_source():
    inputs = attention_inputs(3, source_length=0)
    state = rfa.summarize(inputs["phi_k"], inputs["v"])
    for out in (rfa.cross(**inputs), rfa.read(inputs["phi_q"], state)):
        assert torch.equal(out, torch.zeros(2, 2, 3, 5, dtype=torch.float64))


@each_padding
def test_cross_weights_make_the_output(kind):
    inputs, padding = attention_inputs(7, 20), padding_mask(kind, 20)
    weights = rfa.cross_weights(inputs["phi_q"], inputs["phi_k"], padding)
    expected = defined_cross(**inputs, padding=padding)
    assert largest_difference(weights @ inputs["v"], expected) < DOUBLE


def _assert_same_gradients(actual, expected):
    for one, two in zip(actual, expected, strict=True):
        assert largest_difference(one, two) < GRADIENT


@pytest.mark.parametrize("length", [1, 65, 130])
@with_and_without_gate
@each_padding
def test_gradients_of_causal(length, gate, kind):
    inputs, padding, _, _ = _causal_case(length, gate, kind)
    expected = gradients(rfa.reference_causal, inputs, padding=padding)
    _assert_same_gradients(expected, _causal_gradients(length, gate, kind))
    for chunk_size in CHUNK_SIZES:
        actual = gradients(_causal, inputs, padding=padding, chunk_size=chunk_size)
        _assert_same_gradients(actual, expected)


@with_and_without_gate
@pytest.mark.parametrize("middle", [1, 40, 64])
def test_gradients_through_the_state(gate, middle):
    inputs, _, _, _ = _causal_case(70, gate)

    def in_pieces(**inputs):
        first, state = rfa.causal(**piece(inputs, 0, middle))
        second, state = rfa.causal(**piece(inputs, middle, 68), state=state)
        third = _one_by_one(state=state, **piece(inputs, 68, 70))
        return torch.cat([first, second, third], dim=2)

    for function in (in_pieces, _one_by_one):
        _assert_same_gradients(gradients(function, inputs), _causal_gradients(70, gate))


@pytest.mark.parametrize("length, source_length", [(3, 65), (130, 65)])
@each_padding
def test_gradients_of_cross(length, source_length, kind):
    inputs = attention_inputs(length, source_length)
    padding = padding_mask(kind, source_length)

    def through_state(phi_q, phi_k, v, padding):
        return rfa.read(phi_q, rfa.summarize(phi_k, v, padding))

    expected = gradients(defined_cross, inputs, padding=padding)
    for function in (rfa.cross, through_state, rfa.reference_cross):
        _assert_same_gradients(gradients(function, inputs, padding=padding), expected)


@pytest.mark.parametrize(
    "gate, change", [(gate, name) for gate in (False, True) for name in ("phi_q", "phi_k", "v")]
    + [(True, "gate_logits")]
)
def test_nothing_looks_ahead(gate, change):
    inputs = attention_inputs(130, gate=gate)
    changed = {name: x.clone() for name, x in inputs.items()}
    changed[change][:, :, 100:] = 1e6
    for function in (rfa.reference_causal, _causal):
        before, after = function(**inputs)[:, :, :100], function(**changed)[:, :, :100]
        assert torch.equal(before, after)


@pytest.mark.parametrize("with_factors", [False, True])
def test_joined_sums_are_those_of_all_keys(with_factors):
    """Factors from e^-300 to e^300, which alone no float32 holds; outputs and gradients."""
    inputs = attention_inputs(9, source_length=12)
    log_factor = 300 * random_tensor(2, 2, 12, seed=4).tanh() if with_factors else None

    def attend(phi_q, phi_k, v, parts):
        if not with_factors:
            states = [rfa.summarize(k, x) for k, x in zip(phi_k.split(parts, 2), v.split(parts, 2))]
            return rfa.read(phi_q, rfa.joined(states))
        factors = log_factor.split(parts, 2)
        states = [
            rfa.summarize(rfa.with_factors(k, factor), x)
            for k, factor, x in zip(phi_k.split(parts, 2), factors, v.split(parts, 2))
        ]
        return rfa.read(phi_q, rfa.joined(states, [factor.amax(-1) for factor in factors]))

    for parts in (1, 5, 11):
        found, expected = (attend(**inputs, parts=x) for x in (parts, 12))
        assert largest_difference(found, expected) < 1e-12
        pairs = zip(*(gradients(attend, inputs, parts=x) for x in (parts, 12)))
        assert all(largest_difference(*pair) < 1e-11 for pair in pairs)
