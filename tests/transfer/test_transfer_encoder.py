"""Converting the encoder: the round trip, σ, constants, distillation, what starts anew, and the command."""

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_rfa.model.parameters import RFA_PARAMETERS, attentions_of
from fairseq_rfa.programs.checkpoint_file import read_checkpoint
from fairseq_rfa.transfer import __main__ as transfer
from fairseq_rfa.transfer.conversion import convert
from fairseq_rfa.transfer.distillation import Distillation
from fairseq_rfa.transfer.sentences import endless_batches, first_sentences, read_task
from fairseq_rfa.transfer.temperature import fit_sigma, set_sigma
from scripts import refused_by
from tiny_data import build, generate_here, results, train_here
from transfer_data import made, stored, valid_batches

OUR_SOFTMAX = tuple("--rfa-num-matrices 20 --causal-attention softmax --cross-attention softmax".split())
ENCODER = {"encoder_attention": "rfa", "rfa_num_matrices": 20}
ALONE = {"causal_attention": "softmax", "cross_attention": "softmax", **ENCODER}
SIGMA = "encoder.layers.0.self_attn.sigma"


def lesson(data, checkpoint, updates=3, lr=0.01):
    task = read_task(checkpoint, data, "train")
    held_out = first_sentences(task, "train", 8)
    return Distillation(endless_batches(task, "train", 64, 1), held_out, updates, lr)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("options", [ENCODER, ALONE], ids=["all", "encoder alone"])
@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
@pytest.mark.parametrize("feature_map", ["gaussian", "learned", "hedgehog", "oprf"])
def test_round_trip_gives_back_every_bit(data, tmp_path, options, ours, feature_map):
    architecture, more = ("transformer_rfa_tiny", OUR_SOFTMAX) if ours else ("transformer", ())
    start = read_checkpoint(made(data, tmp_path, *more, architecture=architecture))
    before = {name: value.clone() for name, value in start["model"].items()}
    there, report = convert(start, "rfa", rfa_feature_map=feature_map, **options)
    there = stored(there, tmp_path)
    assert there["cfg"]["model"].encoder_attention == "rfa"
    assert SIGMA in report.added and all(name.endswith(RFA_PARAMETERS) for name in report.added)
    sides = {name.split(".")[0] for name in report.added}
    assert sides == ({"encoder", "decoder"} if options is ENCODER else {"encoder"})
    back, report_back = convert(there, "softmax")
    assert report_back.dropped.keys() == report.added.keys()
    assert same(stored(back, tmp_path)["model"], before)
    assert "encoder_attention" not in back["cfg"]["model"]


def test_the_encoder_stays_as_it_is_where_nobody_names_it(data, tmp_path):
    softmax = read_checkpoint(made(data, tmp_path))
    there, report = convert(softmax, "rfa", rfa_num_matrices=20)
    assert there["cfg"]["model"].encoder_attention == "softmax" and SIGMA not in there["model"]
    assert "rfa/rfa gaussian 64/128 seed 1" in report.signature["to"]
    flags = (*OUR_SOFTMAX, "--encoder-attention", "rfa", "--rfa-sigma-init", "1.5", "--rfa-encoder-dim", "12")
    features = read_checkpoint(made(data, tmp_path, *flags, architecture="transformer_rfa_tiny"))
    there, report = convert(features, "rfa", rfa_sigma_init=1.0)
    assert not [name for name in report.added if name.startswith("encoder")]
    assert there["model"][SIGMA].eq(1.5).all() and there["cfg"]["model"].rfa_encoder_dim == 12
    assert "rfa/rfa/rfa gaussian 64/128/12 seed 1" in report.signature["to"]
    # Only the encoder is left to convert back.
    alone, report = convert(features, "softmax")
    assert list(report.dropped) == [SIGMA] and "softmax/softmax/rfa" in report.signature["from"]


def test_another_map_has_its_own_number_of_directions(data, tmp_path):
    start = read_checkpoint(made(data, tmp_path, *OUR_SOFTMAX, architecture="transformer_rfa_tiny"))
    there, _ = convert(start, "rfa", rfa_feature_map="hedgehog", **ENCODER)
    assert there["model"]["encoder.layers.0.self_attn.hedgehog_weight"].shape == (4, 8, 8)


@pytest.mark.parametrize("reset", ["none", "projections", "all"])
def test_what_starts_anew(data, tmp_path, reset):
    start = read_checkpoint(made(data, tmp_path))
    for name, value in start["model"].items():
        if name.endswith(("bias", "norm.weight")):
            value += 0.5
    there, report = convert(start, "rfa", reset_attention=reset, seed=5, **ALONE)
    parts = [f"self_attn.{letter}_proj" for letter in ("q", "k", "v", "out")] if reset != "none" else []
    parts += ["self_attn_layer_norm"] if reset == "all" else []
    expected = {f"encoder.layers.0.{part}.{kind}" for part in parts for kind in ("weight", "bias")}
    changed = {name for name, value in start["model"].items() if not torch.equal(value, there["model"][name])}
    assert changed == report.reset.keys() == expected


def test_sigma_is_fitted_without_padding(data):
    """Sentence by sentence, so without padding; and by a grid of the cross-entropy itself."""
    model = build(data, "--encoder-attention-heads", "4", "--encoder-layers", "2", architecture="transformer")
    together = fit_sigma(model, valid_batches(data), ["encoder"])
    alone = fit_sigma(model, valid_batches(data, rows=1), ["encoder"])
    assert together.keys() == {"encoder"} and len(together["encoder"]) == 2
    for one, other in zip(together["encoder"], alone["encoder"]):
        assert torch.allclose(one, other, rtol=1e-3)
    padded = valid_batches(data)
    for batch in padded:
        tokens = batch["net_input"]["src_tokens"]
        batch["net_input"]["src_tokens"] = torch.nn.functional.pad(tokens, (3, 4), value=model.encoder.padding_idx)
    for one, other in zip(together["encoder"], fit_sigma(model, padded, ["encoder"])["encoder"]):
        assert torch.allclose(one, other, rtol=1e-3)
    student = build(data, "--encoder-attention", "rfa", "--encoder-layers", "2")
    set_sigma(student, together)
    for attention, sigma in zip(attentions_of(student, "encoder"), together["encoder"]):
        assert torch.equal(attention.sigma, sigma.unsqueeze(1).expand(4, 8))
    assert all(attention.sigma.eq(1).all() for attention in attentions_of(student, "causal"))
    with pytest.raises(ValueError, match="the encoder has 1; use one model"):
        set_sigma(build(data, "--encoder-attention", "rfa"), together)
    with pytest.raises(ValueError, match="layer 0 has no sigma; use --encoder-attention rfa"):
        set_sigma(build(data, "--encoder-layers", "2"), together)


@pytest.mark.parametrize("imitate", ["unit-length", "softmax"])
def test_constants_are_fitted(data, tmp_path, imitate):
    start = read_checkpoint(made(data, tmp_path))
    options = dict(imitate=imitate, rfa_feature_map="oprf", **ALONE)
    fitted, report = convert(start, "rfa", batches=valid_batches(data), **options)
    plain, _ = convert(start, "rfa", **options)
    changed = {name for name in plain["model"] if not torch.equal(plain["model"][name], fitted["model"][name])}
    expected = {f"encoder.layers.0.self_attn.{name}" for name in ("oprf_a", "oprf_psi")}
    assert changed == expected | ({SIGMA} if imitate == "unit-length" else set())
    assert any("oprf_a in encoder attention of layer 0" in note for note in report.notes)


@pytest.mark.parametrize("options", [ENCODER, ALONE], ids=["all", "encoder alone"])
def test_softmax_teaches_the_encoder(data, tmp_path, options):
    """Padding is no lesson; and all but what softmax lacks stays."""
    trained = read_checkpoint(train_here(data, tmp_path, "--max-update", "30", architecture="transformer"))
    distillation = lesson(data, trained, updates=60, lr=0.03)
    there, report = convert(trained, "rfa", rfa_feature_map="learned", distillation=distillation, **options)
    errors = report.distillation["relative_errors"]
    assert errors.keys() == ({"causal", "cross", "encoder"} if options is ENCODER else {"encoder"})
    for before, after in zip(errors["encoder"]["before"], errors["encoder"]["after"], strict=True):
        assert 0 < after < 0.6 * before
    assert all(torch.equal(there["model"][name], value) for name, value in trained["model"].items())
    assert any("encoder attention of layer 0" in note for note in report.notes)


def test_the_command_converts_what_translates_and_trains_on(data, tmp_path, capsys):
    softmax = train_here(data, tmp_path / "softmax", "--max-update", "20", architecture="transformer")
    path = tmp_path / "rfa.pt"
    flags = ["--encoder-attention", "rfa", "--rfa-encoder-dim", "12", "--rfa-num-matrices", "20"]
    flags += ["--fit-data", data, "--fit-sentences", "8", "--keep-training"]
    transfer.main(["--to", "rfa", *map(str, flags), str(softmax), str(path)])
    assert "encoder attention of layer 0: " in capsys.readouterr().out
    assert len(results(generate_here(data, path, "--beam", "2"))) == 8
    more = ["--encoder-attention", "rfa", "--rfa-encoder-dim", "12", "--max-update", "24", "--continue-once", str(path)]
    later = load_checkpoint_to_cpu(train_here(data, tmp_path / "later", *more, "--encoder-attention-heads", "8",
                                              "--decoder-attention-heads", "8"))
    assert later["optimizer_history"][-1]["num_updates"] == 24
    assert not torch.equal(later["model"][SIGMA], load_checkpoint_to_cpu(path)["model"][SIGMA])
    line = refused_by(transfer.main, capsys, "--to", "rfa", path, tmp_path / "again.pt")
    assert "the decoder of the checkpoint has rfa already, and the encoder is to stay as it is" in line


def test_places_of_a_model_without_cross_attention(data, tmp_path):
    start = read_checkpoint(made(data, tmp_path, "--no-cross-attention", *OUR_SOFTMAX,
                                 architecture="transformer_rfa_tiny"))
    there, report = convert(start, "rfa", batches=valid_batches(data), **ENCODER)
    attentions = {name.rpartition(".")[0] for name in report.added}
    assert attentions == {"encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.1.self_attn"}
    assert stored(there, tmp_path)["cfg"]["model"].no_cross_attention
