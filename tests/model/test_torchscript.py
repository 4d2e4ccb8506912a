"""torch.jit: softmax in both places is compiled and traced as fairseq's transformer; features are traced or refused."""

import io
from argparse import Namespace

import pytest
import torch
from fairseq.models.transformer import TransformerModelBase
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_rfa.attention import packed_linear
from fairseq_rfa.model.transformer import TransformerRFAModel
from helpers import make_causal, make_cross
from tiny_data import build, make_batch
from variants import FLAGS

SOFTMAX = ("--causal-attention", "softmax", "--cross-attention", "softmax")
FEATURES = ["", "--rfa-gate", "--causal-attention softmax", "--cross-attention softmax"]
# The same products in an order of the compiler's own.
TOLERANCE = dict(atol=1e-5, rtol=1e-5)


class Logits(nn.Module):
    """A tensor in place of fairseq's pair with a dictionary, which torch.jit.trace does not take."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, src_tokens, src_lengths, prev_output_tokens):
        return self.model(src_tokens, src_lengths, prev_output_tokens)[0]


def batch_of(task, sources, targets):
    return tuple(make_batch(task, sources, targets).values())


@pytest.fixture
def batch(task):
    return batch_of(task, ["a b c", "d"], ["A B", "C D E"])


@pytest.fixture
def other_batch(task):
    return batch_of(task, ["b d d e", "f g"], ["H", "A A C"])


def twin(data, *flags):
    return build(data, *SOFTMAX, *flags)


def prepared(model):
    model.prepare_for_inference_(Namespace(generation=Namespace(beam=5, print_alignment=False)))
    return model


def stored(compiled):
    file = io.BytesIO()
    torch.jit.save(compiled, file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.mark.parametrize("flags", ["", "--decoder-normalize-before", "--share-decoder-input-output-embed"])
def test_softmax_is_compiled(data, batch, other_batch, flags):
    model = twin(data, *flags.split())
    compiled = stored(torch.jit.script(model))
    for inputs in (batch, other_batch):
        torch.testing.assert_close(compiled(*inputs)[0], model(*inputs)[0], **TOLERANCE)


def test_softmax_is_compiled_after_it_was_prepared_for_inference(data, batch, monkeypatch):
    monkeypatch.setattr(packed_linear, "LEAST_ENTRIES", 1)
    model = prepared(twin(data))
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.script(model)(*batch)[0], model(*batch)[0], **TOLERANCE)
        traced = torch.jit.trace(Logits(model), batch)
        torch.testing.assert_close(traced(*batch), model(*batch)[0], **TOLERANCE)


def test_a_watched_model_is_compiled_and_traced(data, batch, tmp_path):
    model = twin(data, "--tensorboard-logdir", str(tmp_path))
    assert model.monitor is not None
    expected = model(*batch)[0]
    torch.testing.assert_close(torch.jit.script(model)(*batch)[0], expected, **TOLERANCE)
    torch.testing.assert_close(torch.jit.trace(Logits(model), batch)(*batch), expected, **TOLERANCE)


@pytest.mark.parametrize("part", ["encoder", "decoder", "decoder.layers.1"])
def test_parts_are_compiled(data, part):
    compiled = torch.jit.script(twin(data).get_submodule(part))
    theirs = torch.jit.script(build(data, architecture="transformer").get_submodule(part))
    methods = {name for name in dir(theirs) if name.startswith("reorder")}
    assert compiled.original_name == theirs.original_name and methods <= set(dir(compiled))


def test_a_search_is_compiled(data, task):
    model = twin(data)
    torch.jit.script(SequenceGenerator([model], task.target_dictionary, beam_size=2, max_len_b=5))


def test_a_compiled_model_has_the_weights_of_the_other_which_stays_as_it_was(data, batch):
    model = twin(data)
    kinds = [type(module) for module in model.modules()]
    compiled = torch.jit.script(model)
    assert isinstance(model, TransformerRFAModel) and [type(module) for module in model.modules()] == kinds
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    torch.testing.assert_close(compiled(*batch)[0], model(*batch)[0], **TOLERANCE)
    assert compiled.original_name == TransformerModelBase.__name__


@pytest.mark.parametrize("gradients", [True, False])
def test_softmax_is_traced(data, batch, other_batch, gradients):
    model = twin(data)
    with torch.set_grad_enabled(gradients):
        model(*batch)  # fairseq makes its mask at the first call
        traced = torch.jit.trace(Logits(model), batch)
        for inputs in (batch, other_batch):
            torch.testing.assert_close(traced(*inputs), model(*inputs)[0], **TOLERANCE)


@pytest.mark.parametrize("flags", FEATURES)
@pytest.mark.parametrize("part", ["", "decoder", "decoder.layers.0"])
def test_features_are_not_compiled(data, flags, part):
    model = build(data, *flags.split())
    with pytest.raises(ValueError, match="^torch.jit.script cannot .*; use [^\n]*$"):
        torch.jit.script(model.get_submodule(part))


@pytest.mark.parametrize("make", [make_causal, make_cross])
def test_attention_through_features_is_not_compiled(make):
    with pytest.raises(ValueError, match="^torch.jit.script cannot "):
        torch.jit.script(nn.Sequential(make()))


@pytest.mark.parametrize("flags", FEATURES)
def test_features_are_not_traced_with_gradients(data, batch, flags):
    model = build(data, *flags.split())
    with pytest.raises(ValueError, match="^torch.jit.trace cannot [^\n]*; use it within torch.no_grad"):
        torch.jit.trace(Logits(model), batch)


@pytest.mark.parametrize("flags", [*FEATURES, *FLAGS[1::4], "--encoder-attention rfa"])
def test_features_are_traced_without_gradients(data, task, batch, without_gradients, flags):
    """A trace holds for its number of sentences; for other lengths it gives the same or fails, but nothing else."""
    model = build(data, *flags.split())
    long = batch_of(task, ["a b c d e f g h " * 9, "d"], ["A B C D E F G H " * 9, "C"])
    model(*long)
    for example, other in ((batch, long), (long, batch)):
        traced = torch.jit.trace(Logits(model), example, check_trace=False)
        torch.testing.assert_close(traced(*example), model(*example)[0], **TOLERANCE)
        try:
            found = traced(*other)
        except RuntimeError:
            continue
        torch.testing.assert_close(found, model(*other)[0], **TOLERANCE)
