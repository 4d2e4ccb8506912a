"""python -m fairseq_rfa.transfer: files that train on, decode and average, and those that are refused."""

import logging
import os
import shutil
import sys

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_rfa import average_checkpoints
from fairseq_rfa.transfer import __main__ as transfer
from scripts import refused_by
from tiny_data import SMALL, TRAINING, command, generate_here, results, train_here
from transfer_data import made

HEADS = tuple("--encoder-attention-heads 4 --decoder-attention-heads 4".split())  # of the architecture

@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A plain transformer of a named architecture."""
    folder = tmp_path_factory.mktemp("softmax")
    return train_here(data, folder, "--max-update", "30", architecture="transformer_iwslt_de_en")


@pytest.fixture(scope="module")
def converted(data, trained, tmp_path_factory):
    """The same with random features."""
    path = tmp_path_factory.mktemp("rfa") / "rfa.pt"
    flags = ["--rfa-num-matrices", "20", "--fit-data", data, "--fit-sentences", "6"]
    transfer.main([str(x) for x in ("--to", "rfa", *flags, trained, path)])
    return path


def test_the_first_line_of_the_output_to_the_signature(data, trained, tmp_path, capsys):
    flags = ["--rfa-num-matrices", "20", "--fit-data", str(data), "--fit-sentences", "6"]
    transfer.main(["--to", "rfa", *flags, str(trained), str(tmp_path / "rfa.pt")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("kept ") and lines[-1].startswith("from:transformer 1+2 layers of 32 softmax/softmax|")
    assert lines[-1].endswith("|fit:binary valid 6")
    state = load_checkpoint_to_cpu(tmp_path / "rfa.pt")["model"]
    for place, name in (("causal", "self_attn"), ("cross", "encoder_attn")):
        sigma = state[f"decoder.layers.1.{name}.sigma"]
        shown = " ".join(f"{value:.3f}" for value in sigma[:, 0].tolist())
        assert f"  {place} attention of layer 1: {shown}" in lines
        assert torch.equal(sigma, sigma[:, :1].expand_as(sigma)) and sigma.unique().numel() > 1
    assert os.listdir(tmp_path) == ["rfa.pt"]


@pytest.mark.parametrize(
    "flag",
    [["--finetune-from-model"], ["--restore-file"], ["--reset-optimizer", "--reset-dataloader", "--restore-file"]],
    ids=lambda flag: " ".join(flag),
)
def test_converted_checkpoint_trains_on(data, converted, tmp_path, caplog, flag):
    caplog.set_level(logging.INFO)
    flags = ["--max-update", "2", "--lr", "1e-9", *flag, str(converted)]
    start = load_checkpoint_to_cpu(converted)["model"]
    end = load_checkpoint_to_cpu(train_here(data, tmp_path, *flags, *HEADS))
    assert end["optimizer_history"][-1]["num_updates"] == 2
    assert end["model"].keys() == start.keys()
    assert all(torch.allclose(end["model"][name], value, atol=1e-6) for name, value in start.items())
    assert not any("another attention" in record.getMessage() for record in caplog.records)


def texts(output):
    return [fields[1] for _, fields in results(output)]


def test_converted_checkpoint_decodes_and_averages(data, trained, converted, tmp_path):
    output = tmp_path / "average.pt"
    average_checkpoints.main(["--inputs", str(converted), str(converted), "--output", str(output)])
    found = results(generate_here(data, output))
    assert len(found) == 8 and found == results(generate_here(data, converted))
    overrides = {"causal_attention": "softmax", "cross_attention": "softmax"}
    softmax = generate_here(data, converted, "--model-overrides", str(overrides))
    assert texts(softmax) == texts(generate_here(data, trained)) != texts(generate_here(data, converted))


def test_without_the_plugin(data, trained, converted, tmp_path):
    """fairseq alone decodes it and trains on from it, though torch would not load a checkpoint of its own."""
    back = tmp_path / "softmax.pt"
    transfer.main(["--to", "softmax", str(converted), str(back)])
    every = ["--cpu", "--num-workers", "0", "--required-batch-size-multiple", "1"]
    sizes = [flag for flag in SMALL if "rfa" not in flag][:-1]
    lines = [
        "import sys, fairseq_cli.train, fairseq_cli.generate",
        f"sys.argv = {['', str(data), '--path', str(back), *every]}",
        "fairseq_cli.generate.cli_main()",
        f"sys.argv = {['', str(data), '--arch', 'transformer', *sizes, *HEADS, *TRAINING, '--max-update', '1']}",
        f"sys.argv += {['--finetune-from-model', str(back), '--save-dir', 'run']}",
        "fairseq_cli.train.cli_main()",
        "assert 'fairseq_rfa' not in sys.modules",
    ]
    done = command(sys.executable, "-c", "\n".join(lines), folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert results(done.stdout) == results(generate_here(data, trained))
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()


class Code:
    def __reduce__(self):
        return (print, ("ran",))


def write_file(kind, path, trained):
    """Something that is no checkpoint to convert."""
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("checkpoint\n")
    elif kind == "truncated":
        path.write_bytes(trained.read_bytes()[:-1000])
    elif kind == "tensor":
        torch.save(torch.ones(3), path)
    elif kind == "dictionary":
        torch.save({"model": {"weight": torch.ones(3)}, "epoch": 3}, path)
    elif kind == "code":
        torch.save({**torch.load(trained, weights_only=True), "code": Code()}, path)
    return path


@pytest.mark.parametrize(
    "kind, words",
    [
        ("folder", "is a folder; use a checkpoint"),
        ("missing", "is no file; use a checkpoint"),
        ("text", "no whole checkpoint of fairseq: "),
        ("truncated", "no whole checkpoint of fairseq: "),
        ("tensor", "no whole checkpoint of fairseq: what it holds is something else"),
        ("dictionary", "no whole checkpoint of fairseq: what it holds is something else"),
        ("code", "it holds something else than numbers and options (Unsupported"),
    ],
)
def test_what_is_no_checkpoint_is_refused(trained, tmp_path, capsys, kind, words):
    path = write_file(kind, tmp_path / "in.pt", trained)
    out = tmp_path / "out.pt"
    assert words in refused_by(transfer.main, capsys, "--to", "rfa", path, out)
    assert not out.exists()


CHANGES = {
    "encoder.layers.0.fc1.weight is (32, 31) in the checkpoint and (32, 32) by its options": lambda model: model.update(
        {"encoder.layers.0.fc1.weight": torch.ones(32, 31)}
    ),
    "lacks decoder.layers.1.fc2.bias, which": lambda model: model.pop("decoder.layers.1.fc2.bias"),
    "has decoder.layers.0.stranger, which": lambda model: model.update({"decoder.layers.0.stranger": torch.ones(1)}),
    "has decoder.layers.0.self_attn.sigma, which": lambda model: model.update(
        {"decoder.layers.0.self_attn.sigma": torch.ones(4, 8)}
    ),
    "decoder.layers.0.fc1.bias in the checkpoint is no tensor": lambda model: model.update(
        {"decoder.layers.0.fc1.bias": "text"}
    ),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_does_not_fit_its_options_is_refused(trained, tmp_path, capsys, words):
    state = torch.load(trained, weights_only=True)
    CHANGES[words](state["model"])
    torch.save(state, tmp_path / "in.pt")
    assert words in refused_by(transfer.main, capsys, "--to", "rfa", tmp_path / "in.pt", tmp_path / "out.pt")


def test_missing_sigma_of_ours_is_refused(converted, tmp_path, capsys):
    state = torch.load(converted, weights_only=True)
    del state["model"]["decoder.layers.1.self_attn.sigma"]
    torch.save(state, tmp_path / "in.pt")
    line = refused_by(transfer.main, capsys, "--to", "softmax", tmp_path / "in.pt", tmp_path / "out.pt")
    assert "lacks decoder.layers.1.self_attn.sigma" in line


def test_other_models_are_refused_by_name(trained, tmp_path, capsys):
    state = torch.load(trained, weights_only=True)
    for name in ("lightconv_iwslt_de_en", "fconv_lm", "transformer_align"):
        state["cfg"]["model"]._name = name
        torch.save(state, tmp_path / "in.pt")
        line = refused_by(transfer.main, capsys, "--to", "rfa", tmp_path / "in.pt", tmp_path / "out.pt")
        assert f"the model of the checkpoint is {name}; use one of transformer, transformer_rfa" in line


@pytest.mark.parametrize(
    "flags, words",
    [
        ("--to rfa --imitate unit-length --rfa-unnormalized", "--rfa-unnormalized contradicts --imitate unit-length"),
        ("--to rfa --imitate softmax --no-rfa-unnormalized", "--no-rfa-unnormalized contradicts --imitate softmax"),
        ("--to rfa --imitate softmax --rfa-sigma-init 2", "--rfa-sigma-init 2 contradicts --imitate softmax"),
        ("--to rfa --imitate softmax --rfa-feature-map arccos", "use gaussian, positive, oprf, cosine"),
        ("--to rfa --imitate softmax --fit-data DATA", "there is nothing to fit"),
        ("--to rfa --fit-data DATA --rfa-sigma-init 2", "both say what sigma is"),
        ("--to rfa --fit-data DATA --rfa-feature-map elu", "no temperature of the map elu"),
        ("--to rfa --imitate unit-length --rfa-feature-map elu", "elu never scales to unit length"),
        ("--to rfa --fit-data DATA --reset-attention all", "throws away what --fit-data fits"),
        ("--to rfa --fit-data nowhere", "cannot read 'valid' of 'nowhere'"),
        ("--to rfa --fit-data DATA --fit-subset none", "cannot read 'none' of"),
        ("--to rfa --causal-attention softmax --cross-attention softmax", "use --to softmax"),
        ("--to rfa --rfa-causal-dim 0", "--rfa-causal-dim is 0; use at least 1"),
        ("--to rfa --rfa-causal-dims 3", "unrecognized arguments"),
        ("--to rfa --seed -1", "--seed is -1; use a number from 0"),
        ("--to softmax", "the decoder of the checkpoint has softmax already"),
        ("--to softmax --rfa-gate", "leave it out with --to softmax"),
        ("--to softmax --imitate softmax", "leave it out with --to softmax"),
    ],
)
def test_contradictions_are_refused(data, trained, tmp_path, capsys, flags, words):
    flags = [data if flag == "DATA" else flag for flag in flags.split()]
    assert words in refused_by(transfer.main, capsys, *flags, trained, tmp_path / "out.pt")
    assert not list(tmp_path.iterdir())


def test_sigma_that_would_mean_something_else_is_refused(data, tmp_path, capsys):
    flags = ["--rfa-num-matrices", "20", "--cross-attention", "softmax"]
    path = made(data, tmp_path, *flags, architecture="transformer_rfa")
    line = refused_by(transfer.main, capsys, "--to", "rfa", "--imitate", "softmax", path, tmp_path / "out.pt")
    assert "the causal attention stays as it is" in line and "use --imitate unit-length" in line


def test_where_the_result_may_go(trained, tmp_path, capsys):
    path = shutil.copy(trained, tmp_path / "in.pt")
    before = path.read_bytes()
    (tmp_path / "link.pt").symlink_to(path)
    for out in (path, tmp_path / "link.pt"):
        assert "is IN itself; use another file" in refused_by(transfer.main, capsys, "--to", "rfa", path, out)
    for out in (tmp_path, tmp_path / "nowhere" / "out.pt"):
        assert "use a file in a folder" in refused_by(transfer.main, capsys, "--to", "rfa", path, out)
    assert path.read_bytes() == before
