import numpy as np
import pytest
import torch

from fairseq_rfa.functional.random_matrices import MatrixPool, draw_phases, draw_pool
from helpers import make_pool

both_kinds = pytest.mark.parametrize("orthogonal", [False, True])


@both_kinds
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 8), (2, 8, 8), (2, 20, 8)])
def test_shape_and_type(sizes, orthogonal):
    pool = draw_pool(*sizes, seed=1, orthogonal=orthogonal)
    assert pool.shape == sizes
    assert pool.dtype == torch.float32
    assert pool.isfinite().all()


@both_kinds
def test_the_seed_decides(orthogonal):
    first, again, other = (draw_pool(2, 12, 8, seed, orthogonal) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).any()


def test_drawing_leaves_global_generators_alone():
    np.random.seed(3)
    torch.manual_seed(3)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    draw_pool(2, 3, 4, seed=1, orthogonal=True)
    assert (np.random.get_state()[1] == numpy_state).all()
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_stream_is_numpys_legacy_one():
    """These numbers are those of RandomState(1), which NumPy promises to keep: checkpoints rely on them."""
    golden = [1.6243454, -0.6117564, -0.5281718, -1.0729686, 0.86540765, -2.3015387]
    assert draw_pool(1, 2, 3, seed=1).flatten().tolist() == np.float32(golden).tolist()


def test_orthogonal_stream_is_kept():
    """The decomposition may differ in the last digit between LAPACKs, hence the tolerance."""
    actual = draw_pool(2, 2, 2, seed=1, orthogonal=True)
    golden = [[[0.3700369, 1.6958232], [1.1684281, -0.2549567]],
              [[-0.6725757, 2.3650904], [-1.8310307, -0.5207018]]]
    torch.testing.assert_close(actual, torch.tensor(golden), rtol=1e-6, atol=1e-6)


@both_kinds
def test_each_row_alone_is_standard_normal(orthogonal):
    count = 20000
    pool = draw_pool(count, 3, 2, seed=4, orthogonal=orthogonal).double()
    # The moments 1, 2 and 4 of N(0, 1) are 0, 1 and 3, with variances 1, 2 and 96.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        error = (pool**power).mean(0) - moment
        assert error.abs().max() < 4.5 * (variance / count) ** 0.5  # 6 entries
    products = (pool[..., 0] * pool[..., 1]).mean(0)  # entries of a row: uncorrelated
    assert products.abs().max() < 4.5 * count**-0.5


@both_kinds
def test_squared_lengths_are_chi_squared(orthogonal):
    degrees, count = 16, 200 * 64
    squares = draw_pool(200, 64, degrees, seed=2, orthogonal=orthogonal).double().pow(2).sum(-1)
    assert abs(squares.mean() - degrees) < 4 * (2 * degrees / count) ** 0.5
    error_of_variance = ((8 * degrees**2 + 48 * degrees) / count) ** 0.5
    assert abs(squares.var() - 2 * degrees) < 4 * error_of_variance
    # Quantiles of the chi-squared distribution with 16 degrees of freedom.
    for quantile, value in ((0.05, 7.9616), (0.5, 15.3385), (0.95, 26.2962)):
        share = (squares < value).double().mean()
        assert abs(share - quantile) < 4 * (quantile * (1 - quantile) / count) ** 0.5


@pytest.mark.parametrize("num_directions", [1, 5, 8, 16, 20])
def test_orthogonal_in_blocks(num_directions):
    rows = draw_pool(3, num_directions, 8, seed=3, orthogonal=True)
    rows = rows / rows.norm(dim=-1, keepdim=True)
    for block in rows.split(8, dim=1):
        # float32 entries: rounding stays well below 1e-4
        torch.testing.assert_close(
            block @ block.mT, torch.eye(block.size(1)).expand(3, -1, -1), rtol=0, atol=1e-4
        )


def test_blocks_differ():
    first, second = draw_pool(1, 16, 8, seed=3, orthogonal=True)[0].split(8)
    assert (first @ second.mT).abs().max() > 1


@pytest.mark.parametrize("name", ["num_matrices", "num_directions", "head_dim"])
@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused(name, size):
    sizes = {"num_matrices": 1, "num_directions": 1, "head_dim": 1, name: size}
    with pytest.raises(ValueError, match=f"{name}.*{size}"):
        draw_pool(**sizes, seed=1)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(ValueError, match=str(seed)):
        draw_pool(1, 1, 1, seed=seed)


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_seeds_at_the_ends_of_the_range(seed):
    assert draw_pool(1, 1, 1, seed=seed).isfinite().all()


def test_pool_is_neither_saved_nor_trained():
    pool = make_pool()
    assert not pool.state_dict()
    assert not list(pool.parameters())
    assert not pool.matrices.requires_grad


@pytest.mark.parametrize("cast", ["half", "double", "bfloat16", "float"])
def test_pool_stays_float32(cast):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), make_pool())
    before = model[1].matrices.clone()
    getattr(model, cast)()
    assert model[1].matrices.dtype == torch.float32
    assert torch.equal(model[1].matrices, before)


def test_pool_follows_the_device():
    assert make_pool().to("meta").matrices.device.type == "meta"


def test_pool_is_what_draw_pool_draws():
    pool = MatrixPool(3, 5, 4, seed=9, orthogonal=True)
    assert torch.equal(pool.matrices, draw_pool(3, 5, 4, seed=9, orthogonal=True))


@pytest.mark.parametrize("layer_index, rows", [(0, [0, 1, 2]), (1, [3, 4, 0]), (4, [2, 3, 4])])
def test_rows_of_a_layer(layer_index, rows):
    pool = make_pool(num_matrices=5)
    assert torch.equal(pool.rows_of_layer(layer_index, 3), torch.tensor(rows))


def _drawn_rows(pool, num_heads):
    drawn = pool.matrices[pool.draw_rows(num_heads)]
    matches = (drawn[:, None] == pool.matrices[None]).flatten(2).all(-1)
    assert (matches.sum(1) == 1).all()
    return matches.int().argmax(1)


def test_draws_come_from_torchs_generator():
    pool = make_pool()
    torch.manual_seed(1)
    first, second = _drawn_rows(pool, 6), _drawn_rows(pool, 6)
    torch.manual_seed(1)
    assert torch.equal(_drawn_rows(pool, 6), first)
    assert not torch.equal(first, second)


def test_heads_draw_apart_and_every_matrix_is_drawn():
    torch.manual_seed(1)
    counts = _drawn_rows(make_pool(), 4000).bincount(minlength=8)
    # 4,000 draws of 8: 500 each, within 4 standard deviations of 21
    assert (counts - 500).abs().max() < 84


def test_phases_are_uniform_on_a_turn():
    count = 20000
    phases = draw_phases(count // 4, 4, seed=4)
    assert phases.dtype == torch.float32 and phases.shape == (count // 4, 4)
    assert phases.min() >= 0 and phases.max() <= np.float32(2 * np.pi)
    turns = phases.double().flatten() / (2 * np.pi)
    # The moments of a uniform variable on [0, 1): 1/(p + 1), with variance 1/(2p + 1) − 1/(p + 1)².
    for power in (1, 2, 4):
        variance = 1 / (2 * power + 1) - 1 / (power + 1) ** 2
        error = (turns**power).mean() - 1 / (power + 1)
        assert error.abs() < 4 * (variance / count) ** 0.5
    for frequency in (1, 2):  # cos and sin over the turn: mean 0, variance 1/2
        for wave in (torch.cos, torch.sin):
            assert wave(2 * np.pi * frequency * turns).mean().abs() < 4 * (0.5 / count) ** 0.5


def test_stream_of_phases_is_kept():
    """Checkpoints rely on these numbers: those of RandomState([seed, 1])."""
    golden = [1.45099545, 3.2195787, 2.6048999, 0.57593113]
    assert draw_phases(1, 4, seed=1).flatten().tolist() == np.float32(golden).tolist()
    assert torch.equal(draw_phases(1, 4, seed=1), draw_phases(3, 4, seed=1)[:1])


def test_phases_do_not_follow_from_the_matrices_of_their_seed():
    """The correlation of 40,000 independent pairs has a standard error of 0.005, also in absolute value."""
    phases = draw_phases(10000, 4, seed=5).double().flatten() - np.pi
    entries = draw_pool(10000, 4, 1, seed=5).double().flatten()
    uniform = torch.from_numpy(np.random.RandomState(5).uniform(size=40000))
    for other in (entries, entries.abs(), uniform):
        for phase in (phases, phases.abs()):
            assert torch.corrcoef(torch.stack([phase, other]))[0, 1].abs() < 0.02
    assert not torch.isclose(draw_phases(2, 4, seed=5), draw_phases(2, 4, seed=6)).any()


@pytest.mark.parametrize(
    "name, value", [("num_matrices", 0), ("num_directions", -1), ("seed", -1), ("seed", 2**32)]
)
def test_impossible_phases_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        draw_phases(**{"num_matrices": 1, "num_directions": 1, "seed": 1, name: value})


def test_phases_of_a_pool_change_no_matrix_and_are_treated_like_them():
    pool = make_pool(with_phases=True)
    assert torch.equal(pool.phases, draw_phases(8, 16, seed=1))
    assert torch.equal(pool.matrices, make_pool().matrices) and make_pool().phases is None
    assert not pool.state_dict() and not list(pool.parameters())
    before = pool.phases.clone()
    assert torch.equal(pool.half().double().phases, before) and pool.phases.dtype == torch.float32
    assert pool.to("meta").phases.device.type == "meta"
