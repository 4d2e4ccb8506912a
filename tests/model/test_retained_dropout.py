"""--retain-dropout-modules means the same dropouts as on fairseq's transformer."""

import logging

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import FairseqDropout
from omegaconf import ListConfig

from tiny_data import PLUGIN, build, make_batch

DROPOUTS = "--dropout 0.3 --activation-dropout 0.2 --attention-dropout 0.1".split()
EVERY_NAME = ["TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayerBase", "TransformerDecoderLayerBase"]
WANTED = [
    *([name] for name in EVERY_NAME),
    ["MultiheadAttention"],
    ["TransformerDecoderLayer"],
    ["TransformerDecoderBase", "TransformerEncoderLayer", "TransformerModel"],
    EVERY_NAME,
    ListConfig(EVERY_NAME[1:3]),
    [],
    None,
]
ATTENTIONS = ["", "--causal-attention softmax", "--cross-attention softmax --rfa-gate"]


def prepared(model, wanted):
    """As by fairseq-generate --retain-dropout."""
    model.make_generation_fast_(need_attn=False, retain_dropout=True, retain_dropout_modules=wanted)
    return model


def retained(model):
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, FairseqDropout) and module.apply_during_inference
    ]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_names_mean_the_dropouts_of_a_transformer(data, wanted, attention):
    found = retained(prepared(build(data, *DROPOUTS, *attention.split()), wanted))
    expected = retained(prepared(build(data, *DROPOUTS, architecture="transformer"), wanted))
    assert found == expected
    if wanted is None or set(wanted) & set(EVERY_NAME):
        assert found


@pytest.mark.parametrize(
    "text", [*EVERY_NAME, "TransformerDecoderLayer", '["TransformerEncoder","TransformerDecoder"]']
)
def test_names_of_the_command_line(data, text):
    """There fairseq looks for a dropout's name anywhere in the text."""
    flags = [str(data), "--user-dir", str(PLUGIN), "--path", "none", "--retain-dropout"]
    args = options.parse_args_and_arch(
        options.get_generation_parser(), [*flags, "--retain-dropout-modules", text]
    )
    config = convert_namespace_to_omegaconf(args)
    models = [build(data, *DROPOUTS, architecture=name) for name in ("transformer_rfa_tiny", "transformer")]
    for model in models:
        model.prepare_for_inference_(config)
    found, expected = map(retained, models)
    assert found == expected and found


@pytest.mark.parametrize(
    "own, theirs",
    [
        ("TransformerRFAEncoder", "TransformerEncoder"),
        ("TransformerRFADecoder", "TransformerDecoder"),
        ("TransformerRFADecoderLayer", "TransformerDecoderLayerBase"),
    ],
)
def test_our_own_names_mean_the_same(data, own, theirs):
    found, expected = (retained(prepared(build(data, *DROPOUTS), [name])) for name in (own, theirs))
    assert found == expected and found


@pytest.mark.parametrize("name", EVERY_NAME)
def test_what_is_retained_drops(data, task, name):
    model = prepared(build(data, *DROPOUTS), [name])
    batch = make_batch(task, ["a b c", "d"], ["A B", "C D E"])
    with torch.no_grad():
        assert not torch.equal(model(**batch)[0], model(**batch)[0])


@pytest.mark.parametrize("wanted", ["TransformerDecodr", ["TransformerEncoder", "TransformerDecodr"]])
def test_an_unknown_name_is_warned_of(data, caplog, wanted):
    with caplog.at_level(logging.WARNING):
        prepared(build(data, *DROPOUTS), wanted)
    (message,) = [record.message for record in caplog.records if "retain" in record.message]
    assert message == (
        "--retain-dropout-modules: this model has no dropout of 'TransformerDecodr'; use MultiheadAttention, "
        "TransformerDecoder, TransformerDecoderLayerBase, TransformerEncoder, TransformerEncoderLayerBase"
    )


@pytest.mark.parametrize("wanted", [None, EVERY_NAME, "TransformerEncoder"], ids=str)
def test_known_names_are_not_warned_of(data, caplog, wanted):
    with caplog.at_level(logging.WARNING):
        prepared(build(data, *DROPOUTS), wanted)
    assert not [record for record in caplog.records if "retain" in record.message]
