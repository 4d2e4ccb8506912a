"""Precision and memory of the algebra."""

import pytest
import torch

from fairseq_rfa.functional import linear_attention as rfa
from helpers import (
    attention_inputs,
    decode,
    defined_causal,
    largest_difference,
    leaves,
    position,
)

with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
each_type = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def _causal(**options):
    return rfa.causal(**options)[0]


def _through_state(phi_q, phi_k, v):
    return rfa.read(phi_q, rfa.summarize(phi_k, v))


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
    out, state = decode(**inputs)
    assert out.dtype == torch.float32 and {x.dtype for x in state.values()} == {torch.float32}
    expected = _causal(**wide)
    assert largest_difference(out, expected) < 2 * torch.finfo(dtype).eps


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
    steps, _ = decode(**single)
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


@pytest.mark.parametrize("first, later", [(-9.0, 9.0), (-30.0, 5.0)])
@pytest.mark.parametrize("chunk_size", [1, 64])
def test_forgetting_first_and_remembering_later(first, later, chunk_size):
    """A running sum of logarithms would be large, and the differences that matter are small."""
    inputs = attention_inputs(1000, gate=True, batch=1, heads=1)
    logits = torch.where(torch.arange(1000) < 500, first, later)
    inputs["gate_logits"] = logits.double().expand(1, 1, -1)
    expected = defined_causal(**inputs, floor=rfa.DENOMINATOR_FLOOR)
    single = {name: x.float() for name, x in inputs.items()}
    # A tenth of what is allowed: rounding alone is below 1e-5.
    assert largest_difference(_causal(**single, chunk_size=chunk_size), expected) < 2e-5


@with_and_without_gate
@pytest.mark.parametrize("length", [1, 65, 1000])
def test_state_does_not_grow(length, gate):
    """Neither its entries nor the storage that they keep alive."""
    inputs = attention_inputs(length, gate=gate)
    _, state = rfa.causal(**inputs)
    states = [state, rfa.summarize(inputs["phi_k"], inputs["v"])]
    with torch.no_grad():
        states.append(decode(**position(inputs, 0), totals=state)[1].totals())
    for kv, ksum in states:
        assert kv.shape == (2, 2, 8, 5) and ksum.shape == (2, 2, 8)
    for kv, ksum in states[:2]:
        assert kv.untyped_storage().nbytes() == kv.nbytes
        assert ksum.untyped_storage().nbytes() == ksum.nbytes
    kv, ksum = states[2]  # parts of one tensor
    assert kv.untyped_storage().nbytes() == ksum.untyped_storage().nbytes() == kv.nbytes + ksum.nbytes


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
