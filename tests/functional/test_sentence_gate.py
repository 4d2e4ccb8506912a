"""The gate at the ends of sentences: the sums are multiplied once a separator has been read."""

import pytest
import torch

from definitions import KERNELS
from fairseq_rfa.attention.decoding_state import ROOM, empty_state, state_after
from fairseq_rfa.functional import local_window
from fairseq_rfa.functional.definition import reference_causal, reference_local_window
from fairseq_rfa.functional.encoding import Directions, Encoded
from fairseq_rfa.functional.linear_attention import causal
from helpers import (
    FLOOR,
    PADDINGS,
    attention_inputs,
    gradients,
    largest_difference,
    padding_mask,
    piece,
    random_generator,
    random_tensor,
    unit_vectors,
    weighted_mean,
    without_padding,
)

# float64, as the acceptance of fast forms has it; their errors are about 1e-15 and 1e-13.
SAME, SAME_GRADIENT = 1e-8, 1e-7
NEVER = torch.finfo(torch.float64).max


def inputs(length, seed=0, every=3):
    """Features, values, and logits of gates at every third position."""
    made = attention_inputs(length, gate=True, seed=seed)
    where = (torch.arange(length) + torch.arange(2)[:, None]) % every == 1
    made["gate_logits"] = made["gate_logits"].masked_fill(~where[:, None], NEVER)
    return made


def left(gate_logits, padding=None):
    """What gates leave of the key s at position t: all that stand at s, …, t − 1; (B, H, N, N)."""
    gates = torch.sigmoid(gate_logits)
    if padding is not None:
        gates = torch.where(padding[:, None], torch.ones_like(gates), gates)
    length = gates.size(-1)
    rows = []
    for t in range(length):
        row = [gates[..., s:t].prod(-1) if s <= t else torch.zeros_like(gates[..., 0]) for s in range(length)]
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=-2)


def defined(phi_q, phi_k, v, gate_logits, padding=None, floor=FLOOR):
    phi_k, v = without_padding(phi_k, padding), without_padding(v, padding)
    weights = torch.einsum("bhtf,bhsf->bhts", phi_q, phi_k) * left(gate_logits, padding)
    if padding is not None:
        weights = weights * ~padding[:, None, None]
    return weighted_mean(weights, v, floor)


def chunked(chunk_size):
    def run(**options):
        return causal(sentence_gate=True, floor=FLOOR, chunk_size=chunk_size, **options)[0]

    return run


def slow(**options):
    return reference_causal(sentence_gate=True, floor=FLOOR, **options)


@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_outputs_and_gradients_are_those_of_the_definition(kind, chunk_size):
    made, padding = inputs(13), padding_mask(kind, 13)
    kept = torch.ones(2, 13, dtype=torch.bool) if padding is None else ~padding
    expected = defined(**made, padding=padding).transpose(1, 2)[kept]
    for run in (slow, chunked(chunk_size)):
        out = run(**made, padding=padding).transpose(1, 2)[kept]
        assert largest_difference(out, expected) < SAME

    def of_kept(run):
        return lambda padding, **options: run(padding=padding, **options) * kept[:, None, :, None]

    wanted = gradients(of_kept(defined), made, padding=padding)
    for run in (slow, chunked(chunk_size)):
        for actual, other in zip(gradients(of_kept(run), made, padding=padding), wanted):
            assert largest_difference(actual, other) < SAME_GRADIENT


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("ends", [(5, 20), (4, 5, 6), (13,)])
def test_segments_go_on_from_states(factors, ends):
    """Also where a segment ends with a separator: what follows begins with less."""
    made = inputs(20)
    if factors:
        made["log_factor"] = random_tensor(2, 2, 20, seed=4)
    whole, last = causal(**made, sentence_gate=True, chunk_size=4)
    parts, state = [], None
    for start, end in zip((0, *ends), (*ends, 20)):
        out, state = causal(**piece(made, start, end), sentence_gate=True, state=state, chunk_size=4)
        parts.append(out)
    assert largest_difference(torch.cat(parts, dim=2), whole) < SAME
    for actual, expected in zip(state, last):
        assert largest_difference(actual, expected) < SAME


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("first", [0, 7])
def test_step_by_step(factors, first, without_gradients):
    """From the start and after positions in one chunk, while positions enter the sums; the state keeps its size."""
    length = ROOM + 30
    made = inputs(length)
    if factors:
        made["log_factor"] = random_tensor(2, 2, length, seed=4)
    whole, _ = causal(**made, sentence_gate=True)
    out, totals = causal(**piece(made, 0, first), sentence_gate=True)
    key = Encoded(made["phi_k"], made.get("log_factor"))
    state = empty_state(key, made["v"], Directions(), 0.1, True)
    if first:
        state = state_after(totals, Directions(), 0.1, True)
    sizes = {name: x.shape for name, x in state.items()}
    for t in range(first, length):
        now = piece(made, t, t + 1)
        key = Encoded(now["phi_k"], now.get("log_factor"))
        out = state.advance(Encoded(now["phi_q"]), key, now["v"], now["gate_logits"], sentence_gate=True)
        assert largest_difference(out, whole[:, :, t : t + 1]) < SAME
    assert {name: x.shape for name, x in state.items()} == sizes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("logit", [50.0, float("inf")])
def test_a_gate_of_one_is_none_to_the_last_bit(factors, dtype, logit):
    made = {name: x.to(dtype) for name, x in attention_inputs(37).items()}
    if factors:
        made["log_factor"] = random_tensor(2, 2, 37, seed=4, dtype=dtype)
    without = causal(**made, chunk_size=4)
    gate_logits = torch.full((2, 2, 37), logit, dtype=dtype)
    gated = causal(**made, gate_logits=gate_logits, sentence_gate=True, chunk_size=4)
    assert torch.equal(without[0], gated[0])
    assert all(torch.equal(*pair) for pair in zip(without[1], gated[1]))


def test_only_what_is_before_and_at_a_separator_is_gated():
    """The separator's own output and all outputs before it are those without a gate."""
    made = attention_inputs(12)
    logits = torch.full((2, 2, 12), NEVER, dtype=torch.float64)
    logits[..., 6] = -40.0
    gated, plain = causal(**made, gate_logits=logits, sentence_gate=True)[0], causal(**made)[0]
    assert largest_difference(gated[:, :, :7], plain[:, :, :7]) < SAME
    alone = causal(**piece(made, 7, 12))[0]
    assert largest_difference(gated[:, :, 7:], alone) < SAME


@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("window", [1, 3, 20])
@pytest.mark.parametrize("factors", [False, True])
def test_window(kind, window, factors):
    """Fast and slow, in one go and in segments."""
    generator = random_generator(3)
    made, padding = inputs(14), padding_mask(kind, 14)
    q, k = (unit_vectors(2, 2, 14, 5, generator=generator) for _ in range(2))
    log_factor = random_tensor(2, 2, 14, seed=4) if factors else None
    kernel, estimate = KERNELS["gaussian"](q, k), made["phi_q"] @ made["phi_k"].mT
    kept = torch.ones(2, 14, dtype=torch.bool) if padding is None else ~padding
    expected = reference_local_window(
        estimate, kernel, made["v"], window, made["gate_logits"], log_factor, padding, 0.05, sentence_gate=True
    )
    if not factors and window == 20:
        whole = weighted_mean(
            kernel * left(made["gate_logits"], padding) * kept[:, None, None], without_padding(made["v"], padding), 0.05
        )
        seen = kept & kept.cumsum(1).gt(0)
        assert largest_difference(expected.transpose(1, 2)[seen], whole.transpose(1, 2)[seen]) < SAME
    phi_k = made["phi_k"].masked_fill(~kept[:, None, :, None], 0.0)
    parts, state = [], None
    for start, end in ((0, 5), (5, 6), (6, 14)):
        now = slice(start, end)
        out, state = local_window.causal(
            Encoded(made["phi_q"][:, :, now], None, q[:, :, now]),
            Encoded(phi_k[:, :, now], None if log_factor is None else log_factor[:, :, now], k[:, :, now]),
            made["v"][:, :, now],
            KERNELS["gaussian"],
            window,
            gate_logits=made["gate_logits"][:, :, now],
            padding=None if padding is None else padding[:, now],
            state=state,
            chunk_size=4,
            floor=0.05,
            sentence_gate=True,
        )
        parts.append(out)
    actual, wanted = (x.transpose(1, 2)[kept] for x in (torch.cat(parts, dim=2), expected))
    assert largest_difference(actual, wanted) < SAME
