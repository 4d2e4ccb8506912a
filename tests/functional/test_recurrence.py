"""Factors of keys, of any size, in the sums over keys: `linear_attention` with log_factor."""

import pytest
import torch

from fairseq_rfa.functional import linear_attention as rfa
from fairseq_rfa.functional.recurrence import LOWEST, recurrence
from helpers import attention_inputs, decode, largest_difference, padding_mask, piece, random_tensor, shares

DOUBLE = 1e-10
LENGTH = 21
with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
# The spread of the logarithms of factors: beyond 88 a factor itself is no float32, beyond 709 no float64.
each_spread = pytest.mark.parametrize("spread", [1.0, 300.0, 1e5])


def _inputs(spread, gate, length=LENGTH):
    inputs = attention_inputs(length, gate=gate)
    return {**inputs, "log_factor": spread * random_tensor(*inputs["v"].shape[:3], seed=4)}


def _defined(phi_q, phi_k, v, log_factor, gate_logits=None, padding=None, floor=0.1):
    """Pair by pair; factors are relative to the greatest up to t, and so is the floor."""
    kept = torch.ones(v.size(0), v.size(2), dtype=torch.bool) if padding is None else ~padding
    seen = torch.ones(v.size(2), v.size(2), dtype=torch.bool).tril() & kept[:, None, None]
    logarithms = log_factor.unsqueeze(-2).expand(*log_factor.shape[:2], v.size(2), v.size(2))
    greatest = logarithms.masked_fill(~seen, -1e30).amax(-1, keepdim=True)
    factors = torch.where(seen, logarithms - greatest, float("-inf")).exp()
    weights = phi_q @ phi_k.mT * factors * shares(phi_k, gate_logits, padding)
    return weights @ v / weights.sum(-1, keepdim=True).clamp(min=floor)


@each_spread
@with_and_without_gate
@pytest.mark.parametrize("kind", ["none", "left", "right", "middle", "all"])
@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_causal_with_factors_is_its_definition(spread, gate, kind, chunk_size):
    inputs, padding = _inputs(spread, gate), padding_mask(kind, LENGTH)
    out, state = rfa.causal(**inputs, padding=padding, chunk_size=chunk_size)
    kept = torch.ones(2, LENGTH, dtype=torch.bool) if padding is None else ~padding
    out, expected = (x.transpose(1, 2)[kept] for x in (out, _defined(**inputs, padding=padding)))
    assert largest_difference(out, expected) < DOUBLE
    greatest = inputs["log_factor"]
    if padding is not None:
        greatest = greatest.masked_fill(padding[:, None], LOWEST)
    assert torch.equal(state.log_scale, greatest.amax(-1))


@each_spread
@with_and_without_gate
@pytest.mark.parametrize("ends", [range(1, LENGTH + 1), (5, 5, 6, 20, LENGTH), (LENGTH,)])
def test_any_split_equals_one_call(spread, gate, ends):
    inputs, start, outputs = _inputs(spread, gate), 0, []
    state = None
    with torch.no_grad():
        for end in ends:
            if end - start == 1:
                out, decoding_state = decode(**piece(inputs, start, end), totals=state)
                state = decoding_state.totals()
            else:
                out, state = rfa.causal(**piece(inputs, start, end), state=state)
            outputs.append(out)
            start = end
    expected, after = rfa.causal(**inputs)
    assert largest_difference(torch.cat(outputs, dim=2), expected) < DOUBLE
    for actual, wanted in zip(state, after):
        assert largest_difference(actual, wanted) < DOUBLE


@with_and_without_gate
def test_factors_that_are_all_equal_change_nothing(gate):
    inputs = _inputs(1.0, gate)
    expected, _ = rfa.causal(**{name: x for name, x in inputs.items() if name != "log_factor"})
    for value in (0.0, 50.0, -1e4):
        inputs["log_factor"].fill_(value)
        assert largest_difference(rfa.causal(**inputs)[0], expected) < DOUBLE


@with_and_without_gate
def test_gradients_are_those_of_the_definition(gate):
    results = []
    for function in (lambda **options: rfa.causal(**options, chunk_size=4)[0], _defined):
        inputs = {name: x.clone().requires_grad_() for name, x in _inputs(1.0, gate).items()}
        out = function(**inputs)
        mixture = (out * random_tensor(*out.shape, seed=9)).sum()
        results.append(torch.autograd.grad(mixture, list(inputs.values())))
    for actual, expected in zip(*results):
        assert largest_difference(actual, expected) < 1e-9


@each_spread
def test_cross_with_factors_is_its_definition(spread):
    inputs = _inputs(spread, False)
    log_factor = inputs.pop("log_factor")
    phi_k = rfa.with_factors(inputs["phi_k"], log_factor)
    factors = (log_factor - log_factor.amax(-1, keepdim=True)).exp().unsqueeze(-2)
    weights = inputs["phi_q"] @ inputs["phi_k"].mT * factors
    expected = weights @ inputs["v"] / weights.sum(-1, keepdim=True).clamp(min=0.1)
    actual = rfa.cross(inputs["phi_q"], phi_k, inputs["v"])
    assert largest_difference(actual, expected) < DOUBLE


def test_without_gate_and_factors_there_is_no_recurrence():
    assert recurrence(None, None, padding_mask("left", 5)) is None


def test_padding_alone_leaves_the_scale_as_it_was():
    padding = torch.ones(2, 5, dtype=torch.bool)
    log_factor, before = random_tensor(2, 3, 5), random_tensor(2, 3, seed=2)
    flow = recurrence(random_tensor(2, 3, 5, seed=3), log_factor, padding, before)
    assert torch.equal(flow.log_scale, before)
    assert not flow.log_keep.any() and not flow.log_add.exp().any()
