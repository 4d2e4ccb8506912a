"""σ from the temperature of softmax."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_rfa.transfer.temperature import fit_sigma, set_sigma
from tiny_data import build
from transfer_data import valid_batches

SOFTMAX = "--causal-attention softmax --cross-attention softmax".split()


class OfOneLength(nn.Linear):
    """Each head's projection has a length of its own."""

    def forward(self, x):
        heads = super().forward(x).unflatten(-1, (len(self.lengths), -1))
        return (F.normalize(heads, dim=-1) * self.lengths[:, None]).flatten(-2)


def give_lengths(projection, lengths):
    """fairseq's softmax itself reads the weights of a projection, so these lengths are seen by the fit alone."""
    projection.__class__ = OfOneLength
    projection.lengths = lengths


def attentions(model):
    for place, name in (("causal", "self_attn"), ("cross", "encoder_attn")):
        for layer, module in enumerate(model.decoder.layers):
            yield place, layer, getattr(module, name)


@pytest.mark.parametrize("architecture, flags", [("transformer", ()), ("transformer_rfa_tiny", SOFTMAX)])
def test_sigma_is_the_temperature_where_lengths_are_equal(data, architecture, flags):
    model = build(data, *flags, "--decoder-attention-heads", "4", architecture=architecture)
    expected = {}
    for place, layer, attention in attentions(model):
        expected[place, layer] = 0.5 + torch.rand(4) * 3
        give_lengths(attention.q_proj, expected[place, layer])
        give_lengths(attention.k_proj, expected[place, layer] * attention.head_dim**0.5)
    fitted = fit_sigma(model, valid_batches(data))
    # The fit counts in float32, whose slope near its zero is uncertain by about 1e-6 of itself.
    for (place, layer), sigma in expected.items():
        assert fitted[place][layer].dtype == torch.float32
        assert torch.allclose(fitted[place][layer], sigma, rtol=1e-3), (place, layer)


def test_padding_changes_nothing(data):
    model = build(data, "--decoder-attention-heads", "4", architecture="transformer")
    together = fit_sigma(model, valid_batches(data))
    alone = fit_sigma(model, valid_batches(data, rows=1))
    for place in ("causal", "cross"):
        for first, second in zip(together[place], alone[place]):
            assert torch.allclose(first, second, rtol=1e-3)
    assert not torch.allclose(together["cross"][0], together["cross"][1], rtol=1e-3)


def test_the_model_is_left_as_it_was(data):
    model = build(data, architecture="transformer").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit_sigma(model, valid_batches(data))
    assert model.training and not any(module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_sigma_is_filled_in_and_other_models_are_refused(data):
    mixed = build(data, "--causal-attention", "softmax")
    batch = valid_batches(data)
    fitted = fit_sigma(mixed, batch)
    assert fitted.keys() == {"causal"}
    model = build(data)
    set_sigma(model, fitted)
    for place, layer, attention in attentions(model):
        expected = fitted["causal"][layer].unsqueeze(1) if place == "causal" else torch.ones(4, 1)
        assert torch.equal(attention.sigma, expected.expand(4, 8))
    for wrong, words in (
        ({"causal": fitted["causal"][:1]}, "1 layers and the decoder has 2"),
        ({"cross": [torch.ones(3)] * 2}, "3 heads and the cross attention of layer 0 has 4"),
    ):
        with pytest.raises(ValueError, match=words):
            set_sigma(model, wrong)
    with pytest.raises(ValueError, match="layer 0 has no sigma; use --causal-attention rfa"):
        set_sigma(mixed, fitted)
    with pytest.raises(ValueError, match="no softmax attention"):
        fit_sigma(model, batch)
    with pytest.raises(ValueError, match="no sentences"):
        fit_sigma(mixed, [])
