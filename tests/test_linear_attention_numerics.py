"""Padding, denominators, precision and memory of the algebra."""

import pytest
import torch
from helpers import (
    attention_inputs,
    defined_causal,
    defined_cross,
    largest_difference,
    leaves,
    padding_mask,
    piece,
    position,
    zero_state,
)

from fairseq_rfa import linear_attention as rfa

with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
each_kind = pytest.mark.parametrize("kind", ["left", "right", "middle", "all"])
each_type = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def _causal(**options):
    return rfa.causal(**options)[0]


def _through_state(phi_q, phi_k, v, padding=None, floor=rfa.DENOMINATOR_FLOOR):
    return rfa.read(phi_q, rfa.summarize(phi_k, v, padding), floor)


def _step_by_step(floor, **inputs):
    state, outputs = zero_state(inputs["phi_k"], inputs["v"]), []
    for t in range(inputs["v"].size(2)):
        out, state = rfa.step(**position(inputs, t), state=state, floor=floor)
        outputs.append(out)
    return torch.cat(outputs, dim=2)


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
    """Nine positions the last of which has this denominator, though the weights of its keys are larger."""
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
    for function in (*CAUSAL_PATHS, _step_by_step, _in_two_pieces):
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
    outputs.append(rfa.step(**last, state=state)[0])
    keys = {**inputs, "phi_q": last["phi_q"]}
    outputs += [function(**keys) for function in CROSS_PATHS]
    weights = rfa.cross_weights(keys["phi_q"], keys["phi_k"])
    outputs.append(weights @ keys["v"])
    assert all(largest_difference(out, expected) < 1e-11 for out in outputs)


def _large_inputs(length, gate, dtype, directions=16, width=8):
    """Features of vectors, values and logits that are ten times the usual size."""
    inputs = attention_inputs(length, gate=gate, batch=1, directions=directions, width=width)
    for name in ("v", "gate_logits"):
        if name in inputs:
            inputs[name] *= 10
    return {name: x.to(dtype) for name, x in inputs.items()}


@each_type
@with_and_without_gate
def test_half_precision_of_causal(dtype, gate):
    inputs = leaves(_large_inputs(4096, gate, dtype))
    out, state = rfa.causal(**inputs)
    out.float().pow(2).mean().backward()
    assert out.dtype == dtype
    assert state.kv.dtype == state.ksum.dtype == torch.float32
    assert all(x.grad.isfinite().all() for x in inputs.values())
    expected, _ = rfa.causal(**{name: x.detach().double() for name, x in inputs.items()})
    assert largest_difference(out, expected) < 2 * torch.finfo(dtype).eps  # the output's rounding


@each_type
def test_half_precision_of_cross(dtype):
    inputs = leaves(_large_inputs(4096, False, dtype))
    expected = rfa.cross(**{name: x.detach().double() for name, x in inputs.items()})
    for function in (rfa.cross, _through_state):
        out = function(**inputs)
        out.float().pow(2).mean().backward()
        assert largest_difference(out, expected) < 2 * torch.finfo(dtype).eps
    assert all(x.grad.isfinite().all() for x in inputs.values())
    assert all(x.dtype == torch.float32 for x in rfa.summarize(inputs["phi_k"], inputs["v"]))


@each_type
@with_and_without_gate
@torch.no_grad()
def test_half_precision_of_steps(dtype, gate):
    inputs = _large_inputs(300, gate, dtype)
    wide = {name: x.double() for name, x in inputs.items()}
    state, outputs = rfa.empty_state(inputs["phi_k"], inputs["v"]), []
    for t in range(300):
        out, state = rfa.step(**position(inputs, t), state=state)
        assert out.dtype == dtype and state.kv.dtype == state.ksum.dtype == torch.float32
        outputs.append(out)
    expected = _causal(**wide)
    assert largest_difference(torch.cat(outputs, dim=2), expected) < 2 * torch.finfo(dtype).eps


@with_and_without_gate
def test_sums_stay_float32_under_autocast(gate):
    """fairseq's --amp: rounding to bfloat16 would be 4e-3."""
    inputs = _large_inputs(130, gate, torch.float32)
    expected, expected_state = rfa.causal(**inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = rfa.causal(**inputs)
        summary = rfa.summarize(inputs["phi_k"], inputs["v"])
        crossed = rfa.cross(**{name: inputs[name] for name in ("phi_q", "phi_k", "v")})
    assert {x.dtype for x in (*state, *summary)} == {torch.float32}
    assert largest_difference(out, expected) < 1e-5
    assert largest_difference(state.kv, expected_state.kv) < 1e-5
    keys = {name: inputs[name] for name in ("phi_q", "phi_k", "v")}
    assert largest_difference(crossed, rfa.cross(**keys)) < 1e-5


@with_and_without_gate
@torch.no_grad()
def test_two_thousand_steps_stay_close_to_float64(gate):
    inputs = attention_inputs(2000, gate=gate, directions=16, width=8, batch=1, heads=1)
    single = {name: x.float() for name, x in inputs.items()}
    steps = _step_by_step(rfa.DENOMINATOR_FLOOR, **single)
    expected = defined_causal(**inputs, floor=rfa.DENOMINATOR_FLOOR)
    assert largest_difference(steps, expected) < 2e-4
    assert largest_difference(_causal(**single), expected) < 2e-4


@pytest.mark.parametrize("logits", [(30,), (-30,), (100,), (-100,), (30, -30), (100, -100, 9)])
@pytest.mark.parametrize("chunk_size", [7, 64])
def test_extreme_gates(logits, chunk_size):
    inputs = attention_inputs(200, gate=True)
    choice = torch.arange(200) % len(logits)
    inputs["gate_logits"] = torch.tensor(logits, dtype=torch.float64)[choice].expand(2, 2, -1)
    expected = defined_causal(**inputs)
    assert largest_difference(_causal(**inputs, chunk_size=chunk_size), expected) < 1e-8
    single = leaves({name: x.float() for name, x in inputs.items()})
    out = _causal(**single, chunk_size=chunk_size)
    out.sum().backward()
    assert largest_difference(out, expected) < 2e-4
    assert all(x.grad.isfinite().all() for x in single.values())


@pytest.mark.parametrize("chunk_size", [16, 64])
def test_forgetting_first_and_remembering_later(chunk_size):
    """The running sum of logarithms is large, the differences that matter are small."""
    inputs = attention_inputs(1000, gate=True, batch=1, heads=1)
    inputs["gate_logits"] = torch.where(torch.arange(1000) % 40 < 20, -9.0, 7.0).expand(1, 1, -1)
    expected = defined_causal(**inputs, floor=rfa.DENOMINATOR_FLOOR)
    single = {name: x.float() for name, x in inputs.items()}
    assert largest_difference(_causal(**single, chunk_size=chunk_size), expected) < 2e-4


@with_and_without_gate
@pytest.mark.parametrize("length", [1, 65, 1000])
def test_state_does_not_grow(length, gate):
    """Neither its entries nor the storage that they keep alive."""
    inputs = attention_inputs(length, gate=gate)
    _, state = rfa.causal(**inputs)
    states = [state, rfa.summarize(inputs["phi_k"], inputs["v"])]
    with torch.no_grad():
        states.append(rfa.step(**position(inputs, 0), state=state)[1])
    for kv, ksum in states:
        assert kv.shape == (2, 2, 8, 5) and ksum.shape == (2, 2, 8)
        assert kv.untyped_storage().nbytes() == kv.nbytes
        assert ksum.untyped_storage().nbytes() == ksum.nbytes


def _saved_bytes(length, gate):
    """What autograd keeps for the backward pass, each storage once."""
    inputs = leaves(attention_inputs(length, gate=gate, batch=1, directions=32, width=32))
    storages = {}

    def keep(x):
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out, _ = rfa.causal(**inputs, need_state=False)
    assert out.requires_grad
    return sum(storages.values())


@with_and_without_gate
def test_memory_of_training_is_linear_in_the_length(gate):
    assert _saved_bytes(2048, gate) < 2.2 * _saved_bytes(1024, gate)
