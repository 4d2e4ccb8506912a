"""The state of causal attention in long searches: positions enter the sums, hypotheses change their parents."""

import copy
import pickle
from contextlib import nullcontext

import pytest
import torch

from fairseq_rfa.attention import CausalRFA
from fairseq_rfa.attention.decoding_state import ROOM, ROOM_BESIDE_SUMS
from helpers import (
    largest_difference,
    make_causal,
    make_cross,
    make_pool,
    random_generator,
    random_tensor,
    state_of,
)

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


each_state = pytest.mark.parametrize(
    "make",
    [
        make_causal,
        lambda: make_causal(gate=True, feature_map="positive"),
        lambda: make_causal(gate=True, local_window=3),
        lambda: make_causal(feature_map="positive", local_window=ROOM + 9),
        make_cross,
    ],
    ids=["plain", "gate and factors", "window", "long window", "cross"],
)


def _continued(module, incremental_state, seeds):
    key = random_tensor(5, 4, 24)
    return torch.cat(
        [module(random_tensor(1, 4, 32, seed=seed), key, key, None, incremental_state)[0] for seed in seeds]
    )


@each_state
@pytest.mark.parametrize("before", [1, ROOM + 2])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_a_copy_is_a_search_of_its_own(make, before, copied):
    module, incremental_state = make(), {}
    _continued(module, incremental_state, range(before))
    branch = copied(incremental_state)
    expected = _continued(module, incremental_state, range(100, 120))
    module.reorder_incremental_state(incremental_state, torch.tensor([3, 3, 0, 0]))
    _continued(module, incremental_state, range(200, 203))
    assert torch.equal(_continued(module, branch, range(100, 120)), expected)


def test_copies_with_large_packed_layers():
    module = CausalRFA(512, 8, make_pool(16, 64), 0, gate=True).eval()
    incremental_state = {}
    x = random_tensor(3, 2, 512, dtype=torch.float32)
    module(x[:1], incremental_state=incremental_state)
    assert state_of(module, incremental_state).projection.packed is not None
    for branch in (copy.deepcopy(incremental_state), pickle.loads(pickle.dumps(incremental_state))):
        state = copy.deepcopy(incremental_state)
        for t in (1, 2):
            out, _ = module(x[t : t + 1], incremental_state=branch)
            assert torch.equal(out, module(x[t : t + 1], incremental_state=state)[0])


@each_state
def test_a_branch_that_would_share_its_tensors_is_refused(make):
    module, incremental_state = make(), {}
    _continued(module, incremental_state, range(3))
    shallow = {key: dict(value) for key, value in incremental_state.items()}
    cloned = {key: {name: x.clone() for name, x in value.items()} for key, value in incremental_state.items()}
    for branch in (shallow, cloned):
        with pytest.raises(TypeError, match=r"copy\.deepcopy\(incremental_state\)"):
            _continued(module, branch, [7])
        with pytest.raises(TypeError, match=r"copy\.deepcopy\(incremental_state\)"):
            module.reorder_incremental_state(branch, torch.tensor([0, 0, 1, 1]))


@each_state
@pytest.mark.parametrize("modes", [(True, False), (False, True), (True, False, True, False)])
def test_a_search_goes_on_in_inference_mode_or_out_of_it(make, modes):
    module, expected_state, incremental_state = make(), {}, {}
    order = torch.tensor([1, 1, 3, 0])
    for part, inference in enumerate(modes):
        seeds = range(10 * part, 10 * part + 4)
        expected = _continued(module, expected_state, seeds)
        module.reorder_incremental_state(expected_state, order)
        with torch.inference_mode() if inference else nullcontext():
            assert torch.equal(_continued(module, incremental_state, seeds), expected)
            module.reorder_incremental_state(incremental_state, order)
            module.reorder_incremental_state(incremental_state, torch.arange(4))
