"""An option that nobody reads is refused where it is misspelt, and warned of where the chosen attention lacks it."""

import argparse
import itertools
import re

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import build_model
from omegaconf import OmegaConf

from fairseq_rfa import TransformerRFAConfig, TransformerRFAModel
from fairseq_rfa.model.config import RFA_OPTIONS
from fairseq_rfa.model.unread_options import NEEDS, unread_options
from tiny_data import SMALL, build, generate_here, make_batch, parse, results

MISSPELT = {
    "causal_atention": "causal_attention",
    "cros_attention": "cross_attention",
    "causal-attention": "causal_attention",
    "Cross_Attention": "cross_attention",
    "rfa_featuremap": "rfa_feature_map",
    "feature_map": "rfa_feature_map",
    "local_window": "rfa_local_window",
    "rfa_gated": "rfa_gate",
    "gate": "rfa_gate",
    "dropuot": "dropout",
    "atention_dropout": "attention_dropout",
    "encoder_layer": "encoder_layers",
    "decoder_ffn_dim": "decoder_ffn_embed_dim",
    "decoder_embeddim": "decoder_embed_dim",
    "max_target_position": "max_target_positions",
    "share_all_embedding": "share_all_embeddings",
    "quant_noise_pqs": "quant_noise_pq",
    "left_pad_sorce": "left_pad_source",
    "nobody_knows": "",
}


def load(path, data, **overrides):
    return checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(data), **overrides})[0][0]


@pytest.mark.parametrize("name, meant", MISSPELT.items())
def test_misspelt_override_is_refused(checkpoint, data, name, meant):
    with pytest.raises(ValueError, match=re.escape(f"there is no option {name}; did you mean {meant}")):
        load(checkpoint, data, **{name: "softmax"})


def test_override_of_a_part_that_fairseq_does_not_look_into_is_refused(checkpoint, data):
    with pytest.raises(ValueError, match="there is no option model"):
        load(checkpoint, data, model={"causal_attention": "softmax"})


def test_misspelt_override_of_the_command_is_refused(checkpoint, data):
    with pytest.raises(ValueError, match="did you mean causal_attention"):
        generate_here(data, checkpoint, "--model-overrides", "{'causal_atention': 'softmax'}")


def test_overrides_of_what_is_not_the_models_work(checkpoint, data):
    overrides = {"left_pad_source": False, "max_source_positions": 500, "beam": 2, "bpe": "characters", "seed": 5}
    output = generate_here(data, checkpoint, "--model-overrides", str(overrides))
    assert len(results(output)) == 8
    hub = TransformerRFAModel.from_pretrained(
        str(checkpoint.parent),
        checkpoint.name,
        str(data),
        tokenizer="space",
        bpe_codes="none",
        sentencepiece_model="none",
        lenpen=0.5,
        **overrides,
    )
    assert hub.task.cfg.left_pad_source is False and hub.models[0].encoder.max_source_positions == 500


def test_options_of_another_release_that_a_checkpoint_holds_are_no_overrides(checkpoint, data, tmp_path):
    state = torch.load(checkpoint, weights_only=True)
    stored = vars(state["cfg"]["model"])
    state["cfg"]["model"] = argparse.Namespace(raw_text=False, dropuot=0.1, cross_attention_weight=1.0, **stored)
    torch.save(state, tmp_path / "older.pt")
    assert load(tmp_path / "older.pt", data, causal_attention="softmax").decoder.layers[0].self_attn.q_proj is not None


@pytest.mark.parametrize("name", ["rfa_gat", "droput", "decoder_layer", "beem"])
def test_misspelt_option_of_a_configuration_file_is_refused(data, task, name):
    config = OmegaConf.create({name: 1, "_name": "transformer_rfa_tiny"})
    with pytest.raises(ValueError, match=f"there is no option {name}; did you mean"):
        build_model(config, task)


def test_misspelt_override_of_what_a_configuration_file_trained_is_refused(data, task, monkeypatch):
    """fairseq drops it before the model could see it."""
    config = OmegaConf.create({"_name": "transformer_rfa_tiny", "rfa_num_matrices": 20})
    overrides = "{'dropout': 0.2, 'left_pad_source': False, 'model': {'rfa_gate': False}, 'causal_atention': 'softmax'}"
    monkeypatch.setattr("sys.argv", ["fairseq-generate", "data", "--model-overrides", overrides])
    with pytest.raises(ValueError, match="there is no option causal_atention; did you mean causal_attention"):
        build_model(config, task)


WITH = "with --rfa-feature-map"
CAUSAL, CROSS = "with --causal-attention softmax", "with --cross-attention softmax"
SOFTMAX = "--causal-attention softmax --cross-attention softmax"
UNREAD = [
    ("--rfa-gate-bias 1", {"--rfa-gate-bias 1.0": "without --rfa-gate"}),
    ("--rfa-gate-denominator-floor 0.2", {"--rfa-gate-denominator-floor 0.2": "without --rfa-gate"}),
    ("--cross-attention softmax --rfa-cross-sigma-init 2", {"--rfa-cross-sigma-init 2.0": CROSS}),
    ("--cross-attention softmax --rfa-cross-dim 12", {"--rfa-cross-dim 12": CROSS}),
    ("--no-cross-attention --rfa-cross-dim 12", {"--rfa-cross-dim 12": "with --no-cross-attention"}),
    ("--causal-attention softmax --rfa-chunk-size 32", {"--rfa-chunk-size 32": CAUSAL}),
    (
        "--causal-attention softmax --rfa-sigma-init 2 --rfa-cross-sigma-init 3",
        {"--rfa-sigma-init 2.0": f"{CAUSAL} and --rfa-cross-sigma-init"},
    ),
    (
        "--rfa-feature-map elu --no-rfa-fixed-matrices --rfa-causal-dim 16 --rfa-seed 3",
        dict.fromkeys(("--no-rfa-fixed-matrices", "--rfa-causal-dim 16", "--rfa-seed 3"), f"{WITH} elu"),
    ),
    ("--rfa-feature-map learned --no-rfa-fixed-matrices", {"--no-rfa-fixed-matrices": f"{WITH} learned"}),
    ("--rfa-feature-map positive --rfa-denominator-floor 1", {"--rfa-denominator-floor 1.0": f"{WITH} positive"}),
    (
        "--rfa-gate --cross-attention softmax --rfa-denominator-floor 1",
        {"--rfa-denominator-floor 1.0": f"with --rfa-gate and {CROSS}"},
    ),
    (
        f"--rfa-feature-map elu --rfa-orthogonal --rfa-unnormalized --rfa-fixed-sigma {SOFTMAX}",
        dict.fromkeys(
            ("--rfa-feature-map elu", "--rfa-orthogonal", "--rfa-unnormalized", "--rfa-fixed-sigma"),
            f"{CAUSAL} and {CROSS}",
        ),
    ),
    ("--rfa-causal-dim 16 --rfa-cross-dim 32 --rfa-cross-sigma-init 2 --rfa-sigma-init 3 --rfa-seed 4", {}),
    ("--rfa-gate --rfa-gate-bias 1 --rfa-gate-denominator-floor 0.2 --rfa-denominator-floor 0.3", {}),
    ("--cross-attention softmax --rfa-denominator-floor 0.3 --rfa-orthogonal --no-rfa-fixed-matrices", {}),
    ("--rfa-encoder-dim 12", {"--rfa-encoder-dim 12": "with --encoder-attention softmax"}),
    (
        f"{SOFTMAX} --encoder-attention rfa --rfa-encoder-dim 12 --rfa-sigma-init 2 --rfa-denominator-floor 0.3 "
        "--rfa-orthogonal --rfa-unnormalized --rfa-fixed-sigma --rfa-seed 4 --rfa-exact-updates 3",
        {},
    ),
    (
        f"{SOFTMAX} --encoder-attention rfa --rfa-gate --rfa-causal-dim 12 --rfa-cross-dim 12",
        {"--rfa-gate": CAUSAL, "--rfa-causal-dim 12": CAUSAL, "--rfa-cross-dim 12": CROSS},
    ),
    ("--encoder-attention rfa --rfa-feature-map hedgehog --rfa-seed 3 --rfa-encoder-dim 33", {}),
    (
        "--rfa-feature-map hedgehog --rfa-seed 3",
        {"--rfa-seed 3": f"{WITH} hedgehog while no head has more directions than entries"},
    ),
    ("--rfa-feature-map hedgehog --rfa-seed 3 --rfa-causal-dim 33", {}),
    ("--rfa-feature-map learned --rfa-seed 3 --rfa-causal-dim 16 --rfa-fixed-sigma --rfa-unnormalized", {}),
]


def warnings(caplog):
    return [x.getMessage() for x in caplog.records if x.levelname == "WARNING" and "rfa" in x.name]


@pytest.mark.parametrize("flags, expected", UNREAD)
def test_option_that_the_attention_lacks_is_warned_of(data, caplog, flags, expected):
    flags = flags.split()
    build(data, "--rfa-num-matrices", "200", *flags)
    lines = [f"{flag} changes nothing {reason}; leave it out" for flag, reason in expected.items()]
    assert sorted(warnings(caplog)) == sorted(lines)


def test_override_decodes_with_a_warning(checkpoint, data, caplog):
    output = generate_here(data, checkpoint, "--model-overrides", "{'causal_attention': 'softmax'}")
    assert len(results(output)) == 8
    assert warnings(caplog) == [f"--rfa-gate changes nothing {CAUSAL}; leave it out"]


VALUES = {
    "rfa_feature_map": "arccos",
    "rfa_causal_dim": 12,
    "rfa_cross_dim": 12,
    "rfa_encoder_dim": 12,
    "rfa_gate": True,
    "rfa_gate_bias": -1.0,
    "rfa_num_matrices": 3,
    "rfa_seed": 9,
    "rfa_orthogonal": True,
    "rfa_fixed_matrices": False,
    "rfa_exact_updates": 3,
    "rfa_sigma_init": 1.7,
    "rfa_cross_sigma_init": 1.9,
    "rfa_fixed_sigma": True,
    "rfa_unnormalized": True,
    "rfa_local_window": 2,
    "rfa_denominator_floor": 1e3,
    "rfa_gate_denominator_floor": 1e3,
}
ENCODER = "--encoder-attention rfa"
PLACES = ["", "--causal-attention softmax", "--cross-attention softmax", SOFTMAX, "--no-cross-attention"]
PLACES += [ENCODER, f"{ENCODER} {SOFTMAX}"]
MAPS = ["gaussian", "positive", "elu", "learned", "hedgehog"]
COMBINATIONS = list(itertools.product(PLACES, MAPS, ["", "--rfa-gate"]))
COMBINATIONS += [(place, "gaussian", "--rfa-cross-sigma-init 1.5") for place in PLACES]


def behaviour(args, task, batch):
    """All that tells two models apart: parameters, what is trained, outputs in evaluation and training."""
    torch.manual_seed(1)
    model = task.build_model(args)
    seen = list(model.state_dict().items()) + [(x.requires_grad, torch.ones(1)) for x in model.parameters()]
    for mode in (False, True):
        torch.manual_seed(2)
        seen.append((mode, model.train(mode)(**batch)[0]))
    return seen


def differ(one, other):
    return len(one) != len(other) or any(
        name != other_name or x.shape != y.shape or not torch.equal(x, y)
        for (name, x), (other_name, y) in zip(one, other)
    )


@pytest.mark.parametrize("place, feature_map, more", COMBINATIONS)
def test_an_option_changes_nothing_exactly_where_it_is_called_unread(data, task, place, feature_map, more):
    flags = [*place.split(), "--rfa-feature-map", feature_map, *more.split(), "--decoder-layers", "1"]
    args = parse(data, *SMALL, *flags)
    batch = make_batch(task, ["a b c d", "a"], ["A B C", "D"])
    before = behaviour(args, task, batch)
    for name, value in VALUES.items():
        changed = argparse.Namespace(**{**vars(args), name: value})
        if name in ("rfa_feature_map", "rfa_gate") and getattr(args, name) not in (False, "gaussian"):
            continue
        config = TransformerRFAConfig.from_namespace(changed)
        try:
            config.validate()
        except ValueError:
            continue
        flag = f"--{name.replace('_', '-')}"
        unread = any(flag in written.replace("--no-", "--").split() for written, _ in unread_options(config))
        assert differ(before, behaviour(changed, task, batch)) != unread, name


def test_every_option_has_its_needs():
    choices = {"causal_attention", "cross_attention", "encoder_attention"}
    assert set(NEEDS) == {option.name for option in RFA_OPTIONS} - choices
    assert set(NEEDS) - set(VALUES) == {
        "rfa_sentence_gate",  # both act on windows of sentences, see tests/documents/test_sentence_gate_model.py
        "rfa_sentence_gate_bias",
        "rfa_chunk_size",
        "rfa_monitor",
        "decoding_precision",
    }  # which change no result, or only that of a model that fairseq prepared for inference
