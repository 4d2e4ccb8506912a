"""Named architectures: the sizes that the names promise really arrive, and explicit flags win."""

import argparse
import itertools

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq_rfa import TransformerRFAConfig
from tiny_data import parse, task_of

# layers, width, feed-forward, heads
SIZES = {
    "transformer_rfa": (6, 512, 2048, 8),
    "transformer_rfa_wmt_en_de": (6, 512, 2048, 8),
    "transformer_rfa_iwslt_de_en": (6, 512, 1024, 8),
    "transformer_rfa_tiny": (3, 128, 256, 4),
}
NAMES = list(itertools.product(SIZES, (False, True)))
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
}


def name_of(parent, gate):
    return f"{parent}_gate" if gate else parent


def build_without_memory(data, *flags, architecture):
    with torch.device("meta"):
        return task_of(data).build_model(parse(data, *flags, architecture=architecture))


@pytest.mark.parametrize("parent, gate", NAMES)
def test_model_has_the_sizes_of_its_name(data, parent, gate):
    model = build_without_memory(data, architecture=name_of(parent, gate))
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
        assert hasattr(layer.self_attn, "gate_proj") and (layer.self_attn.gate_proj is None) != gate


@pytest.mark.parametrize("parent, gate", NAMES)
def test_every_option_is_recorded(data, parent, gate):
    """So a checkpoint stores it, and a later change of a default does not change an old model."""
    args = parse(data, architecture=name_of(parent, gate))
    own = set(TransformerRFAConfig.__dataclass_fields__)
    own = {name for name in own if name.startswith("rfa_") or name.endswith("s_attention")}
    own |= {"causal_attention"}
    assert {name: getattr(args, name) for name in OPTIONS} == {**OPTIONS, "rfa_gate": gate}
    assert {"rfa_denominator_floor", "rfa_sigma_init"} <= own
    assert not [name for name in own if not hasattr(args, name) and name != "no_cross_attention"]


@pytest.mark.parametrize("parent", SIZES)
def test_explicit_flags_win(data, parent):
    flags = (
        "--decoder-layers 2 --encoder-ffn-embed-dim 96 --decoder-embed-dim 64 --encoder-embed-dim 64 "
        "--decoder-attention-heads 2 --rfa-causal-dim 16 --rfa-cross-dim 24 --rfa-num-matrices 3 "
        "--rfa-seed 5 --rfa-sigma-init 1.5 --cross-attention softmax"
    ).split()
    model = build_without_memory(data, *flags, architecture=name_of(parent, True))
    assert len(model.decoder.layers) == 2
    assert len(model.encoder.layers) == SIZES[parent][0]
    assert model.encoder.layers[0].fc1.weight.shape == (96, 64)
    attention = model.decoder.layers[0].self_attn
    assert attention.evaluation_matrices().shape == (2, 16, 32)
    assert model.cfg.rfa_seed == 5 and model.cfg.rfa_sigma_init == 1.5
    assert not hasattr(model.decoder.layers[0].encoder_attn, "sigma")


def test_gate_of_a_preset_can_be_turned_off(data):
    args = parse(data, "--no-rfa-gate", architecture="transformer_rfa_tiny_gate")
    assert args.rfa_gate is False


@pytest.mark.parametrize("architecture", ["transformer_rfa_tiny", "transformer_rfa_tiny_gate"])
def test_options_that_an_old_namespace_lacks_get_the_defaults(data, architecture):
    args = vars(parse(data, architecture=architecture))
    old = {name: value for name, value in args.items() if not name.startswith("rfa_")}
    old = {name: value for name, value in old.items() if name not in OPTIONS}
    model = task_of(data).build_model(argparse.Namespace(**old))
    for name, value in OPTIONS.items():
        assert getattr(model.cfg, name) == (value if name != "rfa_gate" else "gate" in architecture)


def test_names_belong_to_one_model():
    models = {ARCH_MODEL_REGISTRY[name_of(*name)] for name in NAMES}
    assert len(models) == 1
