"""The language model: fairseq's own with other attention, step by step as all at once."""

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel

from fairseq_rfa import TransformerRFALanguageModel
from helpers import trained_parameters
from language_model_data import build_lm, random_tokens, step_by_step, train_lm_here
from variants import FLAGS

COMBINATIONS = ["", "--rfa-gate", "--rfa-gate --rfa-chunk-size 3", "--causal-attention softmax", *FLAGS]
EMBEDDINGS = [
    "",
    "--share-decoder-input-output-embed",
    "--adaptive-input --adaptive-input-cutoff 5,8 --adaptive-softmax-cutoff 5,8",
    "--adaptive-input --adaptive-input-cutoff 5,8 --adaptive-softmax-cutoff 5,8 --tie-adaptive-weights "
    "--tie-adaptive-proj",
    "--adaptive-softmax-cutoff 6",
    "--character-embeddings --character-filters [(1,8),(2,8)]",
    "--decoder-learned-pos",
    "--no-token-positional-embeddings",
    "--decoder-input-dim 24 --decoder-output-dim 24 --layernorm-embedding --no-decoder-final-norm",
]
OF_FAIRSEQ = "transformer_lm_big"
"""An architecture with the defaults of fairseq's language models; plain transformer_lm has those of its dataclass."""
# Sums of a few dozen float32 products in another order, through two layers.
TOLERANCE = dict(atol=2e-4, rtol=2e-4)


def outputs(model, tokens):
    with torch.no_grad():
        return model(tokens)[0]


@pytest.mark.parametrize("flags", COMBINATIONS)
def test_step_by_step_equals_teacher_forcing(text, text_task, flags):
    model, tokens = build_lm(text, *flags.split()), random_tokens(text_task)
    torch.testing.assert_close(step_by_step(model, tokens), outputs(model, tokens), **TOLERANCE)


@pytest.mark.parametrize("flags", EMBEDDINGS)
@pytest.mark.parametrize("attention", ["--rfa-gate", "--causal-attention softmax"])
def test_step_by_step_with_every_kind_of_embedding(text, text_task, flags, attention):
    model, tokens = build_lm(text, *flags.split(), *attention.split()), random_tokens(text_task)
    torch.testing.assert_close(step_by_step(model, tokens), outputs(model, tokens), **TOLERANCE)


@pytest.mark.parametrize("flags", COMBINATIONS)
def test_later_words_change_nothing_earlier(text, text_task, flags):
    model, tokens = build_lm(text, *flags.split()), random_tokens(text_task)
    changed = tokens.clone()
    changed[:, 5:] = random_tokens(text_task, seed=4)[:, 5:]
    before, after = outputs(model, tokens), outputs(model, changed)
    assert torch.equal(after[:, :5], before[:, :5]) and not torch.equal(after[:, 5:], before[:, 5:])


@pytest.mark.parametrize("flags", EMBEDDINGS)
@pytest.mark.parametrize("training", [False, True])
def test_twin_is_the_model_of_fairseq(text, text_task, flags, training):
    """From one seed, with the dropout of training as well."""
    softmax = ["--causal-attention", "softmax"]
    logits = []
    for architecture, more in ((OF_FAIRSEQ, []), ("transformer_lm_rfa_tiny", softmax)):
        model = build_lm(text, *flags.split(), "--dropout", "0.3", *more, architecture=architecture).train(training)
        logits.append((model, model(random_tokens(text_task))[0]))
    (theirs, expected), (ours, actual) = logits
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs, ours = dict(theirs.named_parameters()), dict(ours.named_parameters())
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("flags", ["", "--rfa-gate", "--rfa-feature-map learned"])
def test_what_is_shared_begins_as_in_the_model_of_fairseq(text, flags):
    ours = build_lm(text, *flags.split()).state_dict()
    theirs = build_lm(text, architecture=OF_FAIRSEQ).state_dict()
    assert theirs.keys() < ours.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("embeddings", EMBEDDINGS)
@pytest.mark.parametrize("flags", ["--rfa-gate", "--causal-attention softmax"])
def test_every_parameter_has_a_finite_gradient(text, text_task, flags, embeddings):
    model = build_lm(text, *flags.split(), *embeddings.split()).train()
    model(random_tokens(text_task))[0].square().sum().backward()
    without = [name for name, weight in trained_parameters(model).items() if weight.grad is None]
    assert all("adaptive_softmax" in name for name in without)  # which the criterion asks
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)


def test_kind_of_the_model(text):
    model = build_lm(text)
    assert isinstance(model, TransformerRFALanguageModel) and isinstance(model, TransformerLanguageModel)
    assert model.max_positions() == 16


@pytest.mark.parametrize("flags", ["--rfa-gate", "--rfa-feature-map elu", "--causal-attention softmax"])
def test_training_on_text(text, tmp_path, flags):
    path = train_lm_here(text, tmp_path, "--max-epoch", "6", *flags.split())
    best = torch.load(path, weights_only=True)["extra_state"]["best"]
    assert best < 2.8  # bits for each word: who knows only how often each stands needs 3.15, and who knows all 2.1
