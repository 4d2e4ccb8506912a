"""The commands end to end: every route to the plugin, every way to decode, from one folder to another."""

import re
import sys

import pytest
import torch

from fairseq_rfa import TransformerRFAModel, average_checkpoints
from tiny_data import (
    EVERY_SENTENCE,
    PLUGIN,
    ROOT,
    SMALL,
    TRAINING,
    command,
    generate_here,
    parse,
    results,
    task_of,
)

# Forks, because to import torch and fairseq takes seconds and to import the plugin does not.
IMPORTER = """
import os, sys
from fairseq import options, utils
for route in sys.argv[1:]:
    folder, user_dir = route.split("|")
    child = os.fork()
    if not child:
        os.chdir(folder)
        arguments = ["data", "--user-dir", user_dir, "--arch", "transformer_rfa_tiny_gate"]
        for _ in range(2):
            args = options.parse_args_and_arch(options.get_training_parser(), arguments)
            utils.import_user_module(args)
        sys.exit(0 if (args.rfa_gate, args.decoder_layers) == (True, 3) else 3)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{route} failed")
"""
HYDRA = """
common:
  {{user_dir: "{plugin}", cpu: true, seed: 7, tensorboard_logdir: "{folder}/tensorboard", log_interval: 1}}
task: {{_name: translation, data: "{data}", source_lang: de, target_lang: en}}
model: {{_name: transformer_rfa_tiny_gate, decoder_layers: 2, rfa_causal_dim: 16, dropout: 0.2}}
criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: inverse_sqrt, warmup_updates: 5}}
optimization: {{lr: [0.01], max_update: 2}}
dataset: {{max_tokens: 64, num_workers: 0, required_batch_size_multiple: 1}}
checkpoint: {{save_dir: "{folder}/run", no_epoch_checkpoints: true}}
"""


def build_in_process_of_its_own(_, data):
    model = task_of(data).build_model(parse(data, *SMALL))
    assert isinstance(model, TransformerRFAModel)


def succeeded(process):
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    return process.stdout


def test_every_spelling_of_user_dir(tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    for name in ("fairseq_rfa", "other_name"):
        (links / name).symlink_to(PLUGIN)
    routes = [
        f"{tmp_path}|{PLUGIN}",
        f"{tmp_path}|{PLUGIN}/",
        f"{ROOT}|fairseq_rfa",
        f"{ROOT}|./fairseq_rfa/",
        f"{ROOT / 'tests'}|../fairseq_rfa",
        f"{tmp_path}|links/fairseq_rfa",
        f"{tmp_path}|{links}/other_name/",
    ]
    succeeded(command(sys.executable, "-c", IMPORTER, *routes, folder=tmp_path))


def test_spawned_process_builds_the_model(data):
    torch.multiprocessing.spawn(build_in_process_of_its_own, (data,), nprocs=1)


def test_train_generate_and_score(data, tmp_path):
    """As a user types them: a relative --user-dir, a folder of one's own, no UTF-8."""
    (tmp_path / "fairseq_rfa").symlink_to(PLUGIN)
    plain = {"folder": tmp_path, "environment": {"LC_ALL": "C"}}
    user_dir = ("--user-dir", "fairseq_rfa")
    flags = (*user_dir, "--arch", "transformer_rfa_tiny", *SMALL, *TRAINING, "--max-update", "2")
    printed = succeeded(command("fairseq-train", data, *flags, "--save-dir", "run", **plain))
    assert "num. shared model params" in printed and "done training" in printed

    flags = (*user_dir, "--path", "run/checkpoint_last.pt", "--beam", "5", "--cpu", *EVERY_SENTENCE)
    printed = succeeded(command("fairseq-generate", data, *flags, **plain))
    found, references = results(printed), results(printed, "T")
    assert [number for number, _ in found] == list(range(8))
    (tmp_path / "found").write_text("".join(f"{fields[-1]}\n" for _, fields in found))
    (tmp_path / "references").write_text("".join(f"{fields[-1]}\n" for _, fields in references))
    score = command("fairseq-score", "--sys", "found", "--ref", "references", **plain)
    assert re.search(r"BLEU4 = \d", succeeded(score))


def test_interactive_answers_every_line(checkpoint, data, tmp_path):
    lines = ["a b c", "", "   ", "d", "e f\r", "unknown words", "\t", "a b c"]
    flags = ["--user-dir", PLUGIN, "--path", checkpoint, "--beam", "5", "--cpu"]
    text = "".join(f"{line}\n" for line in lines)
    printed = succeeded(
        command("fairseq-interactive", data, *flags, folder=tmp_path, input=text)
    )
    found = results(printed)
    assert [number for number, _ in found] == list(range(len(lines)))
    assert found[0][1] == found[-1][1]
    assert not any("\r" in field for _, fields in found for field in fields)


def test_hydra_train(data, tmp_path):
    (tmp_path / "study.yaml").write_text(HYDRA.format(plugin=PLUGIN, data=data, folder=tmp_path))
    flags = ["--config-dir", tmp_path, "--config-name", "study"]
    succeeded(command("fairseq-hydra-train", *flags, folder=tmp_path))
    assert {"rfa", "train_inner"} <= {path.name for path in (tmp_path / "tensorboard").iterdir()}
    path = tmp_path / "run" / "checkpoint_last.pt"
    options = torch.load(path, weights_only=True)["cfg"]["model"]
    assert (options["decoder_layers"], options["encoder_layers"]) == (2, 3)
    assert (options["rfa_gate"], options["rfa_causal_dim"]) == (True, 16)
    assert len(results(generate_here(data, path))) == 8
    overrides = "{'causal_attention': 'softmax', 'cross_attention': 'softmax'}"
    assert len(results(generate_here(data, path, "--model-overrides", overrides))) == 8
    average = tmp_path / "average.pt"
    average_checkpoints.main(["--inputs", str(path), str(path), "--output", str(average)])
    assert results(generate_here(data, average)) == results(generate_here(data, path))


@pytest.mark.parametrize("batch", [["--batch-size", "1"], ["--batch-size", "8"]])
def test_size_of_the_batch_changes_no_translation(checkpoint, data, batch):
    expected = generate_here(data, checkpoint, "--batch-size", "3")
    assert [fields[1] for _, fields in results(generate_here(data, checkpoint, *batch))] == [
        fields[1] for _, fields in results(expected)
    ]


def test_hypotheses_in_order_of_their_scores(checkpoint, data):
    found = results(generate_here(data, checkpoint, "--beam", "4", "--nbest", "3"))
    assert len(found) == 24
    for sentence in range(8):
        scores = [float(fields[0]) for number, fields in found if number == sentence]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)


def test_forced_prefix(checkpoint, data):
    printed = generate_here(data, checkpoint, "--prefix-size", "2")
    for (_, hypothesis), (_, reference) in zip(results(printed), results(printed, "T")):
        assert hypothesis[-1].split()[:2] == reference[-1].split()[:2]


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("places", ["{}", "{'cross_attention': 'softmax'}"])
def test_alignment(checkpoint, data, kind, places):
    flags = ["--print-alignment", kind, "--model-overrides", places]
    printed = generate_here(data, checkpoint, *flags)
    lines = zip(*(results(printed, letter) for letter in "ASH"))
    for (_, (alignment,)), (_, (source,)), (_, (_, hypothesis)) in lines:
        words, translated = len(source.split()) + 1, len(hypothesis.split()) + 1
        assert alignment
        if kind == "soft":
            weights = [[float(x) for x in row.split(",")] for row in alignment.split()]
            assert len(weights) == translated and {len(row) for row in weights} == {words}
            continue
        for pair in alignment.split():
            first, second = map(int, pair.split("-"))
            assert 0 <= first < words and 0 <= second < translated


def test_score_of_references(checkpoint, data):
    printed = generate_here(data, checkpoint, "--score-reference")
    for (_, hypothesis), (_, reference) in zip(results(printed), results(printed, "T")):
        assert hypothesis[-1] == reference[-1]
    assert all(float(fields[0]) < 0 for _, fields in results(printed))


def test_sampling(checkpoint, data):
    flags = ["--sampling", "--sampling-topk", "5", "--beam", "3", "--nbest", "3", "--seed", "4"]
    first, second = (results(generate_here(data, checkpoint, *flags)) for _ in range(2))
    assert len(first) == 24 and first == second


def test_ensemble(checkpoint, data):
    twice = results(generate_here(data, f"{checkpoint}:{checkpoint}"))
    assert [fields[1] for _, fields in twice] == [
        fields[1] for _, fields in results(generate_here(data, checkpoint))
    ]
