"""The report on folders that are made up."""

import json
import re

import pytest
from matplotlib import image

from ablation import report as ablation_report
from scripts import run_helper, spoil, succeed
from training_log import read_training_log

BLEU = "BLEU|nrefs:1|case:mixed"
REPORTS = ["ablation.json", "ablation.md", "ablation.png"]


def started(causal=64, cross=128, more=""):
    return (
        f"2026 | INFO | fairseq_cli.train | {{'_name': None, 'common': {{'fp16': False{more}}}, "
        f"'model': Namespace(rfa_causal_dim={causal}, rfa_cross_dim={cross})}}\n"
        "2026 | INFO | fairseq_cli.train | num. shared model params: 1,520,896 (num. trained: 9)\n"
    )


def epoch(number, perplexity, wall):
    start = f"2026-01-01 00:00:00 | INFO | {{}} | epoch {number:03d}"
    return (
        f"{start.format('train_inner')}:    144 / 144 loss=4.2, ppl=7.4, train_wall=19, wall={wall - 1}\n"
        f"{start.format('valid')} | valid on 'valid' subset | loss 3.5 | nll_loss 1.9 | ppl {perplexity} "
        f"| wps 3.1 | wpb 2 | bsz 1 | num_updates {144 * number} | best_loss 3.4\n"
        f"{start.format('train')} | loss 3.9 | ppl 6.1 | num_updates 144 | train_wall 19 | wall {wall}\n"
    )


def make_run(out, name, perplexities, bleu=None, commit="a" * 40, **directions):
    """A run that is complete if it has a score."""
    folder = out / name
    (folder / "valid").mkdir(parents=True)
    lines = [epoch(number, p, 90 * number) for number, p in enumerate(perplexities, 1)]
    (folder / "train.log").write_text(started(**directions) + "".join(lines), encoding="utf-8")
    (folder / "threads").write_text("1\n", encoding="utf-8")
    if bleu is not None:
        versions = {"torch": "2.13.0", "fairseq": "0.12.3", "fairseq_rfa": "0.1.0", "sacrebleu": "2.6.0"}
        score = {"score": bleu, "signature": BLEU, "versions": versions, "commit": commit}
        (folder / "valid/score.json").write_text(json.dumps(score), encoding="utf-8")
        (folder / "complete").touch()


@pytest.fixture
def out(tmp_path):
    """A folder with every kind of run."""
    folder = tmp_path / "the study"
    folder.mkdir()
    (folder / "queue").write_text(succeed("recipes/ablation.sh", "--list").stdout, encoding="utf-8")
    settings = "max-epoch=2\nbeam=5\nseed=3\nflags='--lr' '0.002'\ndata=abc\n"
    (folder / "settings").write_text(settings, encoding="utf-8")
    make_run(folder, "softmax", ["90.0", "20.0"], 21.5)
    make_run(folder, "rfa", ["95.5", "25.0"], 20.25)
    make_run(folder, "cross_dim_16", ["31.0", "200.0"], 12.0, cross=16)
    make_run(folder, "causal_dim_16", ["300.0", "200.01"], 0.5, causal=16)
    make_run(folder, "cosine", ["nan", "inf"], 0.0)
    make_run(folder, "learned", ["99.0"])
    make_run(folder, "gate", ["97.0"])
    (folder / "gate/failed").write_text("no memory\n", encoding="utf-8")
    return folder


def write_report(out):
    return run_helper("recipes", "ablation.report", out)


def test_a_queue_that_is_not_finished(out):
    result = write_report(out)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    report = json.loads((out / "ablation.json").read_text(encoding="utf-8"))
    assert report["signature"] == {
        "architecture": "transformer_rfa_tiny", "epochs": 2, "updates": 288, "seed": 3, "beam": 5,
        "precision": "float32", "device": "cpu", "threads": 1, "flags": "'--lr' '0.002'", "data": "abc",
        "versions": {"torch": "2.13.0", "fairseq": "0.12.3", "fairseq_rfa": "0.1.0", "sacrebleu": "2.6.0"},
        "commit": "a" * 40, "sacrebleu": BLEU,
    }
    assert report["runs"]["cross_dim_16"] == {
        "study": "cross", "architecture": "transformer_rfa_tiny", "flags": ["--rfa-cross-dim", "16"],
        "status": "complete", "reason": None, "parameters": 1520896,
        "directions": {"causal": 64, "cross": 16}, "perplexity": 31.0, "perplexity_ratio": 1.55,
        "perplexities": {"1": 31.0, "2": 200.0}, "bleu": 12.0, "minutes": 3.0,
    }
    runs = report["runs"]
    assert {name: run["status"] for name, run in runs.items() if run["status"] != "not run"} == {
        **dict.fromkeys(["softmax", "rfa", "cross_dim_16"], "complete"),
        "causal_dim_16": "did not train", "cosine": "did not train",
        "learned": "not finished", "gate": "failed",
    }
    assert (runs["cosine"]["perplexity"], runs["cosine"]["perplexities"]) == (None, {"1": None, "2": None})
    assert (runs["learned"]["perplexity"], runs["learned"]["perplexities"]) == (None, {"1": 99.0})
    assert runs["gate"]["reason"] == "no memory"
    height, width, _ = image.imread(out / "ablation.png").shape
    assert width >= 800 and height >= 400


def test_the_table(out):
    assert write_report(out).returncode == 0
    lines = (out / "ablation.md").read_text(encoding="utf-8").splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ", 1)[1] for line in lines[2:-2]}
    studies = [name.strip("*") for name in rows if name.startswith("**")]
    assert studies == ["baselines", "cross", "causal", "maps", "variants"] and len(rows) == 16 + 5
    assert rows["rfa"] == "the default | 1,520,896 | 25.00 | 20.25 | 1.25 |"
    assert rows["softmax"].endswith("softmax` | 1,520,896 | 20.00 | 21.50 | 1.00 |")
    differs = "`--rfa-causal-dim 16` | 1,520,896"
    assert rows["causal_dim_16"] == f"{differs} | 200.01, did not train | 0.50 | 10.00 |"
    assert "| not finite, did not train | 0.00 |  |" in rows["cosine"]
    assert "| not finished (1 of 2 epochs) |" in rows["learned"]
    assert rows["gate"] == "`--arch transformer_rfa_tiny_gate` |  | failed |  |  |"
    assert rows["elu"] == "`--rfa-feature-map elu` |  | not run |  |  |"
    assert lines[-1] == (
        "`transformer_rfa_tiny|epochs:2|updates:288|seed:3|beam:5|precision:float32|device:cpu|threads:1"
        f"|torch:2.13.0|fairseq:0.12.3|fairseq_rfa:0.1.0|sacrebleu:2.6.0|commit:{'a' * 40}"
        f"|flags:'--lr' '0.002'`, `{BLEU}` on validation data"
    )


def test_a_figure_without_softmax_and_without_any_run(out):
    for name in ("softmax", "rfa"):
        (out / name / "complete").unlink()
    assert write_report(out).returncode == 0
    runs = json.loads((out / "ablation.json").read_text(encoding="utf-8"))["runs"]
    assert runs["causal_dim_16"]["status"] == "complete" and runs["causal_dim_16"]["perplexity_ratio"] is None
    for folder in out.glob("*/complete"):
        folder.unlink()
    assert write_report(out).returncode == 0
    assert "seed:3" in (out / "ablation.md").read_text(encoding="utf-8").splitlines()[-1]


def test_runs_of_different_commits_are_not_passed_off_as_one(out):
    make_run(out, "elu", ["50.0", "24.0"], 19.0, commit="b" * 40)
    assert ablation_report.report(out)["signature"]["commit"] == ["a" * 40, "b" * 40]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("queue", None, "cannot read '.*queue' .*; give the folder --out of"),
        ("settings", "beam=5\n", "'.*settings' holds no settings of .*; give the folder"),
        ("rfa/train.log", None, "cannot read '.*rfa/train.log' .*; train this run again"),
        ("rfa/train.log", started(), "'.*rfa/train.log' has no line .*; remove '.*rfa' and train"),
        ("rfa/train.log", epoch(1, "9.5", 9), "'.*rfa/train.log' has no number of parameters; remove"),
        ("rfa/train.log", epoch(1, "many", 9), "'.*rfa/train.log' gives .* 'many'.* no number; remove"),
        ("rfa/valid/score.json", None, "cannot read '.*score.json' .*; remove the file 'complete'"),
        ("rfa/valid/score.json", '{"score": 3', "'.*score.json' is no report of .*; remove the file"),
        ("rfa/valid/score.json", "[1]", "'.*score.json' is no report of .*; remove the file"),
        ("rfa/threads", "two", "'.*threads' holds no number; remove it"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(out, file, text, message):
    spoil(out / file, text)
    with pytest.raises(ValueError, match=f"^{message}[^\n]*$"):
        ablation_report.report(out)


def test_an_error_ends_the_program_without_a_report(tmp_path):
    result = write_report(tmp_path)
    assert result.returncode == 1
    assert re.fullmatch(r"ablation/report.py: cannot read '.*queue' .*\n", result.stderr)
    assert not any((tmp_path / name).exists() for name in REPORTS)


def test_the_log_of_a_training_that_was_stopped(tmp_path):
    """Epoch 2 is repeated, a line is cut off, and the clock starts again."""
    file = tmp_path / "train.log"
    cut = epoch(3, "7.0", 150).partition(" | ppl")[0]
    gpu = "… | rank   0: capabilities =  9.0  ; total memory = 139.8 GB ; name = NVIDIA H200   \n"
    text = started() + epoch(1, "90.0", 60) + epoch(2, "50.0", 120) + cut + "\n"
    text += started(32, 16, ", 'bf16': True") + gpu + epoch(2, "40.0", 61) + "stray \udcff line\n"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    log = read_training_log(file)
    assert log.perplexities == {1: 90.0, 2: 40.0}
    assert (log.updates, log.parameters, log.seconds) == (288, 1520896, 149 + 61)
    assert (log.precision, log.device) == ("bf16", "NVIDIA H200")
    assert log.directions == {"causal": 32, "cross": 16}
