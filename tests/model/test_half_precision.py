"""fairseq's --bf16 and --fp16 on the CPU, from the training to the translation."""


import pytest
import torch
from fairseq import checkpoint_utils

import number_phrases
from fairseq_rfa.functional.encoding import FEATURE_MAPS
from helpers import trained_parameters
from scripts import succeed
from tiny_data import EVERY_SENTENCE, PLUGIN, SMALL, build, generate_here, make_batch, results
from worker import watched_training

UPDATES = 60
# On a GPU fairseq flattens the gradients of --fp16, with a call that only a GPU answers.
PRECISIONS = {
    "fp32": (),
    "bf16": ("--bf16",),
    "fp16": ("--fp16", "--fp16-no-flatten-grads"),
}


@pytest.fixture(scope="module")
def phrases(tmp_path_factory):
    """A small corpus of the quickstart's kind."""
    folder = tmp_path_factory.mktemp("phrases")
    sizes = "--train", "400", "--valid", "20", "--test", "10"
    number_phrases.main(["--out", str(folder / "raw"), *sizes])
    languages = "--source", "de", "--target", "en"
    succeed("data-prep/prepare.sh", "--raw", folder / "raw", *languages, "--out", folder, "--merges", 60)
    return folder / "binarized"


@pytest.fixture(scope="module")
def trained(phrases, tmp_path_factory):
    """For each precision the folder of the training and what it found."""

    def train(name):
        folder = tmp_path_factory.mktemp(name)
        flags = "--optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 10 --dropout 0"
        flags += " --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 800 --seed 7"
        flags += f" --share-all-embeddings --max-update {UPDATES} --num-workers 0 --no-progress-bar"
        flags += f" --no-epoch-checkpoints --cpu --save-dir {folder} --arch transformer_rfa_tiny"
        plugin = "--user-dir", str(PLUGIN)
        found = watched_training(
            [str(phrases), *plugin, *SMALL, *EVERY_SENTENCE, *flags.split(), *PRECISIONS[name]]
        )
        return folder / "checkpoint_last.pt", found["losses"]

    return {name: train(name) for name in PRECISIONS}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_loss_falls_as_in_full_precision(trained, precision):
    losses, expected = trained[precision][1], trained["fp32"][1]
    assert losses[-1] < 0.75 * losses[0]
    assert losses != expected
    assert losses == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_checkpoint_of_half_precision_translates_on_the_cpu(trained, phrases, precision, tmp_path):
    """As fairseq writes it, with its numbers in float32, and with numbers of half precision."""
    path, _ = trained[precision]
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert state["cfg"]["common"][precision]
    expected = results(generate_here(phrases, path, "--beam", "2"))
    assert len(expected) == 10
    saved = torch.load(path)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    for name, parameter in saved["model"].items():
        if parameter.is_floating_point():
            assert torch.equal(parameter.to(dtype).float(), parameter), name
            saved["model"][name] = parameter.to(dtype)
    torch.save(saved, tmp_path / "half.pt")
    assert results(generate_here(phrases, tmp_path / "half.pt", "--beam", "2")) == expected


def test_translation_itself_in_half_precision(trained, phrases):
    path, _ = trained["fp16"]
    found = results(generate_here(phrases, path, "--beam", "2", "--fp16"))
    expected = results(generate_here(phrases, path, "--beam", "2"))
    assert [number for number, _ in found] == [number for number, _ in expected]
    same = sum(a[1] == b[1] for (_, a), (_, b) in zip(found, expected))
    assert same >= 8  # near ties may fall the other way


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
def test_a_long_sentence_stays_finite(data, task, feature_map, dtype):
    """The whole model with 4,096 target positions and embeddings ten times their size."""
    positions = "--max-target-positions", "5000"
    model = build(data, *positions, "--rfa-feature-map", feature_map).to(dtype)
    with torch.no_grad():
        model.encoder.embed_tokens.weight.mul_(10)
        model.decoder.embed_tokens.weight.mul_(10)
    words = " ".join("ABCDEFGH"[i * i % 7] for i in range(4095))
    out = model(**make_batch(task, ["a b c d e f g h"], [words]))[0]
    assert out.shape[1] == 4096 and out.dtype == dtype
    assert out.isfinite().all()
    out.float().pow(2).mean().backward()
    for name, parameter in trained_parameters(model).items():
        assert parameter.grad.isfinite().all(), name
