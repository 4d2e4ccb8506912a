"""Named architectures of the language model: the sizes that the names promise, and those of fairseq beside them."""

import argparse
import itertools

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask

from fairseq_rfa import TransformerRFALanguageModel
from fairseq_rfa.model.language_model_config import LANGUAGE_MODEL_OPTIONS
from language_model_data import parse_lm

# layers, width, feed-forward, heads
SIZES = {
    "transformer_lm_rfa": (6, 512, 2048, 8),
    "transformer_lm_rfa_tiny": (3, 128, 256, 4),
    "transformer_lm_rfa_wiki103": (16, 1024, 4096, 8),
    "transformer_lm_rfa_wiki103_small": (12, 512, 2048, 8),
}
ENDINGS = {
    "": {},
    "_gate": {"rfa_gate": True},
    "_arccos": {"rfa_feature_map": "arccos"},
    "_gate_arccos": {"rfa_gate": True, "rfa_feature_map": "arccos"},
}
OPTIONS = {"causal_attention": "rfa", "rfa_feature_map": "gaussian", "rfa_causal_dim": 64, "rfa_gate": False}
WORDS = 60100


@pytest.fixture(scope="module")
def large_task(text):
    dictionary = Dictionary()
    for number in range(WORDS - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    return LanguageModelingTask(parse_lm(text), dictionary)


def build_without_memory(task, text, *flags, architecture):
    with torch.device("meta"):
        return task.build_model(parse_lm(text, *flags, architecture=architecture))


@pytest.mark.parametrize("parent, ending", itertools.product(SIZES, ENDINGS))
def test_model_has_the_sizes_of_its_name(large_task, text, parent, ending):
    args = parse_lm(text, architecture=parent + ending)
    assert {name: getattr(args, name) for name in OPTIONS} == {**OPTIONS, **ENDINGS[ending]}
    decoder = build_without_memory(large_task, text, architecture=parent + ending).decoder
    layers, width, feed_forward, heads = SIZES[parent]
    assert len(decoder.layers) == layers
    for layer in decoder.layers:
        assert layer.fc1.weight.shape == (feed_forward, width) and layer.normalize_before
        assert layer.self_attn.num_heads == heads and layer.encoder_attn is None
    assert (decoder.adaptive_softmax is not None) == ("wiki103" in parent)


def sizes(model):
    return {name: value.shape for name, value in model.named_parameters()}


def test_large_model_is_that_of_baevski_and_auli(large_task, text):
    softmax = ["--causal-attention", "softmax"]
    ours = build_without_memory(large_task, text, *softmax, architecture="transformer_lm_rfa_wiki103")
    theirs = build_without_memory(large_task, text, architecture="transformer_lm_wiki103")
    assert sizes(ours) == sizes(theirs)
    args, of_fairseq = (
        parse_lm(text, architecture=name) for name in ("transformer_lm_rfa_wiki103", "transformer_lm_wiki103")
    )
    different = {name for name, value in vars(of_fairseq).items() if getattr(args, name, None) != value}
    assert different == {"arch"}


def test_small_model_has_38_million_parameters_beside_those_of_words(large_task, text):
    model = build_without_memory(large_task, text, architecture="transformer_lm_rfa_wiki103_small")
    number = sum(value.numel() for value in model.decoder.layers.parameters())
    assert 37.5e6 < number < 38.5e6


@pytest.mark.parametrize("parent", SIZES)
def test_explicit_flags_win(large_task, text, parent):
    flags = (
        "--decoder-layers 2 --decoder-ffn-embed-dim 96 --decoder-embed-dim 64 --decoder-input-dim 64 "
        "--decoder-output-dim 64 --decoder-attention-heads 2 --rfa-causal-dim 16 --rfa-num-matrices 3 --no-rfa-gate "
        "--dropout 0.4"
    ).split()
    model = build_without_memory(large_task, text, *flags, architecture=f"{parent}_gate_arccos")
    (layer, _) = model.decoder.layers
    assert layer.fc1.weight.shape == (96, 64) and layer.dropout_module.p == 0.4
    assert layer.self_attn.evaluation_matrices().shape == (2, 16, 32) and layer.self_attn.gate_proj is None


def test_options_that_an_old_namespace_lacks_get_the_defaults(large_task, text):
    args = vars(parse_lm(text))
    names = [option.name for option in LANGUAGE_MODEL_OPTIONS]
    old = {name: value for name, value in args.items() if name not in names}
    with torch.device("meta"):
        model = large_task.build_model(argparse.Namespace(**old))
    assert {name: getattr(model.decoder.cfg, name) for name in OPTIONS} == OPTIONS


def test_names_belong_to_one_model():
    names = [parent + ending for parent, ending in itertools.product(SIZES, ENDINGS)]
    assert {ARCH_MODEL_REGISTRY[name] for name in names} == {TransformerRFALanguageModel}
