"""Trainings that begin with softmax and go on with RFA."""

import re
import sys
from pathlib import Path

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

import fairseq_rfa  # noqa: F401 lets its checkpoints load
from recipe_data import FLAGS, flag_values, make_data
from scripts import (
    PATIENCE,
    epoch_and_wait,
    refused,
    run_script,
    start,
    succeed,
    times,
    wait_until,
    write_executable,
)

TRAIN, MULTI30K = "recipes/train.sh", "recipes/multi30k.sh"
SMALL = ["--cpu", "--max-tokens", "400", *FLAGS]
DROPOUT = ["--dropout", "0.1"]
"""Draws that have to go on as well where a training goes on."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("with spaces") / "the data", joined=True)


def arguments(data, out, *more, softmax_epochs=2, max_epoch=4):
    options = ["--softmax-epochs", softmax_epochs, "--max-epoch", max_epoch]
    return [*map(str, ["--data", data, "--out", out, *options, *more]), "--", *SMALL, *DROPOUT]


@pytest.fixture(scope="module")
def straight(data, tmp_path_factory):
    """A run that nobody has stopped."""
    out = tmp_path_factory.mktemp("straight") / "the run"
    succeed(TRAIN, *arguments(data / "binarized", out))
    return out


def waiting_before_rfa(folder):
    """A fairseq-train that waits in place of the second part."""
    real = Path(sys.executable).with_name("fairseq-train")
    text = f'[[ " $* " != *" --continue-once "* ]] || sleep {PATIENCE}\nexec \'{real}\' "$@"\n'
    write_executable(folder / "fairseq-train", f"#!/bin/bash\n{text}")
    return folder


@pytest.fixture(scope="module")
def stopped(data, tmp_path_factory):
    """Stopped in the part with softmax, between the parts, and after an epoch of RFA; then scored."""
    out = tmp_path_factory.mktemp("stopped") / "the run"
    folders = [tmp_path_factory.mktemp("commands") for _ in range(2)]
    for commands, file in (
        (epoch_and_wait(folders[0], "softmax"), "softmax/checkpoint_last.pt"),
        (waiting_before_rfa(folders[1]), "start.pt"),
    ):
        process = start(TRAIN, *arguments(data / "binarized", out), first=commands)
        wait_until((out / file).exists, process)
        process.terminate()
        process.communicate(timeout=PATIENCE)
        assert not (out / "trained").exists() and not (out / "checkpoint_last.pt").exists()
    before = times(out / "softmax")
    succeed(TRAIN, *arguments(data / "binarized", out, max_epoch=3))
    succeed(MULTI30K, *arguments(data, out, "--beam", 1))
    assert times(out / "softmax") == before
    return out


def test_a_run_that_was_stopped_equals_one_that_was_not(straight, stopped):
    found, wanted = (load_checkpoint_to_cpu(str(out / "checkpoint_last.pt"))["model"] for out in (stopped, straight))
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert "Loaded checkpoint" in (stopped / "softmax/train.log").read_text(encoding="utf-8")
    assert (stopped / "test/score.json").exists()


def epochs(log):
    """Number of updates after each epoch, and its learning rate."""
    found = re.findall(r"\| train \| epoch (\d+) \|.*\| num_updates (\d+) \| lr (\S+)", log.read_text(encoding="utf-8"))
    return {int(epoch): (int(updates), float(rate)) for epoch, updates, rate in found}


def test_both_parts_are_one_training(straight):
    softmax, rfa = epochs(straight / "softmax/train.log"), epochs(straight / "train.log")
    assert list(softmax) == [1, 2] and list(rfa) == [3, 4]
    updates, rate = zip(*(softmax | rfa).values())
    assert [number / updates[0] for number in updates] == [1, 2, 3, 4]
    # 0.02 after 4 updates of warm-up, then the inverse square root.
    assert rate == pytest.approx([0.02 * (4 / number) ** 0.5 for number in updates], rel=1e-4)
    names = {file.name for file in straight.glob("checkpoint*.pt")}
    assert names == {"checkpoint3.pt", "checkpoint4.pt", "checkpoint_best.pt", "checkpoint_last.pt"}
    models = [load_checkpoint_to_cpu(str(straight / folder / "checkpoint_last.pt")) for folder in ("softmax", "")]
    assert [any("sigma" in name for name in model["model"]) for model in models] == [False, True]


def test_a_second_run_repeats_nothing_and_other_parts_are_refused(data, straight):
    before = times(straight)
    assert "is trained already" in succeed(TRAIN, *arguments(data / "binarized", straight)).stdout
    assert times(straight) == before
    assert "softmax-epochs=1" in refused(TRAIN, *arguments(data / "binarized", straight, softmax_epochs=1))
    assert "restart-lr=0.1" in refused(TRAIN, *arguments(data / "binarized", straight, "--restart-lr", "0.1"))
    assert times(straight) == before


def test_softmax_teaches_a_map_that_has_other_sizes_than_the_default(data, tmp_path):
    """Heads are of the width of `hedgehog`'s directions, in the conversion as in the training that follows."""
    out, options = tmp_path / "run", ["--distill-updates", 3]
    given = arguments(data / "binarized", out, *options, softmax_epochs=1, max_epoch=2)
    printed = succeed(TRAIN, *given, "--rfa-feature-map", "hedgehog").stdout
    assert "num_updates 12" in printed
    assert "distilled by 3 updates" in (out / "conversion.txt").read_text(encoding="utf-8")
    start, end = (load_checkpoint_to_cpu(str(out / f"{name}.pt"))["model"] for name in ("start", "checkpoint_last"))
    weights = {name: value.shape for name, value in start.items() if name.endswith("hedgehog_weight")}
    assert weights and all(rows == width for _, rows, width in weights.values())
    assert all(end[name].shape == shape for name, shape in weights.items())
    assert "distill-updates=3" in refused(TRAIN, *given[:8], *given[10:], "--rfa-feature-map", "hedgehog")


def recorder(folder):
    """A fairseq-train that writes down what it was told, and trains nothing."""
    write_executable(folder / "fairseq-train", f'#!/bin/bash\nprintf "%s " "$@" >"{folder}/told"\nexit 3\n')
    return folder


@pytest.mark.parametrize("max_update", [None, 30])
def test_a_restart_has_the_rest_of_the_budget(data, tmp_path, max_update):
    """The softmax part has had 12 updates."""
    out = tmp_path / "run"
    budget = ["--max-update", max_update] if max_update else []
    given = arguments(data / "binarized", out, *budget, "--restart-lr", "1e-3", "--restart-warmup", 7, max_epoch=9)
    assert run_script(TRAIN, *given, first=recorder(tmp_path)).returncode != 0
    first = flag_values("fairseq-train " + (tmp_path / "told").read_text())
    assert (first["--max-epoch"], first["--causal-attention"], first["--cross-attention"]) == ("2", *["softmax"] * 2)
    assert first["--save-dir"].endswith("/softmax") and "--rfa-num-matrices" not in first
    (out / "start.pt").touch()
    (out / "softmax/train.log").write_text(
        "| epoch 002 | valid on 'valid' subset | loss 1 | nll_loss 1 | ppl 2 | wps 1 | num_updates 12 | best_loss 1\n"
    )
    assert run_script(TRAIN, *given, first=recorder(tmp_path)).returncode != 0
    second = flag_values("fairseq-train " + (tmp_path / "told").read_text())
    assert (second["--max-epoch"], second.get("--max-update")) == ("7", "18" if max_update else None)
    assert (second["--lr"], second["--warmup-updates"], second["--rfa-num-matrices"]) == ("1e-3", "7", "20")
    assert second["--finetune-from-model"] == str(out / "start.pt") and "--continue-once" not in second


def test_softmax_that_takes_all_updates_is_refused(data, tmp_path):
    out = tmp_path / "run"
    given = arguments(data / "binarized", out, "--max-update", 12)
    assert run_script(TRAIN, *given, first=recorder(tmp_path)).returncode != 0
    (out / "start.pt").touch()
    (out / "softmax/train.log").write_text(
        "| epoch 002 | valid on 'valid' subset | loss 1 | nll_loss 1 | ppl 2 | wps 1 | num_updates 12 | best_loss 1\n"
    )
    assert "takes all of the 12 updates; use fewer" in refused(TRAIN, *given, first=recorder(tmp_path))


@pytest.mark.parametrize("script", ["recipes/iwslt14.sh", "recipes/wmt14.sh"])
def test_larger_recipes_print_both_parts_and_the_conversion(data, script, tmp_path):
    options = ["--data", data, "--out", tmp_path / "run", "--dry-run", "--softmax-epochs", 3, "--fit-sigma"]
    flags = ["--rfa-feature-map", "positive", "--dropout", "0.15"]
    data_of_script = data if "wmt14" in script else make_data(tmp_path / "separate")
    options[1] = data_of_script
    printed = succeed(script, *options, "--", *flags).stdout.replace("\\\n", " ")
    first, second = (line for line in printed.splitlines() if line.startswith("fairseq-train"))
    (conversion,) = (line for line in printed.splitlines() if "fairseq_rfa.transfer" in line)
    softmax, rfa = flag_values(first), flag_values(second)
    assert (softmax["--max-epoch"], softmax["--causal-attention"]) == ("3", "softmax")
    assert "--rfa-feature-map" not in softmax and rfa["--rfa-feature-map"] == "positive"
    assert softmax["--dropout"] == rfa["--dropout"] == "0.15"
    assert softmax["--max-update"] == rfa["--max-update"] and "--max-epoch" not in rfa
    assert rfa["--continue-once"] == str(tmp_path / "run/start.pt")
    assert f"--rfa-feature-map positive --fit-data {data_of_script}/binarized --keep-training" in " ".join(
        conversion.replace("'", "").split()
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--softmax-epochs", "0"], "--softmax-epochs '0' is not a whole number above 0"),
        (["--softmax-epochs", "20"], "--softmax-epochs 20 leaves none of the 20 epochs to RFA; use fewer"),
        (["--softmax-epochs", "3", "--max-epoch", "2"], "--softmax-epochs 3 leaves none of the 2 epochs to RFA"),
        (["--fit-sigma"], "--fit-sigma says how RFA follows softmax; use it with --softmax-epochs"),
        (["--distill-updates", "9"], "--distill-updates says how RFA follows softmax; use it with --softmax-epochs"),
        (["--softmax-epochs", "2", "--distill-updates", "few"], "--distill-updates 'few' is not a whole number"),
        (["--restart-lr", "0.1"], "--restart-lr says how RFA follows softmax"),
        (["--softmax-epochs", "2", "--restart-lr", "fast"], "--restart-lr 'fast' is not a number"),
        (["--softmax-epochs", "2", "--restart-warmup", "9"], "without --restart-lr the learning rate goes on"),
        (["--softmax-epochs", "2", "--arch", "transformer_rfa_tiny_gate"], "use --arch transformer_rfa_tiny with"),
        (
            "--softmax-epochs 2 -- --causal-attention softmax --cross-attention=softmax".split(),
            "with --causal-attention softmax and --cross-attention softmax no RFA follows",
        ),
        ("--softmax-epochs 2 -- --rfa-feature-map none".split(), "--rfa-feature-map: invalid choice: 'none'"),
        ("--softmax-epochs 2 -- --rfa-causal-dim 0".split(), "--rfa-causal-dim is 0; use at least 1"),
        ("--softmax-epochs 2 --fit-sigma -- --rfa-feature-map elu".split(), "sigma is no temperature of the map elu"),
        ("--softmax-epochs 2 -- --no-last-checkpoints".split(), "flag '--no-last-checkpoints' after -- is set by"),
    ],
)
def test_what_would_fail_after_softmax_is_refused_before_it(data, tmp_path, more, message):
    arguments = ["--data", data / "binarized", "--out", tmp_path / "run", *more]
    assert message in refused(TRAIN, *arguments, first=recorder(tmp_path))
    assert not (tmp_path / "run").exists()
