"""The state of causal attention in long searches: positions enter the sums, hypotheses change their parents."""

import pytest
import torch

from fairseq_rfa.attention.decoding_state import ROOM, ROOM_BESIDE_SUMS
from helpers import largest_difference, make_causal, random_generator, random_tensor, state_of

pytestmark = pytest.mark.usefixtures("without_gradients")
DOUBLE = 1e-10  # float64: rounding of a few hundred products
each_kind = pytest.mark.parametrize(
    "make",
    [
        make_causal,
        lambda: make_causal(gate=True),
        lambda: make_causal(unnormalized=True),
        lambda: make_causal(gate=True, feature_map="positive"),
    ],
    ids=["plain", "gate", "factors", "gate and factors"],
)


def _search(module, orders, rows):
    """Decode one position after each order; every output is compared with that of the whole prefix."""
    incremental_state, newest = {}, []
    prefix = random_tensor(0, rows, 32)
    for step, order in enumerate(orders):
        order = torch.tensor(order)
        module.reorder_incremental_state(incremental_state, order)
        new = random_tensor(1, len(order), 32, seed=50 + step)
        prefix = torch.cat([prefix[:, order], new])
        out, _ = module(new, incremental_state=incremental_state)
        assert largest_difference(out, module(prefix)[0][-1:]) < DOUBLE
        newest.append(state_of(module, incremental_state).num_newest)
    return newest


def _random_orders(rows, number, seed=4):
    generator = random_generator(seed)
    return [torch.randint(rows, (rows,), generator=generator).tolist() for _ in range(number)]


@each_kind
def test_random_parents(make):
    newest = _search(make(), _random_orders(4, 2 * ROOM), rows=4)
    assert newest[: ROOM + 1] == [*range(1, ROOM + 1), 1] and max(newest[ROOM:]) == ROOM_BESIDE_SUMS


@each_kind
@pytest.mark.parametrize("before", [3, ROOM + 3])
def test_one_parent_changes_rows_leave_and_come(make, before):
    same = list(range(6))
    orders = [same] * before + [[0, 0, 2, 3, 4, 5], same, [5, 1], [1, 0, 0], *_random_orders(3, 3)]
    _search(make(), orders, rows=6)


@each_kind
def test_several_positions_after_a_search(make):
    module, incremental_state = make(), {}
    x = random_tensor(ROOM + 25, 3, 32)
    pieces = x.split([*[1] * (ROOM + 5), 7, *[1] * 10, 3])
    out = torch.cat([module(piece, incremental_state=incremental_state)[0] for piece in pieces])
    assert largest_difference(out, module(x)[0]) < DOUBLE


@each_kind
def test_size_is_fixed_from_the_first_step_on(make):
    module, incremental_state, sizes = make(), {}, set()
    for step in range(2 * ROOM):
        module(random_tensor(1, 4, 32, seed=step), incremental_state=incremental_state)
        state = state_of(module, incremental_state)
        sizes.add(tuple(x.untyped_storage().nbytes() for x in state.values()))
    assert len(sizes) == 1
