"""A checkpoint of the same attention is whole or refused; one of another attention loads."""

import itertools
import re

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from fairseq_rfa.model.parameters import GATE, SIGMA
from tiny_data import build, train_here

SOFTMAX = "--causal-attention softmax --cross-attention softmax"
ATTENTIONS = [
    "--rfa-feature-map gaussian",
    "--rfa-feature-map elu --rfa-gate",
    "--rfa-feature-map learned --rfa-gate",
    "--rfa-feature-map learned --causal-attention softmax",
    "--rfa-gate --cross-attention softmax",
    "--rfa-feature-map hedgehog",
    "--rfa-feature-map oprf --rfa-gate",
    SOFTMAX,
]
FULL = "--rfa-feature-map learned --rfa-gate"
TO_SOFTMAX = {"causal_attention": "softmax", "cross_attention": "softmax"}
LEARNED = (".feature_weight", ".feature_bias")
PARAMETERS = [f"self_attn{ending}" for ending in (*SIGMA, *GATE, *LEARNED)]
PARAMETERS += ["encoder_attn.sigma", "encoder_attn.feature_weight", "encoder_attn.feature_bias"]


def lacking(state, *names):
    return {name: value for name, value in state.items() if name not in names}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("ours", [FULL, SOFTMAX])
def test_missing_parameter_is_named(data, name, ours):
    for layer in (0, 1):
        missing = f"decoder.layers.{layer}.{name}"
        state = lacking(build(data, *FULL.split()).state_dict(), missing)
        with pytest.raises(RuntimeError, match=re.escape(f"lacks {missing}, and")) as refusal:
            build(data, *ours.split()).load_state_dict(state)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "names",
    [
        ["self_attn.sigma"],
        ["self_attn.gate_proj.weight"],
        ["encoder_attn.feature_bias"],
        ["self_attn.sigma", "self_attn.gate_proj.weight", "self_attn.gate_proj.bias"],
    ],
)
def test_what_all_layers_lack_is_named_where_they_have_more_of_the_attention(data, names):
    missing = [f"decoder.layers.{layer}.{name}" for name in names for layer in (0, 1)]
    state = lacking(build(data, *FULL.split()).state_dict(), *missing)
    with pytest.raises(RuntimeError, match=re.escape(f"lacks {missing[0]}, {missing[1]}, and")):
        build(data, *FULL.split()).load_state_dict(state)


@pytest.mark.parametrize("theirs, ours", itertools.product(ATTENTIONS, repeat=2))
def test_every_attention_loads_from_every_other(data, theirs, ours):
    source, target = build(data, *theirs.split(), seed=2).state_dict(), build(data, *ours.split(), seed=3)
    start = {name: value.clone() for name, value in target.state_dict().items()}
    target.load_state_dict(dict(source))
    for name, value in target.state_dict().items():
        assert torch.equal(value, source.get(name, start[name])), name


@pytest.mark.parametrize("ours", [FULL, "", SOFTMAX])
@pytest.mark.parametrize(
    "name",
    [
        "decoder.layers.7.self_attn.sigma",
        "decoder.layers.0.encoder_attn.gate_proj.weight",
        "decoder.layers.0.fc1.sigma",
        "decoder.layers.0.self_attn.q_proj.feature_weight",
        "encoder.layers.7.self_attn.sigma",
        "encoder.layers.0.self_attn.gate_proj.weight",
        "decoder.layers.0.self_attn.self_attn.gate_proj.bias",
        "decoder.sigma",
    ],
)
def test_leftover_of_no_attention_is_refused(data, name, ours):
    state = build(data, *FULL.split()).state_dict() | {name: torch.ones(1)}
    with pytest.raises(RuntimeError, match=re.escape(name)):
        build(data, *ours.split()).load_state_dict(state)


def test_leftover_in_one_layer_is_refused(data):
    state = build(data).state_dict()
    state["decoder.layers.1.self_attn.feature_bias"] = torch.ones(4, 64)
    with pytest.raises(RuntimeError, match=r"decoder\.layers\.0\.self_attn\.feature_bias"):
        build(data).load_state_dict(state)


@pytest.mark.parametrize("name", PARAMETERS)
def test_wrong_size_is_named_with_both(data, name):
    state = build(data, *FULL.split()).state_dict()
    name = f"decoder.layers.1.{name}"
    expected, wrong = list(state[name].shape), [3, *state[name].shape[1:]]
    state[name] = torch.ones(wrong)
    with pytest.raises(RuntimeError) as refusal:
        build(data, *FULL.split()).load_state_dict(state)
    for part in (name, str(wrong), str(expected)):
        assert part in str(refusal.value)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("theirs", [FULL, SOFTMAX])
def test_another_number_of_layers_is_refused(data, layers, theirs):
    state = build(data, "--decoder-layers", str(layers), *theirs.split()).state_dict()
    with pytest.raises(RuntimeError, match=rf"decoder\.layers\.{min(layers, 2)}\.fc1\.weight"):
        build(data, *FULL.split()).load_state_dict(state)


@pytest.mark.parametrize("overrides", [{}, TO_SOFTMAX, {"rfa_gate": False}, {"rfa_feature_map": "learned"}])
def test_damaged_file_neither_decodes_nor_trains_on(checkpoint, data, tmp_path, overrides):
    missing = "decoder.layers.1.self_attn.gate_proj.bias"
    state = torch.load(checkpoint, weights_only=True)
    del state["model"][missing]
    torch.save(state, tmp_path / "damaged.pt")
    with pytest.raises(RuntimeError, match=re.escape(missing)):
        load_model_ensemble([str(tmp_path / "damaged.pt")], arg_overrides={"data": str(data), **overrides})
    flags = ["--finetune-from-model", str(tmp_path / "damaged.pt"), "--max-update", "1"]
    with pytest.raises(Exception, match="Cannot load model parameters") as refusal:
        train_here(data, tmp_path / "run", *flags, architecture="transformer_rfa_tiny_gate")
    assert missing in str(refusal.value.__context__)
