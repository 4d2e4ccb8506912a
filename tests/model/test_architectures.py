"""Named architectures: the sizes that the names promise really arrive, and explicit flags win."""

import argparse
import itertools

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_rfa import TransformerRFAConfig
from fairseq_rfa.functional.encoding import FEATURE_MAPS
from tiny_data import parse, task_of

# layers, width, feed-forward, heads
SIZES = {
    "transformer_rfa": (6, 512, 2048, 8),
    "transformer_rfa_wmt_en_de": (6, 512, 2048, 8),
    "transformer_rfa_iwslt_de_en": (6, 512, 1024, 8),
    "transformer_rfa_tiny": (3, 128, 256, 4),
}
# What the ending of a name promises, beside the options below.
ENDINGS = {
    "": {},
    "_gate": {"rfa_gate": True},
    "_arccos": {"rfa_feature_map": "arccos"},
    "_gate_arccos": {"rfa_gate": True, "rfa_feature_map": "arccos"},
}
NAMES = list(itertools.product(SIZES, ENDINGS))
each_name = pytest.mark.parametrize("parent, ending", NAMES)
OPTIONS = {
    "causal_attention": "rfa",
    "cross_attention": "rfa",
    "rfa_feature_map": "gaussian",
    "rfa_causal_dim": 64,
    "rfa_cross_dim": 128,
    "rfa_gate": False,
    "rfa_num_matrices": 200,
    "rfa_seed": 1,
    "rfa_orthogonal": False,
    "rfa_unnormalized": False,
    "rfa_local_window": 0,
    "rfa_exact_updates": 0,
}


def build_without_memory(data, *flags, architecture):
    with torch.device("meta"):
        return task_of(data).build_model(parse(data, *flags, architecture=architecture))


@each_name
def test_model_has_the_sizes_of_its_name(data, parent, ending):
    model = build_without_memory(data, architecture=parent + ending)
    layers, width, feed_forward, heads = SIZES[parent]
    for side in (model.encoder, model.decoder):
        assert len(side.layers) == layers
        for layer in side.layers:
            assert layer.fc1.weight.shape == (feed_forward, width)
            assert layer.self_attn.num_heads == heads
    for layer in model.decoder.layers:
        assert layer.encoder_attn.num_heads == heads
        assert layer.self_attn.sigma.shape == (heads, width // heads)
        assert layer.self_attn.evaluation_matrices().shape == (heads, 64, width // heads)
        assert layer.encoder_attn.evaluation_matrices().shape == (heads, 128, width // heads)
        assert (layer.self_attn.gate_proj is not None) == ("gate" in ending)
        feature_map = FEATURE_MAPS["arccos" if "arccos" in ending else "gaussian"]
        assert layer.self_attn.feature_map is layer.encoder_attn.feature_map is feature_map


@each_name
def test_every_option_is_recorded(data, parent, ending):
    """So a checkpoint stores it, and a later change of a default does not change an old model."""
    args = parse(data, architecture=parent + ending)
    own = set(TransformerRFAConfig.__dataclass_fields__)
    own = {name for name in own if name.startswith("rfa_") or name.endswith("s_attention")}
    own |= {"causal_attention"}
    assert {name: getattr(args, name) for name in OPTIONS} == {**OPTIONS, **ENDINGS[ending]}
    assert {"rfa_denominator_floor", "rfa_sigma_init"} <= own
    assert not [name for name in own if not hasattr(args, name) and name != "no_cross_attention"]


@pytest.mark.parametrize("parent", SIZES)
def test_explicit_flags_win(data, parent):
    flags = (
        "--decoder-layers 2 --encoder-ffn-embed-dim 96 --decoder-embed-dim 64 --encoder-embed-dim 64 "
        "--decoder-attention-heads 2 --rfa-causal-dim 16 --rfa-cross-dim 24 --rfa-num-matrices 3 "
        "--rfa-seed 5 --rfa-sigma-init 1.5 --cross-attention softmax"
    ).split()
    model = build_without_memory(data, *flags, architecture=f"{parent}_gate")
    assert len(model.decoder.layers) == 2
    assert len(model.encoder.layers) == SIZES[parent][0]
    assert model.encoder.layers[0].fc1.weight.shape == (96, 64)
    attention = model.decoder.layers[0].self_attn
    assert attention.evaluation_matrices().shape == (2, 16, 32)
    assert model.cfg.rfa_seed == 5 and model.cfg.rfa_sigma_init == 1.5
    assert not hasattr(model.decoder.layers[0].encoder_attn, "sigma")


@pytest.mark.parametrize("ending", ["_gate", "_gate_arccos"])
def test_gate_of_a_preset_can_be_turned_off(data, ending):
    args = parse(data, "--no-rfa-gate", architecture=f"transformer_rfa_tiny{ending}")
    assert args.rfa_gate is False


@pytest.mark.parametrize("parent", SIZES)
@pytest.mark.parametrize("ending", ["_arccos", "_gate_arccos"])
def test_map_of_a_preset_can_be_exchanged(data, parent, ending):
    args = parse(data, "--rfa-feature-map", "positive", architecture=parent + ending)
    assert args.rfa_feature_map == "positive" and args.rfa_gate == ("gate" in ending)


@pytest.mark.parametrize("ending", ENDINGS)
def test_options_that_an_old_namespace_lacks_get_the_defaults(data, ending):
    architecture = f"transformer_rfa_tiny{ending}"
    args = vars(parse(data, architecture=architecture))
    old = {name: value for name, value in args.items() if not name.startswith("rfa_")}
    old = {name: value for name, value in old.items() if name not in OPTIONS}
    model = task_of(data).build_model(argparse.Namespace(**old))
    for name, value in {**OPTIONS, **ENDINGS[ending]}.items():
        assert getattr(model.cfg, name) == value


def test_names_belong_to_one_model():
    models = {ARCH_MODEL_REGISTRY[parent + ending] for parent, ending in NAMES}
    assert len(models) == 1
