"""A value that makes no sense is refused when the model is built: one line with flag, value and remedy."""

import argparse
import re

import pytest
from fairseq import checkpoint_utils

from fairseq_rfa import TransformerRFAConfig
from tiny_data import build, parse

SIZES = ["rfa-causal-dim", "rfa-cross-dim", "rfa-num-matrices", "rfa-chunk-size"]
POSITIVE = [
    "rfa-denominator-floor",
    "rfa-gate-denominator-floor",
    "rfa-sigma-init",
    "rfa-cross-sigma-init",
]
REFUSED = [
    *[(flag, value) for flag in SIZES for value in ("0", "-1")],
    *[(flag, value) for flag in POSITIVE for value in ("0", "-0.5", "nan", "inf")],
    *[("rfa-gate-bias", value) for value in ("nan", "inf", "-inf")],
    *[("rfa-seed", value) for value in ("-1", str(2**32))],
    *[("rfa-local-window", value) for value in ("-1", "-20")],
    *[("rfa-exact-updates", value) for value in ("-1", "-20")],
]
WRONG_TYPES = [
    *[("rfa_seed", value) for value in ("64", 1.5, True, None)],
    *[(name, value) for name in ("rfa_causal_dim", "rfa_cross_dim") for value in ("64", 1.5, True)],
    *[(name, value) for name in ("rfa_sigma_init", "rfa_gate_bias") for value in ("1", True, None)],
    *[("rfa_local_window", value) for value in ("3", 1.5, True, None)],
    *[("rfa_exact_updates", value) for value in ("3", 1.5, True, None)],
    *[(name, value) for name in ("rfa_gate", "rfa_orthogonal") for value in ("yes", 1, None)],
    ("rfa_unnormalized", 1),
    *[(name, value) for name in ("causal_attention", "cross_attention") for value in ("linear", None)],
    ("rfa_feature_map", "unknown"),
    ("rfa_feature_map", None),
]


def assert_clear(refusal, flag, value):
    message = str(refusal.value)
    assert "\n" not in message
    assert flag in message and value in message and "use " in message


@pytest.mark.parametrize("flag, value", REFUSED)
def test_command_line_refuses(data, flag, value):
    with pytest.raises(ValueError) as refusal:
        build(data, f"--{flag}={value}")
    assert_clear(refusal, f"--{flag}", value)


@pytest.mark.parametrize(
    "flag, value",
    [
        ("causal-attention", "linear"),
        ("cross-attention", ""),
        ("rfa-feature-map", "unknown"),
        ("rfa-local-window", "1.5"),
        ("rfa-causal-dim", "1.5"),
        ("rfa-seed", "one"),
        ("rfa-sigma-init", "big"),
    ],
)
def test_parser_refuses(data, flag, value, capsys):
    with pytest.raises(SystemExit) as refusal:
        parse(data, f"--{flag}={value}")
    assert refusal.value.code != 0
    assert f"--{flag}" in capsys.readouterr().err


@pytest.mark.parametrize("name, value", WRONG_TYPES)
def test_wrong_type_is_refused(name, value):
    config = TransformerRFAConfig.from_namespace(argparse.Namespace(**{name: value}))
    with pytest.raises(ValueError) as refusal:
        config.validate()
    assert_clear(refusal, "--" + name.replace("_", "-"), repr(value))


@pytest.mark.parametrize(
    "name, value",
    [
        ("rfa_causal_dim", 0),
        ("rfa_gate", "yes"),
        ("causal_attention", "linear"),
        ("rfa_local_window", -1),
        ("rfa_feature_map", "unknown"),
    ],
)
def test_override_is_refused(checkpoint, data, name, value):
    with pytest.raises(ValueError) as refusal:
        checkpoint_utils.load_model_ensemble(
            [str(checkpoint)], arg_overrides={"data": str(data), name: value}
        )
    assert_clear(refusal, "--" + name.replace("_", "-"), repr(value))


def test_override_of_an_option_that_does_not_exist_is_refused(checkpoint, data):
    """fairseq would store it and nobody would read it."""
    with pytest.raises(ValueError, match="rfa_causal_dims"):
        checkpoint_utils.load_model_ensemble(
            [str(checkpoint)], arg_overrides={"data": str(data), "rfa_causal_dims": 32}
        )


@pytest.mark.parametrize("heads", ["5", "0", "-4"])
@pytest.mark.parametrize("place", ["", "--causal-attention softmax", "--cross-attention softmax"])
def test_heads_that_do_not_divide_the_width_are_refused(data, heads, place):
    with pytest.raises(ValueError) as refusal:
        build(data, "--decoder-attention-heads", heads, *place.split())
    assert_clear(refusal, "--decoder-attention-heads", heads)


@pytest.mark.parametrize("kept", ["1", "0,2"])
def test_layers_that_move_are_refused(data, kept):
    with pytest.raises(ValueError) as refusal:
        build(data, "--decoder-layers-to-keep", kept)
    assert_clear(refusal, "--decoder-layers-to-keep", kept)


@pytest.mark.parametrize("flag", ["--decoder-layers-to-keep", "--encoder-layers-to-keep"])
@pytest.mark.parametrize("kept", ["0,0", "-1", "0,-2"])
def test_layers_that_are_none_are_refused(data, flag, kept):
    with pytest.raises(ValueError) as refusal:
        build(data, f"{flag}={kept}", "--rfa-feature-map", "elu")
    assert_clear(refusal, flag, kept[0])


@pytest.mark.parametrize(
    "flags", ["--cross-self-attention", "--cross-self-attention --no-cross-attention"]
)
def test_cross_self_attention_is_refused(data, flags):
    with pytest.raises(ValueError) as refusal:
        build(data, *flags.split())
    assert_clear(refusal, "--cross-self-attention", "--causal-attention softmax")


def test_softmax_everywhere_allows_what_softmax_allows(data):
    softmax = "--causal-attention softmax --cross-attention softmax".split()
    build(data, "--cross-self-attention", "--no-cross-attention", *softmax)


@pytest.mark.parametrize("value", [1, 2.0])
def test_whole_number_is_a_number(value):
    config = TransformerRFAConfig.from_namespace(argparse.Namespace(rfa_sigma_init=value))
    config.validate()


WITH_KERNEL = "use 0, or .*gaussian, arccos, positive, oprf, cosine"
# The combination, and what its refusal names: flag and value, map, remedy.
COMBINATIONS = [
    ("elu --rfa-local-window 3", "--rfa-local-window is 3", "map elu", WITH_KERNEL),
    ("elu --rfa-exact-updates 3", "--rfa-exact-updates is 3", "map elu", WITH_KERNEL),
    ("hedgehog --rfa-exact-updates 9", "--rfa-exact-updates is 9", "map hedgehog", WITH_KERNEL),
    ("learned --rfa-local-window 1", "--rfa-local-window is 1", "map learned", WITH_KERNEL),
    ("elu --rfa-orthogonal", "--rfa-orthogonal", "map elu", "drop the flag"),
    ("learned --rfa-orthogonal", "--rfa-orthogonal", "map learned", "drop the flag"),
    ("elu --rfa-unnormalized", "--rfa-unnormalized", "map elu", "drop the flag"),
    ("hedgehog --rfa-local-window 1", "--rfa-local-window is 1", "map hedgehog", WITH_KERNEL),
    ("hedgehog --rfa-orthogonal", "--rfa-orthogonal", "map hedgehog", "drop the flag"),
    ("hedgehog --rfa-unnormalized", "--rfa-unnormalized", "map hedgehog", "drop the flag"),
]


@pytest.mark.parametrize("place", ["", "--causal-attention softmax", "--cross-attention softmax"])
@pytest.mark.parametrize("flags, flag, name, remedy", COMBINATIONS)
def test_option_that_the_map_cannot_have_is_refused(data, flags, flag, name, remedy, place):
    with pytest.raises(ValueError) as refusal:
        build(data, "--rfa-feature-map", *flags.split(), *place.split())
    message = str(refusal.value)
    assert "\n" not in message
    for part in (flag, name, remedy):
        assert re.search(part, message), message


def test_the_exact_kernel_has_no_gate(data):
    gated = ["--rfa-exact-updates", "9", "--rfa-gate"]
    with pytest.raises(ValueError, match="--rfa-exact-updates is 9, but the exact kernel has no gate; use 0"):
        build(data, *gated)
    build(data, *gated, "--causal-attention", "softmax")


@pytest.mark.parametrize("flags", [flags for flags, *_ in COMBINATIONS])
def test_softmax_everywhere_does_not_ask_the_map(data, flags):
    softmax = "--causal-attention softmax --cross-attention softmax".split()
    build(data, "--rfa-feature-map", *flags.split(), *softmax)


@pytest.mark.parametrize(
    "flags, warned",
    [
        ("--causal-attention softmax --rfa-gate", ["--rfa-gate"]),
        ("--causal-attention softmax --rfa-local-window 2", ["--rfa-local-window"]),
        ("--causal-attention softmax", []),
        ("--cross-attention softmax --rfa-gate --rfa-local-window 2", []),
    ],
)
def test_option_of_causal_rfa_beside_causal_softmax_is_warned_of(data, caplog, flags, warned):
    build(data, *flags.split())
    warnings = [x.getMessage() for x in caplog.records if x.levelname == "WARNING" and "rfa" in x.name]
    assert len(warnings) == len(warned)
    for message, flag in zip(warnings, warned):
        assert flag in message and "--causal-attention softmax" in message and "\n" not in message


@pytest.mark.parametrize(
    "name", ["gate", "orthogonal", "fixed_matrices", "fixed_sigma", "unnormalized"]
)
def test_each_switch_can_be_turned_on_and_off(data, name):
    flag = "rfa-" + name.replace("_", "-")
    for flags, value in (
        ([f"--{flag}"], True),
        ([f"--no-{flag}"], False),
        ([f"--{flag}", f"--no-{flag}"], False),
    ):
        assert getattr(parse(data, *flags), f"rfa_{name}") is value
