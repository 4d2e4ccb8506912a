"""Causal attention over segments of a text: what one leaves for the next, and the same without segments."""

import pytest
import torch

from fairseq_rfa.attention import base
from fairseq_rfa.attention.carried_state import CarriedState
from fairseq_rfa.functional.encoding import FEATURE_MAPS
from helpers import largest_difference, make_causal, padding_mask, random_tensor, trained_parameters

LENGTHS = 5, 1, 7, 64, 3
WITH_WINDOW = [name for name, known in FEATURE_MAPS.items() if known.kernel is not None]
VARIANTS = [
    *((name, gate, 0) for name in FEATURE_MAPS for gate in (False, True)),
    *((name, gate, 4) for name in WITH_WINDOW for gate in (False, True)),
]
each_variant = pytest.mark.parametrize("name, gate, window", VARIANTS)


def in_segments(attention, x, lengths=LENGTHS, padding=None):
    """The output for x (N, B, embed_dim) in segments of these lengths, and the state after the last."""
    outputs, before = [], None
    paddings = [None] * len(lengths) if padding is None else padding.split(lengths, dim=1)
    for segment, mask in zip(x.split(lengths), paddings):
        carried = CarriedState(before)
        outputs.append(attention(segment, key_padding_mask=mask, carried=carried)[0])
        before = carried.after
    return torch.cat(outputs), before


def last_row(totals):
    return type(totals)(*(None if x is None else x[-1:] for x in totals))


@each_variant
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-8), (torch.float32, 2e-4)])
def test_segments_are_one_text(name, gate, window, dtype, tolerance):
    attention = make_causal(gate=gate, feature_map=name, local_window=window).to(dtype)
    x = random_tensor(sum(LENGTHS), 3, 32, dtype=dtype)
    assert largest_difference(in_segments(attention, x)[0], attention(x)[0]) < tolerance


@pytest.mark.parametrize("kind", ["right", "all"])
@pytest.mark.parametrize("window", [0, 4])
def test_the_state_passes_through_padding(kind, window):
    attention = make_causal(gate=True, local_window=window)
    x, mask = random_tensor(9, 2, 32), padding_mask(kind, 9)
    _, before = in_segments(attention, random_tensor(6, 2, 32, seed=3), lengths=(6,))
    carried, alone = CarriedState(before), CarriedState(last_row(before))
    attention(x, key_padding_mask=mask, carried=carried)
    words = (~mask[1]).sum()
    attention(x[:words, 1:], carried=alone)
    for with_padding, without in zip(carried.after, alone.after):
        if without is not None:
            assert largest_difference(with_padding[1:], without) < 1e-12


@each_variant
def test_gradients_end_at_the_start_of_a_segment(name, gate, window):
    """The second segment's inputs have those of one text, the first segment's have none."""
    attention = make_causal(gate=gate, feature_map=name, local_window=window)
    first, second = random_tensor(6, 2, 32).requires_grad_(), random_tensor(5, 2, 32, seed=2).requires_grad_()
    _, before = in_segments(attention, first, lengths=(6,))
    assert not any(x is not None and x.requires_grad for x in before)
    attention(second, carried=CarriedState(before))[0].square().sum().backward()
    assert first.grad is None
    assert all(parameter.grad is not None for parameter in trained_parameters(attention).values())
    found, second.grad = second.grad, None
    attention(torch.cat([first, second]))[0][6:].square().sum().backward()
    assert largest_difference(found, second.grad) < 1e-8


def test_a_segment_may_be_computed_again():
    attention, x = make_causal(gate=True, local_window=3), random_tensor(8, 2, 32)
    _, before = in_segments(attention, x, lengths=(8,))
    copies = [None if y is None else y.clone() for y in before]
    carried = CarriedState(before)
    once = attention(x, carried=carried)[0]
    left = carried.after
    assert torch.equal(attention(x, carried=carried)[0], once)
    assert all(torch.equal(y, z) for y, z in zip(left, carried.after) if y is not None)
    assert all(torch.equal(y, z) for y, z in zip(before, copies) if y is not None)


@pytest.mark.parametrize("window", [0, 3])
def test_groups_of_rows_keep_their_states(window, monkeypatch):
    attention, x = make_causal(gate=True, feature_map="positive", local_window=window), random_tensor(20, 5, 32)
    whole, left = in_segments(attention, x, lengths=(12, 8))
    monkeypatch.setattr(base, "GROUP_ENTRIES", 2 * 12 * 2 * 4 * 32)  # two rows of the first segment
    grouped, left_in_groups = in_segments(attention, x, lengths=(12, 8))
    assert largest_difference(grouped, whole) < 1e-12
    for one, other in zip(left_in_groups, left):
        assert one is None and other is None or largest_difference(one, other) < 1e-12


def test_a_first_segment_is_a_text():
    """To the last bit: there is nothing before it."""
    attention, x = make_causal(gate=True), random_tensor(70, 3, 32)
    assert torch.equal(in_segments(attention, x, lengths=(70,))[0], attention(x)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_state_is_wide(dtype):
    attention = make_causal(gate=True).to(dtype)
    _, left = in_segments(attention, random_tensor(9, 2, 32, dtype=dtype), lengths=(4, 5))
    assert {x.dtype for x in left} == {torch.float32}


def test_the_size_of_the_state_is_fixed():
    attention = make_causal(gate=True, local_window=4)
    sizes = [
        [None if y is None else y.shape for y in in_segments(attention, random_tensor(n, 2, 32), lengths=(n,))[1]]
        for n in (1, 3, 50)
    ]
    assert sizes[0] == sizes[1] == sizes[2]
