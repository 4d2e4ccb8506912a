"""Training with alignments: with softmax in cross attention as in fairseq, and refused without."""

import shutil
from argparse import Namespace

import pytest
import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq_cli import preprocess
from omegaconf import OmegaConf

from tiny_data import SPLITS, build, generate_here, make_batch, parse, results, train_here

CRITERION = "label_smoothed_cross_entropy_with_alignment"
LEARN = ("--criterion", CRITERION, "--load-alignments")
ATTENTIONS = ["", "--causal-attention softmax", "--rfa-feature-map elu", "--rfa-feature-map positive --rfa-gate"]


@pytest.fixture(scope="module")
def aligned(data, tmp_path_factory):
    """The same sentences with alignments: the letter i from the start is the capital i from the end."""
    folder = tmp_path_factory.mktemp("aligned")
    for file in data.parent.glob("*.*"):
        shutil.copy(file, folder)
    for split in SPLITS:
        lengths = [len(line.split()) for line in (folder / f"{split}.de").read_text().splitlines()]
        pairs = (" ".join(f"{i}-{length - 1 - i}" for i in range(length)) for length in lengths)
        (folder / f"{split}.align").write_text("".join(f"{line}\n" for line in pairs))
    arguments = ["--source-lang", "de", "--target-lang", "en", "--align-suffix", "align"]
    arguments += ["--destdir", f"{folder}/binary"]
    for split in SPLITS:
        arguments += [f"--{split}pref", f"{folder}/{split}"]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return folder / "binary"


def learned(aligned, folder, *flags):
    return train_here(aligned, folder, "--max-update", "3", *LEARN, *flags)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_features_are_refused(aligned, tmp_path, attention):
    with pytest.raises(ValueError, match=f"^--criterion {CRITERION} .* use --cross-attention softmax, or [^\n]*$"):
        learned(aligned, tmp_path, *attention.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [[], ["--causal-attention", "softmax"], ["--rfa-gate"]], ids=" ".join)
def test_softmax_in_cross_attention_learns_alignments(aligned, tmp_path, flags):
    path = learned(aligned, tmp_path, "--cross-attention", "softmax", *flags)
    assert len(results(generate_here(aligned, path))) == SPLITS["test"]
    # What it learned may go on with features, which have weights when decoding.
    with_features = generate_here(aligned, path, "--model-overrides", "{'cross_attention': 'rfa'}", "--print-alignment")
    assert len(results(with_features, "A")) == SPLITS["test"]


def test_the_loss_is_that_of_fairseq(data, task):
    """Of the same weights, in softmax attention in both places."""
    softmax = ["--causal-attention", "softmax", "--cross-attention", "softmax"]
    ours = build(data, *softmax, "--dropout", "0").train()
    heads = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
    theirs = build(data, *heads, "--dropout", "0", architecture="transformer").train()
    theirs.load_state_dict(ours.state_dict())
    criterion = LabelSmoothedCrossEntropyCriterionWithAlignment(task, False, 0.1, 0.5)
    batch = make_batch(task, ["a b c"], ["C B A"])
    sample = {
        "net_input": batch,
        "target": batch["prev_output_tokens"].roll(-1, 1),
        "ntokens": 4,
        "alignments": torch.tensor([[0, 2], [1, 1], [2, 0]]),
        "align_weights": torch.ones(3),
    }
    found, expected = (criterion(model, sample)[0] for model in (ours, theirs))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "flags",
    [["--criterion", CRITERION], ["--load-alignments"]],
    ids=["without alignments", "with another criterion"],
)
def test_half_of_the_combination_trains(aligned, tmp_path, flags):
    assert train_here(aligned, tmp_path, "--max-update", "1", *flags).exists()


def configuration(**model):
    return {
        "task": {"_name": "translation", "load_alignments": True},
        "criterion": {"_name": CRITERION},
        "model": {"_name": "transformer_rfa_tiny", "decoder_layers": 1, **model},
    }


@pytest.mark.parametrize("is_struct", [False, True])
def test_configuration_file(task, is_struct):
    def model_of(settings):
        config = OmegaConf.create(settings)
        OmegaConf.set_struct(config, is_struct)
        return task.build_model(config.model)

    with pytest.raises(ValueError, match=f"^--criterion {CRITERION} .* use --cross-attention softmax"):
        model_of(configuration())
    model_of(configuration(cross_attention="softmax"))
    for section in ("task", "criterion"):
        model_of({**configuration(), section: {"_name": "cross_entropy"}})


def test_what_a_command_line_trained_is_not_refused(data, task):
    args = parse(data, "--cross-attention", "softmax", *LEARN)
    args = Namespace(**{**vars(args), "_name": args.arch, "cross_attention": "rfa"})
    assert task.build_model(args)
