"""The two modules in training: draws, gradients, precision."""

import pytest
import torch

from fairseq_rfa.attention import CausalRFA
from fairseq_rfa.attention.base import in_groups
from helpers import call, largest_difference, make_causal, make_cross, random_tensor, trained_parameters
from variants import CAUSAL, CROSS, ENCODER, each, each_variant

WITHOUT_DRAWS = [name for name in CAUSAL + CROSS if name.split()[1] in ("elu", "learned", "hedgehog")]
each_that_draws = each([name for name in CAUSAL + CROSS if name not in WITHOUT_DRAWS])


@each(CAUSAL + CROSS + ENCODER)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_zero_vectors(make, dtype):
    module = make().to(dtype)
    with torch.no_grad():
        for projection in (module.q_proj, module.k_proj, module.v_proj):
            for parameter in projection.parameters():
                parameter.zero_()
    out = call(module, dtype=dtype)
    out.float().sum().backward()
    assert out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in trained_parameters(module).values())


@each_variant
@pytest.mark.parametrize("training", [False, True])
def test_every_parameter_has_a_gradient(make, training):
    module = make().train(training)
    call(module).pow(2).sum().backward()
    for parameter in trained_parameters(module).values():
        assert parameter.grad.isfinite().all() and parameter.grad.any()
    if module.pool is not None:
        assert all(x.grad is None for x in module.pool.buffers())


@each_variant
def test_fixed_sigma_has_no_gradient(make):
    module = make(fixed_sigma=True)
    call(module).pow(2).sum().backward()
    assert module.sigma.grad is None
    assert "sigma" in module.state_dict()


@each_that_draws
def test_training_draws_and_evaluation_does_not(make):
    module = make()
    assert torch.equal(call(module), call(module))
    module.train()
    torch.manual_seed(1)
    first, second = call(module), call(module)
    assert largest_difference(first, second) > 1e-3
    torch.manual_seed(1)
    assert torch.equal(call(module), first)


@each(WITHOUT_DRAWS)
def test_maps_without_random_directions_draw_nothing(make):
    module = make()
    expected, state = call(module), torch.get_rng_state()
    assert torch.equal(call(module.train()), expected)
    assert torch.equal(torch.get_rng_state(), state)


@each(["causal cosine", "cross cosine"])
def test_phases_are_drawn_with_their_matrices(make):
    module = make().train()
    directions = module.directions()
    for w, b in zip(directions.w, directions.b):
        row = int((module.pool.matrices == w).flatten(1).all(1).int().argmax())
        assert torch.equal(w, module.pool.matrices[row].double())
        assert torch.equal(b, module.pool.phases[row].double())


@each_variant
def test_fixed_matrices_train_as_they_evaluate(make):
    module = make(fixed_matrices=True)
    expected = call(module)
    state = torch.get_rng_state()
    assert torch.equal(call(module.train()), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_query_and_key_share_one_draw():
    """With the same directions φ(x)·φ(x) is 1, and over a floor of 10 that is a weight of 0.1."""
    module = make_cross(kdim=32, vdim=32, floor=10.0).train()
    module.q_proj = module.k_proj
    x = random_tensor(1, 3, 32)
    weights = module(x, x, x, need_head_weights=True)[1]
    torch.testing.assert_close(weights, torch.full_like(weights, 0.1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gate", [False, True])
def test_query_and_key_of_causal_attention_share_one_draw(gate):
    module = make_causal(gate, floor=10.0).train()
    module.q_proj = module.k_proj
    x = random_tensor(1, 3, 32)
    weight = 0.1 * (1 - torch.sigmoid(module.gate_proj(x))) if gate else torch.full((1, 3, 4), 0.1)
    expected = module.out_proj(module.v_proj(x) * weight.repeat_interleave(8, dim=-1))
    assert largest_difference(module(x, x, x)[0], expected) < 1e-6  # 0.1 is a float32


@each_that_draws
def test_evaluation_matrices_are_those_of_the_layer(make):
    module = make()
    assert torch.equal(module.evaluation_matrices(), module.pool.matrices[4:8])
    expected = call(module)
    with torch.no_grad():
        for x in module.pool.buffers():
            x[:4] = 0  # rows of another layer
    assert torch.equal(call(module), expected)


# Each map and option once: 4,096 positions take a while.
HALF_PRECISION = [
    "causal gaussian unnormalized gate window=3",
    "causal arccos gate window=1",
    "causal arccos unnormalized",
    "causal positive gate window=3",
    "causal positive unnormalized gate",
    "causal positive unnormalized window=1",
    "causal cosine unnormalized",
    "causal elu gate",
    "causal learned unnormalized gate",
    "cross gaussian unnormalized",
    "cross positive unnormalized",
    "cross elu",
]


@each([*HALF_PRECISION, "causal gaussian", "causal gaussian gate", "cross gaussian"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision(make, dtype):
    """4,096 positions with inputs ten times the usual size."""
    module = make().to(dtype)
    query = 10 * random_tensor(4096, 1, 32, dtype=dtype)
    key = 10 * random_tensor(4096, 1, 24, dtype=dtype)
    source = query if isinstance(module, CausalRFA) else key
    out = module(query, source, source, need_weights=False)[0]
    out.float().pow(2).mean().backward()
    assert out.dtype == dtype and out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in trained_parameters(module).values())
    assert all(x is None or x.dtype == torch.float32 for x in module.directions())
    if module.unnormalized:
        return  # features of long vectors see the rounding of the projections, as they must
    with torch.no_grad():
        query, source = query.double(), source.double()
        expected = module.double()(query, source, source, need_weights=False)[0]
    # Projections are rounded to the type: a few of its last digits.
    assert largest_difference(out, expected) < 30 * torch.finfo(dtype).eps


@each([name for name in CAUSAL + CROSS if "unnormalized" not in name])
def test_autocast_leaves_features_and_sums_in_float32(make):
    """fairseq's --amp: what remains is the rounding of the projections, 4e-3 for bfloat16."""
    module = make().float()
    expected = call(module, length=300, source_length=300, dtype=torch.float32)
    x = random_tensor(9, 3, 32, dtype=torch.float32)
    features = module.encode(x, module.directions(), "key").phi
    state = {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module.encode(x, module.directions(), "key").phi, features)
        out = call(module, length=300, source_length=300, dtype=torch.float32)
        call(module, dtype=torch.float32, incremental_state=state)
    assert largest_difference(out, expected) < 0.03
    (buffer,) = state.values()
    assert {x.dtype for x in buffer.values()} == {torch.float32}


@each(
    [
        f"causal {name}{more}"
        for name in ("gaussian unnormalized", "cosine", "arccos", "positive", "oprf", "elu", "learned", "hedgehog")
        for more in ("", " gate", " window=2")
        if not (more.startswith(" window") and name in ("elu", "learned", "hedgehog"))
    ]
    + ["cross gaussian", "cross arccos", "cross positive"]
)
def test_second_derivatives(make):
    module = make()
    is_causal = make.func is make_causal
    query = random_tensor(3, 1, 32).requires_grad_()
    source = query if is_causal else random_tensor(2, 1, 24, seed=2).requires_grad_()
    inputs = (query,) if is_causal else (query, source)

    def attend(query, source=None):
        return module(query, source, source)[0]

    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)


def test_one_group_is_the_tensors_themselves():
    x = random_tensor(3, 2, 8)
    ((same, nothing),) = in_groups(2, (x, 1), (None, 0))
    assert same is x
    assert nothing is None
    assert [part.size(1) for (part,) in in_groups(1, (x, 1))] == [1, 1]
