"""The average of checkpoints: whose it is, what has a mean, and what is refused in one line without a trace."""

import os

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_rfa import average_checkpoints
from fairseq_rfa.transfer import __main__ as transfer
from scripts import refused_by
from tiny_data import command, generate_here, make_data, results, train_here


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A folder with the checkpoints of 2, 4 and 6 updates."""
    folder = tmp_path_factory.mktemp("run")
    train_here(data, folder, "--save-interval-updates", "2", "--max-update", "6")
    return folder


def changed(path, folder, change):
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, folder / "changed.pt")
    return folder / "changed.pt"


def average(folder, *inputs):
    average_checkpoints.main(["--inputs", *map(str, inputs), "--output", str(folder / "average.pt")])
    return load_checkpoint_to_cpu(folder / "average.pt")


@pytest.mark.parametrize("updates", [(2, 4, 6), (6, 4, 2), (4, 6, 2)])
def test_all_but_the_parameters_is_of_the_newest_in_whatever_order(run, tmp_path, updates):
    paths = [run / f"checkpoint_1_{number}.pt" for number in updates]
    found, newest = average(tmp_path, *paths), load_checkpoint_to_cpu(run / "checkpoint_1_6.pt")
    assert found["optimizer_history"] == newest["optimizer_history"]
    assert found["extra_state"]["train_iterator"] == newest["extra_state"]["train_iterator"]
    assert found["cfg"] == newest["cfg"]
    states = [load_checkpoint_to_cpu(path)["model"] for path in paths]
    for name, value in found["model"].items():
        mean = sum(state[name].double() for state in states) / 3
        assert value.dtype == states[0][name].dtype
        assert torch.allclose(value.double(), mean, rtol=1e-6, atol=1e-9), name  # rounded once to float32


def test_whole_numbers_that_are_the_same_stay(run, tmp_path):
    added = {"version": torch.tensor([2**53 + 1]), "mask": torch.tensor([True, False]), "empty": torch.ones(0)}
    path = changed(run / "checkpoint_1_6.pt", tmp_path, lambda state: state["model"].update(added))
    found = average(tmp_path, path, path)["model"]
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in added.items())


@pytest.mark.parametrize("first, second", [([1], [2]), ([True], [False]), ([3], [3.5]), ([1j], [2j])])
def test_whole_numbers_that_differ_are_refused(run, tmp_path, capsys, first, second):
    start = run / "checkpoint_1_6.pt"
    (tmp_path / "other").mkdir()
    paths = [
        changed(start, folder, lambda state, value=value: state["model"].update({"count": torch.tensor(value)}))
        for folder, value in ((tmp_path, first), (tmp_path / "other", second))
    ]
    flags = ["--inputs", *paths, "--output", tmp_path / "average.pt"]
    line = refused_by(average_checkpoints.main, capsys, *flags)
    assert "count is " in line and "only floating-point numbers have a mean" in line


class Code:
    def __reduce__(self):
        return (print, ("ran",))


def write_input(kind, folder, good, elsewhere):
    path = folder / "bad.pt"
    if kind == "missing":
        return path
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("checkpoint\n")
    elif kind == "truncated":
        path.write_bytes(good.read_bytes()[:-1000])
    elif kind == "tensor":
        torch.save(torch.ones(3), path)
    elif kind == "parameters":
        torch.save(torch.load(good, weights_only=True)["model"], path)
    elif kind == "code":
        torch.save({**torch.load(good, weights_only=True), "code": Code()}, path)
    elif kind == "no tensor":
        return changed(good, folder, lambda state: state["model"].update({"decoder.layers.0.fc1.bias": "text"}))
    elif kind == "fewer":
        return changed(good, folder, lambda state: state["model"].pop("decoder.layers.0.fc1.bias"))
    elif kind == "vocabulary":
        return elsewhere
    return path


@pytest.fixture(scope="module")
def of_another_dictionary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    data = make_data(folder)
    for language in ("de", "en"):
        with open(data / f"dict.{language}.txt", "a", encoding="utf-8") as file:
            file.write("another 1\n")
    return train_here(data, folder / "run", "--max-update", "1")


@pytest.mark.parametrize(
    "kind, words",
    [
        ("missing", "is no file; use a checkpoint of fairseq"),
        ("folder", "is a folder; use a checkpoint of fairseq"),
        ("empty", "is no whole checkpoint of fairseq"),
        ("text", "is no whole checkpoint of fairseq"),
        ("truncated", "is no whole checkpoint of fairseq"),
        ("tensor", "is no whole checkpoint of fairseq"),
        ("parameters", "is no whole checkpoint of fairseq"),
        ("code", "holds something else than numbers and options (Unsupported"),
        ("no tensor", "decoder.layers.0.fc1.bias in "),
        ("fewer", "differ in decoder.layers.0.fc1.bias; average checkpoints of one run"),
        ("vocabulary", "embed_tokens.weight is ("),
    ],
)
@pytest.mark.parametrize("place", ["first", "last"])
def test_what_is_no_checkpoint_of_the_run_is_refused(
    run, of_another_dictionary, tmp_path, capsys, kind, words, place
):
    good = run / "checkpoint_1_6.pt"
    inputs = [good, write_input(kind, tmp_path, good, of_another_dictionary)]
    output = tmp_path / "out" / "average.pt"
    output.parent.mkdir()
    output.write_text("before")
    if kind == "folder" and place == "first":
        words = "--inputs takes one folder"
    flags = ["--inputs", *(inputs if place == "last" else inputs[::-1]), "--output", output]
    assert words in refused_by(average_checkpoints.main, capsys, *flags)
    assert os.listdir(output.parent) == ["average.pt"] and output.read_text() == "before"


@pytest.mark.parametrize(
    "flags, words",
    [
        ("--inputs RUN --num-epoch-checkpoints 0", "'0' is not a whole number from 1"),
        ("--inputs RUN --num-update-checkpoints 0", "'0' is not a whole number from 1"),
        ("--inputs RUN --num-update-checkpoints -1", "'-1' is not a whole number from 1"),
        ("--inputs RUN --num-update-checkpoints 1.5", "'1.5' is not a whole number from 1"),
        ("--inputs RUN --num-update-checkpoints 4", "has 3 checkpoints of this kind and 4 are wanted"),
        ("--inputs RUN --num-epoch-checkpoints 1", "has 0 checkpoints of this kind and 1 are wanted"),
        ("--inputs RUN", "--inputs takes one folder with"),
        ("--inputs RUN RUN --num-update-checkpoints 1", "--inputs takes one folder with"),
        ("--inputs RUN/checkpoint_1_6.pt --num-update-checkpoints 1", "--inputs takes one folder with"),
        ("--inputs", "expected at least one argument"),
        ("--inputs RUN --num-update-checkpoints 1 --output RUN", "use a file in a folder that can be written to"),
        ("--inputs RUN --num-update-checkpoints 1 --output RUN/no/a.pt", "use a file in a folder that can be"),
    ],
)
def test_flags_that_make_no_sense_are_refused(run, tmp_path, capsys, flags, words):
    flags = ["--output", str(tmp_path / "average.pt"), *flags.replace("RUN", str(run)).split()]
    assert words in refused_by(average_checkpoints.main, capsys, *flags)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(run, tmp_path, capsys, monkeypatch):
    def fill(contents, file):
        with open(file, "w", encoding="utf-8") as unfinished:
            unfinished.write("half")
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0\nmore")

    monkeypatch.setattr(torch, "save", fill)
    flags = ["--inputs", run / "checkpoint_1_6.pt", "--output", tmp_path / "average.pt"]
    assert f"cannot write '{tmp_path / 'average.pt'}': " in refused_by(average_checkpoints.main, capsys, *flags)
    assert not list(tmp_path.iterdir())


def test_average_of_plain_models_needs_no_package(data, tmp_path, run):
    transfer.main(["--to", "softmax", str(run / "checkpoint_1_6.pt"), str(tmp_path / "plain.pt")])
    average(tmp_path, tmp_path / "plain.pt", tmp_path / "plain.pt")
    flags = [str(data), "--path", tmp_path / "average.pt", "--cpu", "--num-workers", "0", "--beam", "2"]
    done = command("fairseq-generate", *flags, "--required-batch-size-multiple", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert results(done.stdout) == results(generate_here(data, tmp_path / "plain.pt", "--beam", "2"))
