"""python -m fairseq_rfa.transfer --distill-data: what it writes, and what it refuses."""

import json
import shutil

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_rfa.transfer import __main__ as transfer
from scripts import refused_by
from tiny_data import generate_here, results
from transfer_data import made

SMALL_POOL = ["--rfa-num-matrices", "20"]


@pytest.fixture(scope="module")
def teacher(data, tmp_path_factory):
    return made(data, tmp_path_factory.mktemp("teacher"))


def flags_of(data, *more, updates=2):
    learning = ["--distill-data", data, "--distill-updates", updates, "--distill-tokens", 64, "--distill-lr", 0.05]
    return [str(flag) for flag in ("--to", "rfa", *SMALL_POOL, *learning, *more)]


def parameters(path):
    return load_checkpoint_to_cpu(path)["model"]


def test_the_result_decodes_and_is_told_of_as_text_and_as_json(data, teacher, tmp_path, capsys):
    out, told = tmp_path / "rfa.pt", tmp_path / "report.json"
    transfer.main([*flags_of(data, "--report", told, updates=40), str(teacher), str(out)])
    lines = capsys.readouterr().out.splitlines()
    assert "|reset:none|seed:1|" in lines[-1]
    assert lines[-1].endswith("|distill:binary 40 updates of 64 tokens lr 0.05, measured on valid 8")
    report = json.loads(told.read_text())
    assert report["signature"]["distill"] == lines[-1].rpartition("|distill:")[2]
    assert report["distillation"].keys() == {"updates", "lr", "relative_errors"}
    for place in ("causal", "cross"):
        errors = report["distillation"]["relative_errors"][place]
        for layer, (before, after) in enumerate(zip(errors["before"], errors["after"])):
            assert f"  {place} attention of layer {layer}: {before:.4f} {after:.4f}" in lines
            assert after < before
    assert report["added"]["decoder.layers.1.self_attn.sigma"] == [4, 8]
    assert len(results(generate_here(data, out))) == 8
    assert {file.name for file in tmp_path.iterdir()} == {"rfa.pt", "report.json"}


def test_the_same_seed_gives_the_same_bits(data, teacher, tmp_path):
    found = []
    for number, seed in enumerate((1, 1, 2)):
        torch.manual_seed(number)
        path = tmp_path / f"{number}.pt"
        transfer.main([*flags_of(data, "--seed", seed, updates=4), str(teacher), str(path)])
        found.append(parameters(path))
    name = "decoder.layers.1.self_attn.sigma"
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
    assert not torch.equal(found[0][name], found[2][name])


def test_without_valid_it_is_measured_on_train(data, teacher, tmp_path, capsys):
    folder = shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("valid*"))
    transfer.main([*flags_of(folder), str(teacher), str(tmp_path / "rfa.pt")])
    assert capsys.readouterr().out.splitlines()[-1].endswith("measured on train 64")


@pytest.mark.parametrize(
    "flags, words",
    [
        ("--to rfa --distill-updates 2", "--distill-updates needs --distill-data"),
        ("--to rfa --distill-data DATA", "--distill-data needs --distill-updates"),
        ("--to rfa --distill-lr 0.1", "--distill-lr needs --distill-updates"),
        ("--to rfa --distill-tokens 9", "--distill-tokens needs --distill-updates"),
        ("--to rfa --distill-data DATA --distill-updates 0", "'0' is not a whole number from 1"),
        ("--to rfa --distill-data DATA --distill-updates 2 --distill-tokens 0", "'0' is not a whole number from 1"),
        ("--to rfa --distill-data DATA --distill-updates 2 --distill-lr 0", "'0' is not a number greater than 0"),
        ("--to rfa --distill-data DATA --distill-updates 2 --distill-tokens 1", "no sentence of at most 1 words"),
        ("--to rfa --distill-data nowhere --distill-updates 2", "cannot read 'train' of 'nowhere'"),
        ("--to rfa --distill-data DATA --distill-updates 2 --rfa-fixed-sigma", "there is nothing to distil"),
        (
            "--to rfa --distill-data DATA --distill-updates 2 --distill-lr 1e30 --rfa-feature-map learned",
            "the error of distillation is nan at update 2; use a smaller --distill-lr",
        ),
        (
            "--to rfa --distill-data DATA --distill-updates 2 --reset-attention projections",
            "throws away what --distill-data distils",
        ),
        ("--to softmax --distill-data DATA --distill-updates 2", "--distill-data says how random features"),
    ],
)
def test_what_makes_no_sense_is_refused(data, teacher, tmp_path, capsys, flags, words):
    flags = [data if flag == "DATA" else flag for flag in flags.split()]
    assert words in refused_by(transfer.main, capsys, *flags, teacher, tmp_path / "rfa.pt")
    assert not list(tmp_path.iterdir())


def test_other_dictionaries_are_refused(data, teacher, tmp_path, capsys):
    folder = shutil.copytree(data, tmp_path / "data")
    with open(folder / "dict.en.txt", "a", encoding="utf-8") as file:
        file.write("one-more 1\n")
    line = refused_by(transfer.main, capsys, *flags_of(folder), teacher, tmp_path / "rfa.pt")
    assert "the decoder of the checkpoint has 16 words and its dictionary in" in line and "has 17" in line


def test_damaged_valid_is_refused(data, teacher, tmp_path, capsys):
    folder = shutil.copytree(data, tmp_path / "data")
    (folder / "valid.de-en.en.idx").write_bytes(b"")
    line = refused_by(transfer.main, capsys, *flags_of(folder), teacher, tmp_path / "rfa.pt")
    assert "cannot read 'valid' of" in line


def test_a_teacher_without_softmax_is_refused(data, tmp_path, capsys):
    path = made(data, tmp_path, *SMALL_POOL, architecture="transformer_rfa")
    line = refused_by(transfer.main, capsys, *flags_of(data), path, tmp_path / "rfa.pt")
    assert "the decoder of the checkpoint has rfa already" in line


@pytest.mark.parametrize("stopped", ["Adam", "save"])
def test_whoever_is_stopped_leaves_nothing(data, teacher, tmp_path, capsys, monkeypatch, stopped):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.Adam if stopped == "Adam" else torch, {"Adam": "step"}.get(stopped, stopped), stop)
    flags = flags_of(data, "--report", tmp_path / "report.json")
    line = refused_by(transfer.main, capsys, *flags, teacher, tmp_path / "rfa.pt")
    assert "interrupted, nothing is written" in line
    assert not list(tmp_path.iterdir())


def test_where_the_report_may_go(data, teacher, tmp_path, capsys):
    out = tmp_path / "rfa.pt"
    for path, words in (
        (teacher, "is IN itself; use another file for --report"),
        (out, "is --report itself; use another file for OUT"),
        (tmp_path / "nowhere" / "report.json", "use a file in a folder"),
    ):
        assert words in refused_by(transfer.main, capsys, *flags_of(data, "--report", path), teacher, out)
    assert not list(tmp_path.iterdir())
