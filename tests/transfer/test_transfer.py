"""Converting: the round trip, what starts anew, other ways of imitation, and older releases."""

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_rfa.model.parameters import RFA_PARAMETERS
from fairseq_rfa.programs.checkpoint_file import read_checkpoint, write_checkpoint
from fairseq_rfa.transfer.conversion import convert
from transfer_data import made, stored, valid_batches

OUR_SOFTMAX = tuple("--rfa-num-matrices 20 --causal-attention softmax --cross-attention softmax".split())
VARIANTS = {
    "plain": (),
    "all embeddings shared": ("--share-all-embeddings",),
    "decoder's embeddings shared": ("--share-decoder-input-output-embed",),
    "learned positions": ("--encoder-learned-pos", "--decoder-learned-pos", "--layernorm-embedding"),
    "norm before": ("--encoder-normalize-before", "--decoder-normalize-before"),
}


@pytest.fixture(scope="module")
def joined_task():
    dictionary = Dictionary()
    for letter in "abcdefgh":
        dictionary.add_symbol(letter)
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def same(first, second):
    return first.dtype == second.dtype and torch.equal(first, second)


def to_half(state):
    for name, value in state.items():
        state[name] = value.half() if value.is_floating_point() else value


@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
@pytest.mark.parametrize(
    "variant, precision", [*((variant, "float32") for variant in VARIANTS), ("all embeddings shared", "float16")]
)
def test_round_trip_gives_back_every_bit(data, tmp_path, joined_task, variant, precision, ours):
    architecture, more = ("transformer_rfa_tiny", OUR_SOFTMAX) if ours else ("transformer", ())
    change = to_half if precision == "float16" else None
    path = made(
        data, tmp_path, *VARIANTS[variant], *more, architecture=architecture, task=joined_task, change=change
    )
    start = read_checkpoint(path)
    before = {name: value.clone() for name, value in start["model"].items()}
    there, report = convert(start, "rfa", rfa_gate=True, rfa_feature_map="positive", rfa_num_matrices=20)
    there = stored(there, tmp_path)
    back, report_back = convert(there, "softmax")
    back = stored(back, tmp_path)
    for found in (start["model"], back["model"]):
        assert found.keys() == before.keys()
        assert not [name for name, value in found.items() if not same(value, before[name])]
    ours = {name: value for name, value in there["model"].items() if name not in before}
    assert report.added.keys() == report_back.dropped.keys() == ours.keys() and len(ours) == 2 * (2 + 2)
    assert all(name.endswith(RFA_PARAMETERS) for name in ours)
    assert {str(value.dtype) for value in ours.values()} == {f"torch.{precision}"}
    assert report.kept.keys() == report_back.kept.keys() == before.keys()
    assert not any((report.dropped, report.reset, report.upgraded, report.outdated, report_back.added))


def test_the_result_is_a_plain_transformer_with_the_sizes_of_its_architecture(data, tmp_path):
    path = made(data, tmp_path, "--dropout", "0.1", architecture="transformer_iwslt_de_en")
    there, _ = convert(read_checkpoint(path), "rfa", rfa_num_matrices=20)
    model = there["cfg"]["model"]
    assert (model.arch, model._name, model.dropout) == ("transformer_rfa", "transformer_rfa", 0.1)
    assert (model.decoder_ffn_embed_dim, model.decoder_attention_heads, model.rfa_num_matrices) == (48, 4, 20)
    back, _ = convert(stored(there, tmp_path), "softmax")
    model = back["cfg"]["model"]
    assert (model["arch"], model["_name"], model["dropout"]) == ("transformer", "transformer", 0.1)
    assert not [name for name in model if name.startswith("rfa") or name.endswith("l_attention")]
    assert back["last_optimizer_state"] is None and back["optimizer_history"][-1]["num_updates"] == 0
    assert back["extra_state"]["train_iterator"]["iterations_in_epoch"] == 0


def test_the_model_after_the_round_trip_gives_the_same_output(data, tmp_path):
    path = made(data, tmp_path)
    there, _ = convert(read_checkpoint(path), "rfa", rfa_num_matrices=20)
    write_checkpoint(convert(stored(there, tmp_path), "softmax")[0], tmp_path / "back.pt")
    write_checkpoint(there, tmp_path / "there.pt")
    (batch,) = valid_batches(data)
    overrides = {"data": str(data)}

    def output(file):
        (model,), _ = checkpoint_utils.load_model_ensemble([str(file)], arg_overrides=overrides)
        return model.eval()(**batch["net_input"])[0]

    assert torch.equal(output(path), output(tmp_path / "back.pt"))
    assert not torch.allclose(output(path), output(tmp_path / "there.pt"))


def make_older(state):
    """Names and entries of earlier releases."""
    for name in [name for name in state if name.endswith("self_attn.q_proj.weight")]:
        begin = name.removesuffix("q_proj.weight")
        for kind in ("weight", "bias"):
            parts = [state.pop(f"{begin}{letter}_proj.{kind}") for letter in "qkv"]
            state[f"{begin}in_proj_{kind}"] = torch.cat(parts)
    for kind in ("weight", "bias"):
        norm = state.pop(f"decoder.layers.0.encoder_attn_layer_norm.{kind}")
        state[f"decoder.layers.0.layer_norms.1.{kind}"] = norm
    state["decoder.embed_out"] = state.pop("decoder.output_projection.weight")
    state["decoder.embed_positions._float_tensor"] = torch.zeros(1)


def test_checkpoint_of_an_older_release(data, tmp_path):
    newer = read_checkpoint(made(data, tmp_path))["model"]
    older = read_checkpoint(made(data, tmp_path, change=make_older, older=True))
    assert "decoder.layers.1.self_attn.in_proj_weight" in older["model"]
    there, report = convert(older, "rfa", rfa_num_matrices=20)
    assert not [name for name, value in newer.items() if not same(value, there["model"][name])]
    assert there["model"].keys() - newer.keys() == report.added.keys()
    assert "decoder.layers.0.self_attn.q_proj.bias" in report.upgraded
    assert {"decoder.embed_out", "decoder.embed_positions._float_tensor"} < report.outdated.keys()
    assert not report.kept.keys() & report.upgraded.keys()


@pytest.mark.parametrize("reset", ["none", "projections", "all"])
def test_what_starts_anew(data, tmp_path, reset):
    start = read_checkpoint(made(data, tmp_path))
    noise = torch.Generator().manual_seed(1)
    for name, value in start["model"].items():
        if name.endswith(("bias", "norm.weight")):
            value += torch.rand(value.shape, generator=noise)
    options = dict(cross_attention="softmax", rfa_num_matrices=20)
    there, report = convert(start, "rfa", reset_attention=reset, seed=5, **options)
    changed = {name for name, value in start["model"].items() if not same(value, there["model"][name])}
    parts = [f"self_attn.{letter}_proj" for letter in ("q", "k", "v", "out")] if reset != "none" else []
    parts += ["self_attn_layer_norm"] if reset == "all" else []
    expected = {f"decoder.layers.{layer}.{x}.{kind}" for layer in (0, 1) for x in parts for kind in ("weight", "bias")}
    assert changed == report.reset.keys() == expected
    again, _ = convert(start, "rfa", reset_attention=reset, seed=5, **options)
    other, _ = convert(start, "rfa", reset_attention=reset, seed=6, **options)
    name = "decoder.layers.1.self_attn.k_proj.weight"
    assert same(there["model"][name], again["model"][name])
    assert same(there["model"][name], other["model"][name]) == (reset == "none")
    if reset != "none":
        assert abs(there["model"][name].std() / start["model"][name].std() - 1) < 0.2  # both as fairseq starts them


@pytest.mark.parametrize("imitate, sigma", [("unit-length", 1.0), ("softmax", 8**-0.25), (None, 1.0)])
def test_ways_of_imitation(data, tmp_path, imitate, sigma):
    start = read_checkpoint(made(data, tmp_path))
    there, report = convert(start, "rfa", imitate=imitate, rfa_num_matrices=20)
    assert there["cfg"]["model"].rfa_unnormalized == (imitate == "softmax")
    sigmas = torch.stack([there["model"][name] for name in report.added])
    assert torch.allclose(sigmas, torch.tensor(sigma))
    assert report.signature["imitate"] == (imitate or "unit-length")


def test_a_mixture_keeps_the_sigma_that_it_has(data, tmp_path):
    flags = ("--rfa-num-matrices", "20", "--rfa-seed", "9", "--cross-attention", "softmax", "--rfa-sigma-init", "1.5")
    start = read_checkpoint(made(data, tmp_path, *flags, architecture="transformer_rfa_tiny_gate"))
    there, report = convert(start, "rfa", rfa_cross_sigma_init=2.0)
    assert [name.rpartition("layers.")[2] for name in report.added] == ["0.encoder_attn.sigma", "1.encoder_attn.sigma"]
    assert float(there["model"]["decoder.layers.1.self_attn.sigma"].mean()) == 1.5
    assert float(there["model"]["decoder.layers.1.encoder_attn.sigma"].mean()) == 2.0
    assert there["cfg"]["model"].rfa_seed == 9 and there["cfg"]["model"].rfa_gate
    back, report = convert(stored(there, tmp_path), "softmax")
    assert len(report.dropped) == 2 * 4 and back["model"].keys() == start["model"].keys() - report.dropped.keys()


def test_report_names_what_happened_and_ends_with_the_signature(data, tmp_path):
    _, report = convert(read_checkpoint(made(data, tmp_path)), "rfa", reset_attention="all", rfa_seed=4)
    lines = report.text().splitlines()
    assert "added 4 parameters that the new attention needs:" in lines
    assert "  decoder.layers.0,1.self_attn.sigma (4, 8)" in lines
    assert "  decoder.layers.0,1.encoder_attn_layer_norm.weight (32,)" in lines[lines.index(
        f"reset {len(report.reset)} parameters drawn anew:") :]
    assert lines[-1].startswith(
        "from:transformer 1+2 layers of 32 softmax/softmax|to:transformer_rfa 1+2 layers of 32 rfa/rfa gaussian "
        "64/128 seed 4|imitate:unit-length|reset:all|seed:1|precision:float32|"
    )
