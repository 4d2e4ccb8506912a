"""Padding is not read, and small or negative denominators have one rule, in every path."""

import pytest
import torch

from fairseq_rfa.attention import CausalRFA
from fairseq_rfa.functional import linear_attention as rfa
from helpers import (
    attention_inputs,
    decode,
    defined_causal,
    defined_cross,
    largest_difference,
    leaves,
    padding_mask,
    piece,
    position,
)

with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
each_kind = pytest.mark.parametrize("kind", ["left", "right", "middle", "all"])


def _causal(**options):
    return rfa.causal(**options)[0]


def _through_state(phi_q, phi_k, v, padding=None, floor=rfa.DENOMINATOR_FLOOR):
    return rfa.read(phi_q, rfa.summarize(phi_k, v, padding), floor)


def _in_two_pieces(floor, **inputs):
    first, state = rfa.causal(**piece(inputs, 0, 5), floor=floor)
    second, _ = rfa.causal(**piece(inputs, 5, None), state=state, floor=floor)
    return torch.cat([first, second], dim=2)


def _in_chunks(**inputs):
    return _causal(**inputs, chunk_size=4)


CAUSAL_PATHS = [rfa.reference_causal, _causal, _in_chunks]
CROSS_PATHS = [rfa.reference_cross, rfa.cross, _through_state]


def _assert_padding_is_not_read(function, inputs, padding, values, filler, query_is_padded):
    """Outputs and gradients of what is not padding are those with a harmless filler."""
    kept = (~padding)[:, None, :, None]
    results = []
    for filling in (0.5, filler):
        filled = {name: x.clone() for name, x in inputs.items()}
        for name in values:
            filled[name].movedim(2, 1)[padding] = filling
        filled = leaves(filled)
        out = function(**filled, padding=padding)
        if query_is_padded:
            out = torch.where(kept, out, torch.zeros_like(out))
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        grads = [
            x.grad if name == "phi_q" else x.grad.movedim(2, 1)[~padding]
            for name, x in filled.items()
        ]
        results.append([out, *grads])
    for harmless, actual in zip(*results):
        assert actual.isfinite().all()
        assert torch.equal(actual, harmless)


fillers = pytest.mark.parametrize("filler", [1e6, float("nan"), float("inf"), float("-inf")])


@fillers
@each_kind
@with_and_without_gate
@pytest.mark.parametrize("function", CAUSAL_PATHS)
def test_causal_does_not_read_padding(function, gate, kind, filler):
    inputs = attention_inputs(11, gate=gate)
    values = [name for name in inputs if name != "phi_q"]
    _assert_padding_is_not_read(function, inputs, padding_mask(kind, 11), values, filler, True)


@fillers
@each_kind
@pytest.mark.parametrize("length", [2, 40], ids=["through scores", "through state"])
@pytest.mark.parametrize("function", CROSS_PATHS)
def test_cross_does_not_read_padding(function, length, kind, filler):
    inputs = attention_inputs(length, source_length=11)
    padding = padding_mask(kind, 11)
    _assert_padding_is_not_read(function, inputs, padding, ["phi_k", "v"], filler, False)


@with_and_without_gate
@pytest.mark.parametrize("function", CAUSAL_PATHS)
def test_a_row_of_padding_gives_zeros(function, gate):
    inputs = leaves(attention_inputs(11, gate=gate))
    out = function(**inputs, padding=padding_mask("all", 11))
    out.sum().backward()
    assert not out[-1].any()
    assert all(x.grad.isfinite().all() for x in inputs.values())


@pytest.mark.parametrize("length", [2, 40])
@pytest.mark.parametrize("function", CROSS_PATHS)
def test_a_source_of_padding_gives_zeros(function, length):
    inputs = leaves(attention_inputs(length, 11))
    out = function(**inputs, padding=padding_mask("all", 11))
    out.sum().backward()
    assert not out[-1].any()
    assert all(x.grad.isfinite().all() for x in inputs.values())


def _inputs_with_denominator(denominator, gate):
    """Nine positions; the last has this denominator, though the weights of its keys are larger."""
    inputs = attention_inputs(9, gate=gate, seed=3)
    query = torch.zeros_like(inputs["phi_q"])
    query[..., 0] = 1.0
    share, add = torch.ones(2, 2, 8, dtype=torch.float64), 1.0
    if gate:
        gates = torch.sigmoid(inputs["gate_logits"])
        after = [gates[..., s + 1 :].prod(-1) for s in range(8)]
        share = (1 - gates[..., :8]) * torch.stack(after, dim=-1)
        add = 1 - gates[..., 8]
    before = (share * inputs["phi_k"][:, :, :8, 0]).sum(-1)
    inputs["phi_k"][:, :, 8, 0] = (denominator - before) / add
    return {**inputs, "phi_q": query}


each_denominator = pytest.mark.parametrize("denominator", [1e-8, 0.0, -1e-8, -1.0])
each_floor = pytest.mark.parametrize("floor", [0.1, 1e-3])


def _assert_bounded(out, expected, inputs, floor):
    # Rounding errors of 1e-16 are divided by the floor.
    assert largest_difference(out, expected) < 1e-11
    bound = (inputs["phi_q"] @ inputs["phi_k"].mT).abs().sum(-1, keepdim=True) / floor
    assert (out.abs() <= bound * inputs["v"].abs().max()).all()
    assert out[:, :, -1].any()


@each_denominator
@each_floor
@with_and_without_gate
def test_small_and_negative_denominators_of_causal(denominator, floor, gate):
    inputs = _inputs_with_denominator(denominator, gate)
    expected = defined_causal(**inputs, floor=floor)
    _assert_bounded(decode(**inputs, floor=floor)[0], expected, inputs, floor)
    for function in (*CAUSAL_PATHS, _in_two_pieces):
        values = leaves(inputs)
        out = function(**values, floor=floor)
        _assert_bounded(out, expected, inputs, floor)
        out.sum().backward()
        assert all(x.grad.isfinite().all() for x in values.values())


@each_denominator
@each_floor
@pytest.mark.parametrize("length", [1, 9])
def test_small_and_negative_denominators_of_cross(denominator, floor, length):
    inputs = _inputs_with_denominator(denominator, gate=False)
    inputs["phi_q"] = inputs["phi_q"][:, :, -length:]
    expected = defined_cross(**inputs, floor=floor)
    for function in CROSS_PATHS:
        values = leaves(inputs)
        out = function(**values, floor=floor)
        _assert_bounded(out, expected, inputs, floor)
        out.sum().backward()
        assert all(x.grad.isfinite().all() for x in values.values())


def test_every_path_has_the_same_floor_by_default():
    inputs = _inputs_with_denominator(0.0, gate=False)
    floor = rfa.DENOMINATOR_FLOOR
    expected = defined_causal(**inputs, floor=floor)[:, :, -1:]
    last, first_eight = position(inputs, 8), piece(inputs, 0, 8)
    outputs = [function(**inputs)[:, :, -1:] for function in CAUSAL_PATHS]
    _, state = rfa.causal(**first_eight)
    outputs.append(decode(**last, totals=state, floor=CausalRFA(8, 2, None, 0, "elu").floor)[0])
    keys = {**inputs, "phi_q": last["phi_q"]}
    outputs += [function(**keys) for function in CROSS_PATHS]
    weights = rfa.cross_weights(keys["phi_q"], keys["phi_k"])
    outputs.append(weights @ keys["v"])
    assert all(largest_difference(out, expected) < 1e-11 for out in outputs)
