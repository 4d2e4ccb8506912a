"""Training with the kernel itself in place of features."""

import pytest
import torch

from definitions import attention
from helpers import largest_difference, make_causal, make_cross, padding_mask, random_tensor, trained_parameters

DOUBLE = 1e-10  # float64: rounding of a few hundred products

each_case = pytest.mark.parametrize(
    "name, unnormalized",
    [("gaussian", False), ("gaussian", True), ("cosine", True), ("arccos", False), ("positive", True), ("oprf", False)],
)
each_place = pytest.mark.parametrize("make", [make_causal, make_cross], ids=["causal", "cross"])
each_kind = pytest.mark.parametrize("kind", ["none", "left", "right", "middle"])


def inputs(make, length=13, source_length=17):
    query = random_tensor(length, 2, 32).requires_grad_()
    source = query if make is make_causal else random_tensor(source_length, 2, 24, seed=2).requires_grad_()
    return query, source


def gradients(out, module, *tensors):
    parameters = trained_parameters(module)
    tensors = {id(tensor): tensor for tensor in (*tensors, *parameters.values())}.values()
    return torch.autograd.grad((out * random_tensor(*out.shape, seed=3)).sum(), list(tensors))


@each_case
@each_place
@each_kind
def test_outputs_and_gradients_are_those_of_the_definition(make, kind, name, unnormalized):
    options = dict(feature_map=name, unnormalized=unnormalized)
    module = make(floor=0.05, exact_updates=1, **options).train()
    query, source = inputs(make)
    padding = padding_mask(kind, len(source))
    # Nobody reads the outputs at padding; with padding on the left a query there sees nothing.
    read = ~padding if make is make_causal and padding is not None else torch.ones(2, len(query), dtype=torch.bool)
    actual = module(query, source, source, key_padding_mask=padding)[0].transpose(0, 1)[read]
    expected = attention(
        module, name, query, source, floor=0.05, padding=padding, unnormalized=unnormalized, exact=True
    ).transpose(0, 1)[read]
    assert largest_difference(actual, expected) < DOUBLE
    found, wanted = (gradients(out, module, query, source) for out in (actual, expected))
    # Of padding the definition has its own idea; what stands there has no gradient here.
    assert all(gradient.isfinite().all() for gradient in found)
    assert max(largest_difference(*pair) for pair in zip(found[2:], wanted[2:])) < 1e-8


@each_place
def test_the_first_updates_meet_the_kernel_and_evaluation_never_does(make):
    module = make(exact_updates=3)
    features = make(exact_updates=0)
    query, source = inputs(make)

    def output(module):
        return module(query, source, source)[0]

    wanted = output(features)
    assert torch.equal(output(module), wanted)
    module.train(), features.train()
    module.fixed_matrices = features.fixed_matrices = True
    for num_updates, exact in ((0, True), (2, True), (3, False), (4, False)):
        module.set_num_updates(num_updates)
        assert (largest_difference(output(module), wanted) < DOUBLE) is not exact
    module.set_num_updates(2)
    assert largest_difference(output(module.eval()), wanted) < DOUBLE


@each_place
@pytest.mark.parametrize("kind", ["left", "right", "middle"])
def test_what_stands_in_the_padding_changes_nothing(make, kind):
    module = make(exact_updates=1, feature_map="positive", unnormalized=True, fixed_matrices=True).train()
    query, source = inputs(make)
    padding = padding_mask(kind, len(source))
    outputs = []
    for value in (1.0, float("nan")):
        filled = source.detach().masked_fill(padding.T.unsqueeze(-1), value)
        given = filled if make is make_causal else query
        out = module(given, filled, filled, key_padding_mask=padding)[0].transpose(0, 1)
        outputs.append(out[~padding] if make is make_causal else out)
    assert torch.equal(*outputs)
