"""Converting language models: there and back, every kind of embedding, fairseq's own plain one, and distillation."""

import pytest
import torch

from fairseq_rfa.programs.checkpoint_file import read_checkpoint
from fairseq_rfa.transfer.__main__ import main
from language_model_data import (
    SEGMENT,
    continue_here,
    eval_lm_here,
    load_lm,
    random_tokens,
    task_of_text,
    train_lm_here,
)
from tiny_data import results

CUTOFFS = "--adaptive-input --adaptive-input-cutoff 10,12 --adaptive-softmax-cutoff 10,12 --tie-adaptive-weights"
ADAPTIVE = (*CUTOFFS.split(), "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp")
SOFTMAX = ("--causal-attention", "softmax")
SIZES = "--decoder-input-dim 32 --decoder-output-dim 32".split()
TRAINED = {
    "of fairseq": ("transformer_lm_big", ()),
    "of fairseq, norms behind": ("transformer_lm", SIZES),
    "of fairseq, adaptive": ("transformer_lm_big", ADAPTIVE),
    "ours": ("transformer_lm_rfa_tiny", SOFTMAX),
    "ours, tied": ("transformer_lm_rfa_tiny", (*SOFTMAX, "--share-decoder-input-output-embed")),
}


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A function that trains each of them once."""
    paths = {}

    def train(name):
        if name not in paths:
            architecture, flags = TRAINED[name]
            folder = tmp_path_factory.mktemp("softmax")
            paths[name] = train_lm_here(text, folder, "--max-epoch", "5", *flags, architecture=architecture)
        return paths[name]

    return train


@pytest.mark.parametrize("name", TRAINED)
def test_round_trip(text, tmp_path, trained, name):
    """Every bit comes back, and the model between them decodes."""
    there, back = tmp_path / "rfa.pt", tmp_path / "softmax.pt"
    main(["--to", "rfa", "--rfa-gate", "--rfa-num-matrices", "20", str(trained(name)), str(there)])
    main(["--to", "softmax", str(there), str(back)])
    states = [read_checkpoint(path)["model"] for path in (trained(name), there, back)]
    assert states[0].keys() == states[2].keys() < states[1].keys()
    assert all(torch.equal(value, states[2][key]) for key, value in states[0].items())
    assert {key.split(".", 3)[3] for key in states[1].keys() - states[0].keys()} == {
        "self_attn.sigma",
        "self_attn.gate_proj.weight",
        "self_attn.gate_proj.bias",
    }
    losses = [eval_lm_here(text, path)["loss"] for path in (trained(name), there, back)]
    assert losses[0] == losses[2] != losses[1]
    model = load_lm(there, text)
    assert model.max_positions() == SEGMENT
    assert len(results(continue_here(text, there, "--beam", "2"))) == 11
    assert load_lm(trained(name), text).decoder.layers[0].normalize_before == model.decoder.layers[0].normalize_before


@pytest.mark.parametrize("name", ["of fairseq", "of fairseq, norms behind"])
def test_softmax_of_this_package_is_that_of_fairseq(text, tmp_path, trained, name):
    """A converted checkpoint, decoded with softmax, is what it was."""
    there = tmp_path / "rfa.pt"
    main(["--to", "rfa", "--rfa-num-matrices", "20", str(trained(name)), str(there)])
    tokens = random_tokens(task_of_text(text))
    ours, theirs = load_lm(there, text, causal_attention="softmax"), load_lm(trained(name), text)
    assert torch.equal(ours(tokens)[0], theirs(tokens)[0])


@pytest.mark.parametrize("name", ["of fairseq", "of fairseq, adaptive"])
def test_fitted_and_distilled(text, tmp_path, trained, capsys, name):
    """Softmax teaches hedgehog, and what σ is fitted to comes nearer to softmax than what is not."""
    learning = f"--distill-data {text} --distill-updates 60 --distill-tokens 64"
    flags = {
        "fitted": f"--rfa-feature-map positive --fit-data {text}",
        "distilled": f"--rfa-feature-map hedgehog {learning}",
    }
    for way, words in flags.items():
        main(["--to", "rfa", *words.split(), str(trained(name)), str(tmp_path / f"{way}.pt")])
    printed = capsys.readouterr().out
    assert "causal attention of layer 1:" in printed and "cross attention" not in printed
    main(["--to", "rfa", "--rfa-feature-map", "hedgehog", str(trained(name)), str(tmp_path / "not_distilled.pt")])
    softmax = float(eval_lm_here(text, trained(name))["loss"])
    loss = {way: float(eval_lm_here(text, tmp_path / f"{way}.pt")["loss"]) for way in (*flags, "not_distilled")}
    assert abs(loss["distilled"] - softmax) < abs(loss["not_distilled"] - softmax)
    assert loss["fitted"] - softmax < 0.2  # bits of about 3


def test_training_goes_on(text, tmp_path, trained):
    there = tmp_path / "rfa.pt"
    main(["--to", "rfa", "--keep-training", "--rfa-num-matrices", "20", str(trained("ours")), str(there)])
    flags = ["--continue-once", str(there), "--max-epoch", "6"]
    path = train_lm_here(text, tmp_path / "run", *flags, architecture="transformer_lm_rfa_tiny")
    assert read_checkpoint(path)["optimizer_history"][-1]["num_updates"] == 36


@pytest.mark.parametrize("flag", ["--rfa-cross-dim", "--rfa-encoder-dim", "--rfa-sentence-gate-bias"])
def test_options_of_other_attentions_are_refused(tmp_path, trained, flag):
    with pytest.raises(SystemExit, match=f"{flag}: transformer_lm_rfa has no such option; leave it out"):
        main(["--to", "rfa", flag, "32", str(trained("ours")), str(tmp_path / "rfa.pt")])


def test_nothing_to_convert(tmp_path, trained):
    with pytest.raises(SystemExit, match="has softmax already; there is nothing to convert"):
        main(["--to", "softmax", str(trained("of fairseq")), str(tmp_path / "softmax.pt")])


def test_characters_are_refused(text, tmp_path):
    flags = ["--character-embeddings", "--character-filters", "[(1,8)]", "--max-update", "1"]
    path = train_lm_here(text, tmp_path, *flags, architecture="transformer_lm_rfa_tiny")
    with pytest.raises(SystemExit, match="the decoder of the checkpoint reads characters"):
        main(["--to", "softmax", str(path), str(tmp_path / "softmax.pt")])
