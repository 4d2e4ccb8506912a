"""Weights near the end of float32, as gates near 1 leave them, cost the local window no digits and make no NaN."""

import pytest
import torch

from helpers import make_causal, random_tensor

LENGTH = 9


def attention(gate_logit, window=LENGTH, unnormalized=False):
    """What a key adds is 1 − sigmoid(gate_logit) of its kernel or of its estimate."""
    module = make_causal(True, feature_map="positive", local_window=window, unnormalized=unnormalized)
    with torch.no_grad():
        module.gate_proj.weight.zero_()
        module.gate_proj.bias.fill_(gate_logit)
        for layer in (module.v_proj, module.out_proj):
            layer.bias.zero_()
    return module


@pytest.mark.parametrize("unnormalized", [False, True])
def test_small_values_keep_their_digits(unnormalized, without_gradients):
    """Weights of 2^-91, above the floor of 2^-100, times values of 2^-60: numbers below 2^-126 lose digits."""
    module, x = attention(63.0, unnormalized=unnormalized), random_tensor(LENGTH, 2, 32)
    module.v_proj.weight.mul_(2.0**-60)
    expected = module(x)[0]
    greatest = expected.abs().max()
    assert greatest > 2.0**-65  # no floor has replaced the denominators
    found = module.float()(x.float())[0]
    assert (found.double() - expected).abs().max() < 1e-5 * greatest  # a few dozen float32 products


@pytest.mark.parametrize("gate_logit", [90.0, 105.0, 1000.0])
@pytest.mark.parametrize("window", [1, 4, LENGTH])
def test_weights_below_the_floor_give_next_to_nothing(window, gate_logit):
    """Forward and backward in float32, which ends at exp(88)."""
    module, x = attention(gate_logit, window).float(), random_tensor(LENGTH, 2, 32).float()
    out = module(x.requires_grad_())[0]
    out.sum().backward()
    # 9 keys of exp(-90) and a kernel of at most exp(1), over a floor of 1e-30, times values of about 1
    assert out.abs().max() < 1e-6
    assert x.grad.isfinite().all()
