"""Unnormalized queries and keys of length 10 with σ = 1, where exp(q·k) goes from e^-100 to e^100."""

import pytest
import torch

from definitions import attention, heads
from helpers import largest_difference, make_causal, padding_mask, random_tensor, trained_parameters
from variants import each, options_of

EXPONENTIAL = ["positive", "oprf", "gaussian", "cosine"]
CAUSAL = [
    f"causal {name} unnormalized{more}" for name in EXPONENTIAL for more in ("", " gate", " window=3")
]
CROSS = [f"cross {name} unnormalized" for name in EXPONENTIAL]
each_causal = each(CAUSAL)


def _with_long_vectors(make, query, source, mean_length=10):
    """In float32, with projections such that heads of queries and keys have that length in the mean."""
    module = make()
    with torch.no_grad():
        module.sigma.fill_(1.0)
        for x, projection in ((query, module.q_proj), (source, module.k_proj)):
            length = heads(x.double(), projection).norm(dim=-1).mean()
            projection.weight.mul_(mean_length / length)
            projection.bias.mul_(mean_length / length)
    return module.float()


def _inputs(make, length=40, dtype=torch.float32):
    query = random_tensor(length, 2, 32, dtype=dtype)
    if make.func is make_causal:
        return query, query
    return query, random_tensor(length, 2, 24, seed=2, dtype=dtype)


@each(CAUSAL + CROSS)
def test_finite_forward_and_backward(make):
    query, source = (x.requires_grad_() for x in _inputs(make))
    module = _with_long_vectors(make, query, source)
    out = module(query, source, source)[0]
    (out * random_tensor(*out.shape, dtype=torch.float32)).sum().backward()
    assert out.isfinite().all()
    assert query.grad.isfinite().all() and source.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in trained_parameters(module).values())
    assert all(parameter.grad.any() for parameter in trained_parameters(module).values())


@each([name for name in CAUSAL + CROSS if "positive" in name])
@pytest.mark.parametrize("kind", ["none", "left", "right"])
def test_positive_is_its_definition(make, kind):
    """In float32 an exponent of 200 is known to 1e-5, and a weight to as much of itself.

    The factors of keys of length 14 are about e^-60: a factor of 1 at padding would leave nothing of them.
    """
    query, source = _inputs(make)
    module, padding = _with_long_vectors(make, query, source, 14), padding_mask(kind, 40)
    actual = module(query, source, source, padding)[0].transpose(0, 1)
    same, query, source = query is source, query.double(), source.double()
    expected = attention(
        module.double(), query=query, source=query if same else source, padding=padding, **options_of(make)
    ).transpose(0, 1)
    kept = ~padding if same and padding is not None else slice(None)
    assert largest_difference(actual[kept], expected[kept]) < 1e-3


@each_causal
def test_no_stabiliser_looks_ahead(make):
    query, _ = _inputs(make)
    module = _with_long_vectors(make, query, query)
    changed = query.clone()
    changed[25:] = 20 * random_tensor(15, 2, 32, seed=9, dtype=torch.float32)
    before, after = module(query)[0], module(changed)[0]
    assert torch.equal(after[:25], before[:25])
    assert after.isfinite().all() and not torch.isclose(after[25:], before[25:]).all()


@each_causal
@pytest.mark.parametrize("ends", [range(1, 41), (1, 3, 40)])
def test_steps_equal_one_call(make, ends):
    query, _ = _inputs(make)
    module, state, start, outputs = _with_long_vectors(make, query, query), {}, 0, []
    with torch.no_grad():
        for end in ends:
            outputs.append(module(query[start:end], incremental_state=state)[0])
            start = end
        # float32 exponents of 100, in the gaussian and cosine maps over denominators at the floor of 0.1
        assert largest_difference(torch.cat(outputs), module(query)[0]) < 1e-4


@each(CAUSAL + CROSS)
@pytest.mark.parametrize("kind", ["left", "middle", "right"])
def test_long_keys_in_the_padding_have_no_influence(make, kind):
    results = []
    for scale in (1, 1000):
        query, source = _inputs(make)
        module = _with_long_vectors(make, *_inputs(make))
        padding = padding_mask(kind, 40)
        with torch.no_grad():
            source.transpose(0, 1)[padding] *= scale
        out = module(query, source, source, padding)[0].transpose(0, 1)
        results.append(out[~padding] if query is source else out)
    assert torch.equal(*results)


@each([name for name in CAUSAL + CROSS if "window" not in name])
def test_one_much_longer_key_takes_all(make):
    """C(k) of a key of length 40 is e^800, and beside it others count nothing: nor do they become NaN."""
    query, source = _inputs(make, length=6)
    module = _with_long_vectors(make, query, source)
    with torch.no_grad():
        source[2] *= 4
        out = module(query, source, source)[0]
    assert out.isfinite().all()
