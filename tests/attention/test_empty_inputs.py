"""No rows, no queries or no keys: an output without entries, or of nothing but the bias, and never an error."""

import pytest
import torch

from helpers import make_causal, random_tensor
from variants import CAUSAL, CROSS, each, each_variant

SHAPES = [(0, 5, 6), (2, 0, 6), (2, 5, 0), (2, 0, 0), (0, 5, 0), (0, 0, 0)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids="B{0[0]} N{0[1]} M{0[2]}".format)


def inputs(make, rows, length, source_length):
    """Query and key, which are one in causal attention."""
    query = random_tensor(length, rows, 32)
    return (query, query) if make.func is make_causal else (query, random_tensor(source_length, rows, 24, seed=2))


@pytest.mark.parametrize("is_padded", [False, True])
@each_shape
@each_variant
def test_outputs_and_gradients(make, shape, is_padded):
    module = make()
    query, key = inputs(make, *shape)
    query.requires_grad_()
    padding = torch.zeros(key.size(1), key.size(0), dtype=torch.bool) if is_padded else None
    out, _ = module(query, key, key, key_padding_mask=padding, need_weights=False)
    assert out.shape == query.shape
    if not key.numel():
        assert torch.equal(out, module.out_proj.bias.expand_as(out))
    out.sum().backward()
    assert query.grad.isfinite().all()
    assert all(x.grad.isfinite().all() for x in module.parameters() if x.grad is not None)


@each_shape
@each(CROSS)
def test_weights(make, shape):
    rows, length, source_length = shape
    weights = make()(*inputs(make, *shape), need_head_weights=True)[1]
    assert weights.shape == (4, rows, length, source_length)


@each_shape
@each_variant
def test_decoding(make, shape, without_gradients):
    """The next step as well."""
    module, state = make(), {}
    query, key = inputs(make, *shape)
    assert module(query, key, key, incremental_state=state)[0].shape == query.shape
    module.reorder_incremental_state(state, torch.arange(shape[0]))
    step = random_tensor(1, shape[0], 32)
    out = module(step, step if make.func is make_causal else key, incremental_state=state)[0]
    assert out.shape == step.shape and out.isfinite().all()


@pytest.mark.parametrize("lengths", [(0, 2), (1, 0, 1), (3, 0, 2), (2, 0)], ids=str)
@each(CAUSAL)
def test_no_positions_change_no_state(make, lengths, without_gradients):
    module, found, expected = make(), {}, {}
    query = random_tensor(sum(lengths), 3, 32)
    outputs = [module(piece, incremental_state=found)[0] for piece in query.split(lengths)]
    filled = [piece for piece in query.split(lengths) if len(piece)]
    torch.testing.assert_close(
        torch.cat(outputs), torch.cat([module(piece, incremental_state=expected)[0] for piece in filled])
    )


@pytest.mark.parametrize("beams", [1, 3])
@each_variant
def test_all_sentences_leave_the_batch(make, beams, without_gradients):
    module, state = make(), {}
    query, key = inputs(make, 3 * 2, 1, 4)
    if make.func is not make_causal:
        module.set_beam_size(beams)
        key = key[:, ::beams].repeat_interleave(beams, dim=1)
    module(query, key, key, incremental_state=state)
    module.reorder_incremental_state(state, torch.zeros(0, dtype=torch.long))
    query, key = query[:, :0], key[:, :0]
    assert module(query, key, key, incremental_state=state)[0].shape == query.shape
