"""What torch does with a model that decodes: weights that change, quantisation, inference mode."""

import copy

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_rfa import TransformerRFAModel
from fairseq_rfa.attention import packed_linear
from helpers import largest_difference
from tiny_data import build, make_batch

SOURCES = ["a b c d", "h g", "e"]
SOFTMAX = "--causal-attention softmax --cross-attention softmax"
each_model = pytest.mark.parametrize(
    "flags", ["", "--rfa-gate", "--rfa-feature-map learned", "--rfa-feature-map positive --rfa-local-window 2", SOFTMAX]
)


@pytest.fixture(autouse=True)
def small_layers_are_packed(monkeypatch):
    monkeypatch.setattr(packed_linear, "LEAST_ENTRIES", 1)


def _prepared(model):
    model = copy.deepcopy(model)
    model.make_generation_fast_()
    return model


def _search(model, task, beam=3):
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_b=12)
    return generator.generate([model], {"net_input": make_batch(task, SOURCES)})


def _same(found, expected, tolerance=1e-4):
    for one, two in zip(found, expected, strict=True):
        assert [x["tokens"].tolist() for x in one] == [x["tokens"].tolist() for x in two]
        scores = [(x["positional_scores"], y["positional_scores"]) for x, y in zip(one, two)]
        assert all(largest_difference(*pair) < tolerance for pair in scores)


@each_model
def test_weights_that_change_count_from_the_next_search_on(data, task, flags):
    model, other = (build(data, *flags.split(), seed=seed) for seed in (1, 2))
    prepared = _prepared(model)
    _same(_search(prepared, task), _search(model, task))
    for parameter, new in zip(prepared.parameters(), other.parameters()):
        parameter.data.copy_(new.data)
    _same(_search(prepared, task), _search(other, task))


@each_model
@pytest.mark.parametrize("is_prepared", [False, True])
def test_decoder_with_quantised_layers(data, task, flags, is_prepared):
    """fairseq's softmax encoder reads the weights of its layers, so only the decoder can be quantised as a whole."""
    model = build(data, *flags.split())
    number = sum(type(layer) is nn.Linear for layer in model.decoder.modules())
    quantised = _prepared(model) if is_prepared else copy.deepcopy(model)
    quantised.decoder = torch.ao.quantization.quantize_dynamic(quantised.decoder, {nn.Linear})
    kinds = [type(layer) for layer in quantised.decoder.modules()]
    assert kinds.count(torch.ao.nn.quantized.dynamic.Linear) == number and nn.Linear not in kinds
    found, expected = _logits(quantised, task), _logits(model, task)
    # 8 bits are an error of 1/256 of the greatest entry in each of a dozen products.
    assert (found - expected).norm() < 0.1 * (expected - expected.mean(-1, keepdim=True)).norm()


@torch.no_grad()
def _logits(model, task):
    """Step by step: fairseq's softmax reads the weights of its layers where it sees all positions at once."""
    batch, state = make_batch(task, SOURCES, targets=["A B C", "H", "E F"]), {}
    encoder_out = model.encoder(batch["src_tokens"], batch["src_lengths"])
    prefix = batch["prev_output_tokens"]
    steps = [model.decoder(prefix[:, : t + 1], encoder_out, incremental_state=state)[0] for t in range(2)]
    return torch.cat(steps, dim=1)


@pytest.mark.parametrize("loaded_inside", [True, False])
def test_inference_mode(data, checkpoint, loaded_inside):
    def load():
        return TransformerRFAModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))

    expected = load().translate(SOURCES, beam=3)
    with torch.inference_mode():
        hub = load() if loaded_inside else None
    hub = hub or load()
    for _ in range(2):
        with torch.inference_mode():
            assert hub.translate(SOURCES, beam=3) == expected
        assert hub.translate(SOURCES, beam=3) == expected
