"""Language models that read a text in segments: as one long segment, if positions are continued."""

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from fairseq_rfa.language.carrying import carrying, causal_attentions, sinusoids, states_after
from helpers import largest_difference
from language_model_data import build_lm, random_tokens
from variants import FLAGS

COMBINATIONS = [*FLAGS, *(f"{flags} --rfa-gate" for flags in FLAGS if "--rfa-gate" not in flags)]
LENGTHS = 5, 1, 9, 20, 2


@torch.no_grad()
def in_segments(model, tokens, lengths=LENGTHS, continue_positions=True):
    """Outputs (B, N, vocabulary) of tokens (B, N)."""
    outputs, before, first = [], None, 0
    for segment in tokens.split(lengths, dim=1):
        with carrying(model, before, first if continue_positions else 0) as carried:
            outputs.append(model(segment)[0])
        before, first = states_after(carried), first + segment.size(1)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("flags", COMBINATIONS)
def test_segments_are_one_long_segment(text, text_task, flags):
    model, tokens = build_lm(text, *flags.split()), random_tokens(text_task, length=sum(LENGTHS))
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.float64, 1e-8)):
        model.to(dtype)
        with torch.no_grad():
            whole = model(tokens)[0]
        assert largest_difference(in_segments(model, tokens), whole) < tolerance


def test_positions_start_anew_where_they_are_not_continued(text, text_task):
    model, tokens = build_lm(text), random_tokens(text_task, length=sum(LENGTHS))
    continued, restarted = in_segments(model, tokens), in_segments(model, tokens, continue_positions=False)
    assert torch.equal(restarted[:, : LENGTHS[0]], continued[:, : LENGTHS[0]])
    assert largest_difference(restarted, continued) > 1e-3


@pytest.mark.parametrize("flags", ["", "--rfa-gate", "--rfa-gate --rfa-local-window 3"])
def test_what_stands_before_counts(text, text_task, flags):
    model, tokens = build_lm(text, *flags.split()), random_tokens(text_task, length=16)
    changed = tokens.clone()
    changed[:, 1] = text_task.source_dictionary.unk()
    one, other = (in_segments(model, x, (8, 8))[:, 8:] for x in (tokens, changed))
    assert largest_difference(one, other) > 1e-4


def test_a_model_is_left_as_it_was(text, text_task):
    model, tokens = build_lm(text), random_tokens(text_task)
    with torch.no_grad():
        before = model(tokens)[0]
        in_segments(model, tokens, (6, 6))
        assert torch.equal(model(tokens)[0], before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("width", [32, 33])
def test_later_positions_are_those_of_fairseq(width):
    table = SinusoidalPositionalEmbedding.get_embedding(5000, width, 1)
    positions = torch.tensor([[2, 3, 1023], [1024, 1025, 4999]])
    assert torch.equal(sinusoids(positions, width), table[positions])


@pytest.mark.parametrize("checkpointing", [(), ("--checkpoint-activations",)])
def test_gradients_of_a_segment(text, text_task, checkpointing):
    """Those of fairseq's backward with activations computed again are those without."""
    flags = "--rfa-gate --rfa-local-window 2 --dropout 0".split()
    plain, other = build_lm(text, *flags), build_lm(text, *flags, *checkpointing)
    other.load_state_dict(plain.state_dict())
    tokens = random_tokens(text_task, length=16)
    for model in (plain, other):
        model.train()
        before = None
        for segment in tokens.split(8, dim=1):
            with carrying(model, before, first_position=8) as carried:
                model(segment)[0].square().sum().backward()
            before = states_after(carried)
    for one, two in zip(plain.parameters(), other.parameters()):
        assert largest_difference(two.grad, one.grad) < 1e-5


def test_a_dropped_layer_keeps_its_state(text, text_task):
    model, tokens = build_lm(text), random_tokens(text_task)
    with torch.no_grad(), carrying(model, None) as carried:
        model(tokens)
    states = states_after(carried)
    with torch.no_grad(), carrying(model, states) as carried:
        causal_attentions(model)[0](torch.ones(12, 3, 32))
    after = states_after(carried)
    assert after[1] is states[1] and after[0] is not states[0]
