"""Decoding: the modules with an incremental state give what they give without one."""

import pytest
import torch

from helpers import (
    largest_difference,
    make_causal,
    make_cross,
    padding_mask,
    random_generator,
    random_tensor,
    state_of,
)

with_and_without_gate = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])
pytestmark = pytest.mark.usefixtures("without_gradients")
DOUBLE = 1e-10  # float64: rounding of a few hundred products


def _in_pieces(module, x, ends, padding=None):
    """One call for each piece of x; the mask is left out where no position is padded, as fairseq does."""
    start, outputs, incremental_state = 0, [], {}
    for end in ends:
        mask = None
        if padding is not None and padding[:, start:end].any():
            mask = padding[:, start:end]
        query = x[start:end]
        outputs.append(module(query, query, query, mask, incremental_state)[0])
        start = end
    return torch.cat(outputs)


@with_and_without_gate
@pytest.mark.parametrize("kind", ["none", "left", "right", "middle", "all"])
@pytest.mark.parametrize("ends", [range(1, 14), (13,), (5, 6, 7, 13), (1, 9, 13), (4, 4, 13)])
def test_causal_in_pieces(gate, kind, ends):
    module, x, padding = make_causal(gate, chunk_size=4), random_tensor(13, 3, 32), None
    if kind != "none":
        padding = padding_mask(kind, 13, batch=3)
    expected, _ = module(x, x, x, padding)
    assert largest_difference(_in_pieces(module, x, ends, padding), expected) < DOUBLE


@with_and_without_gate
def test_causal_in_pieces_with_gradients(gate):
    module, x = make_causal(gate), random_tensor(6, 2, 32)
    results = []
    with torch.enable_grad():
        for out in (module(x, x, x)[0], _in_pieces(module, x, range(1, 7))):
            module.zero_grad()
            (out * random_tensor(*out.shape, seed=2)).sum().backward()
            results.append([parameter.grad.clone() for parameter in module.parameters()])
    for one, two in zip(*results):
        assert largest_difference(one, two) < DOUBLE


@with_and_without_gate
def test_causal_state_does_not_grow(gate):
    module, sizes = make_causal(gate), set()
    for length in (1, 7, 300):
        incremental_state = {}
        x = random_tensor(length, 2, 32)
        module(x, incremental_state=incremental_state)
        module(x[:1], incremental_state=incremental_state)
        state = state_of(module, incremental_state)
        sizes.add(tuple((x.shape, x.untyped_storage().nbytes()) for x in state.values()))
    assert len(sizes) == 1


# Orders of hypotheses: change of parents, fewer rows, more rows, one row, none changed.
ORDERS = [[2, 0, 0, 3], [3, 1], [1, 0, 0, 1, 1], [4], [0]]


@with_and_without_gate
@pytest.mark.parametrize("pieces", [1, 3])
def test_causal_reordered_is_recomputed(gate, pieces):
    module, incremental_state = make_causal(gate), {}
    prefix = random_tensor(pieces, 4, 32)
    module(prefix, incremental_state=incremental_state)
    for seed, order in enumerate(ORDERS):
        order = torch.tensor(order)
        module.reorder_incremental_state(incremental_state, order)
        new = random_tensor(pieces, len(order), 32, seed=10 + seed)
        prefix = torch.cat([prefix[:, order], new])
        out, _ = module(new, incremental_state=incremental_state)
        assert largest_difference(out, module(prefix)[0][-pieces:]) < DOUBLE


def _addresses(module, incremental_state):
    return [x.data_ptr() for x in state_of(module, incremental_state).values()]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_identity_copies_nothing(beam_size):
    x, order = random_tensor(2, 6, 32), torch.arange(6)
    key = random_tensor(5, 2, 24).repeat_interleave(3, dim=1)
    for module in (make_causal(), make_causal(gate=True), make_cross()):
        module.set_beam_size(beam_size)
        incremental_state = {}
        module(x, key, key, incremental_state=incremental_state)
        before = _addresses(module, incremental_state)
        module.reorder_incremental_state(incremental_state, order)
        assert _addresses(module, incremental_state) == before


def test_reordering_before_the_first_call_does_nothing():
    for module in (make_causal(), make_cross()):
        incremental_state = {}
        module.reorder_incremental_state(incremental_state, torch.tensor([1, 0]))
        assert not state_of(module, incremental_state)


def _cross_equals_recomputed(module, key, padding, orders, length=1, rows_of_state=None):
    """Decode with a state and reorder it before every step; the source rows follow along."""
    incremental_state = {}
    for step, order in enumerate([None, *orders]):
        if order is not None:
            order = torch.as_tensor(order)
            module.reorder_incremental_state(incremental_state, order)
            key, padding = key[:, order], None if padding is None else padding[order]
        query = random_tensor(length, key.size(1), 32, seed=20 + step)
        out, weights = module(query, key, key, padding, incremental_state, need_head_weights=True)
        expected, expected_weights = module(query, key, key, padding, need_head_weights=True)
        assert largest_difference(out, expected) < DOUBLE
        assert largest_difference(weights, expected_weights) < DOUBLE
        if rows_of_state is not None:
            state = state_of(module, incremental_state)
            assert {x.size(0) for x in state.values()} == {rows_of_state[step]}


def _orders_of_beam_search(sentences, beams, remaining, seed=3):
    """fairseq's orders: parents change within a sentence, and finished sentences leave the rows."""
    generator = random_generator(seed)
    for kept in remaining:
        parents = torch.randint(beams, (len(kept), beams), generator=generator)
        yield (torch.tensor(kept)[:, None] * beams + parents).flatten()


# Sentences (as numbers in the step before) that go on.
REMAINING = [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2], [1, 2], [1], [0]]
ROWS_OF_STATE = [4, 4, 3, 3, 2, 1, 1]


@pytest.mark.parametrize("beams", [2, 5])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("kind", ["none", "right", "all"])
def test_cross_state_is_one_row_for_each_sentence(beams, length, kind):
    module = make_cross()
    module.set_beam_size(beams)
    key, padding = random_tensor(9, 4, 24), padding_mask(kind, 9, batch=4)
    key = key.repeat_interleave(beams, dim=1)
    if padding is not None:
        padding = padding.repeat_interleave(beams, dim=0)
    orders = _orders_of_beam_search(4, beams, REMAINING)
    _cross_equals_recomputed(module, key, padding, orders, length, ROWS_OF_STATE)


def test_cross_without_beams():
    key, orders = random_tensor(9, 4, 24), [[0, 1, 2, 3], [3, 0, 0, 1], [2, 1], [0, 0, 1]]
    _cross_equals_recomputed(make_cross(), key, None, orders, 1, [4, 4, 4, 2, 3])


@pytest.mark.parametrize("rows", [10, 7, 5, 1])
def test_a_beam_size_that_is_not_that_of_the_rows(rows):
    module = make_cross()
    module.set_beam_size(5)
    reverse = list(reversed(range(rows)))
    _cross_equals_recomputed(module, random_tensor(9, rows, 24), None, [reverse, [0], [0, 0]])


MIXING_ORDERS = [
    [[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]],
    [[9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]],
    [[0, 1, 2, 3, 4, 9], [5, 0]],
    [[4, 5], [1, 1, 0, 0, 0]],
    [[0, 0, 0, 0, 0, 7, 7, 7, 7, 8], [5, 5, 5, 5, 5], [0, 1, 2, 3, 4]],
]


@pytest.mark.parametrize("orders", MIXING_ORDERS)
def test_rows_that_are_equal_by_accident(orders):
    """Ten rows of two values look like two sentences of five hypotheses, and are not."""
    module = make_cross()
    module.set_beam_size(5)
    key = random_tensor(9, 2, 24).repeat_interleave(5, dim=1)
    _cross_equals_recomputed(module, key, None, orders)


def test_equal_rows_with_different_padding():
    module = make_cross()
    module.set_beam_size(2)
    key = random_tensor(9, 1, 24).expand(-1, 4, -1)
    _cross_equals_recomputed(module, key, padding_mask("right", 9, batch=4), [[3, 0, 1, 2], [1, 0]])


def test_the_beam_size_may_change_between_searches():
    module, key = make_cross(), random_tensor(9, 2, 24)
    for beams in (5, 1, 2):
        module.set_beam_size(beams)
        orders = _orders_of_beam_search(2, beams, [[0, 1], [1]])
        rows = key.repeat_interleave(beams, dim=1)
        _cross_equals_recomputed(module, rows, None, orders, 1, [2, 2, 1])


def test_the_source_is_read_once():
    module, incremental_state = make_cross(), {}
    query, key = random_tensor(1, 2, 32), random_tensor(9, 2, 24)
    first, _ = module(query, key, key, None, incremental_state, need_weights=False)
    again, _ = module(query, None, None, None, incremental_state, need_weights=False)
    assert torch.equal(first, again)
