"""The report of recipes/seeds.sh on folders that are made up."""

import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import run_helper, spoil
from seeds import report as seeds_report
from seeds.significance import paired_bootstrap

BLEU = "BLEU|nrefs:1|case:mixed"
VERSIONS = {"torch": "2.13.0", "fairseq": "0.12.3", "fairseq_rfa": "0.1.0", "sacrebleu": "2.6.0"}
STARTED = "2026 | INFO | fairseq_cli.train | {'_name': None, 'common': {'fp16': False}}\n"
SETTINGS = "max-epoch=20\nbeam=5\nflags=\nsubsets=valid test\ndata=abc\n"
ARMS = ["softmax 0 --causal-attention softmax", "rfa 0", "first 5 --rfa-feature-map positive"]
PERPLEXITIES = {"softmax": (6.0, 7.0, 8.0), "rfa": (7.0, 7.5, 8.0), "first": (6.0, 6.5, 7.0)}
SCORES = {"softmax": (35.0, 36.0, 37.0), "rfa": (33.0, 33.0, 36.0), "first": (35.5, 36.5, 37.5)}


def sentences(dice, damage):
    """Reference-like lines with some words exchanged."""
    # What ends a line for Python alone ends none here.
    words = [[dice.choice("abcdefghi\u2028") for _ in range(8)] for _ in range(40)]
    return [" ".join("x" if dice.random() < damage else word for word in line) for line in words]


def validated(epoch, perplexity):
    return (
        f"2026 | INFO | valid | epoch {epoch:03} | valid on 'valid' subset | loss 3 | nll_loss 2 | ppl {perplexity} "
        f"| wps 3.1 | num_updates {epoch * 144} | best_loss 3.4\n"
    )


def write_score(folder, bleu, lines):
    folder.mkdir(parents=True)
    score = {"score": bleu, "signature": BLEU, "versions": VERSIONS, "commit": "a" * 40, "case": "mixed"}
    score["architectures"] = ["transformer_rfa_tiny"]
    (folder / "score.json").write_text(json.dumps(score), encoding="utf-8")
    (folder / "hypotheses.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def out(tmp_path):
    """All arms with seeds 1, 2 and 3: of `rfa` the second failed, of `first` the third was never run."""
    folder = tmp_path / "the study"
    folder.mkdir()
    (folder / "settings").write_text(SETTINGS, encoding="utf-8")
    dice = random.Random(4)
    reference = sentences(dice, 0)
    (folder / "reference.test").write_text("".join(line + "\n" for line in reference), encoding="utf-8")
    queue = []
    for seed in (1, 2, 3):
        for arm in ARMS:
            name, rest = arm.split(" ", 1)
            queue.append(f"{name}-seed-{seed} {name} {seed} {rest}")
            run = folder / f"{name}-seed-{seed}"
            if (name, seed) == ("first", 3):
                continue
            run.mkdir()
            perplexity = PERPLEXITIES[name][seed - 1]
            log = STARTED + validated(19, perplexity + 1) + validated(20, perplexity)
            (run / "train.log").write_text(log, encoding="utf-8")
            (run / "threads").write_text("1\n", encoding="utf-8")
            write_score(run / "valid", 30.0 + seed, ["never read"])
            # Far worse than the reference, so that the test is sure; the first arm is nearly as good as softmax.
            damage = {"softmax": 0.1, "rfa": 0.6, "first": 0.1}[name]
            lines = [line.split(" ") for line in reference]
            lines = [" ".join("x" if dice.random() < damage else word for word in line) for line in lines]
            write_score(run / "test", SCORES[name][seed - 1], lines)
            if (name, seed) == ("rfa", 2):
                (run / "failed").write_text("out of cheese\n", encoding="utf-8")
            else:
                (run / "complete").touch()
    (folder / "queue").write_text("".join(line + "\n" for line in queue), encoding="utf-8")
    return folder


def lines_of(file):
    return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_means_spread_and_differences(out):
    result = run_helper("recipes", "seeds.report", out)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    report = json.loads((out / "seeds.json").read_text(encoding="utf-8"))
    softmax, rfa, first = (report["arms"][name] for name in ("softmax", "rfa", "first"))
    assert softmax["perplexity"] == {"mean": 7.0, "sd": 1.0}
    assert softmax["bleu"] == {"valid": {"mean": 32.0, "sd": 1.0}, "test": {"mean": 36.0, "sd": 1.0}}
    assert (rfa["seeds"], first["seeds"]) == ([1, 3], [1, 2])
    assert rfa["bleu"]["test"] == {"mean": 34.5, "sd": round(statistics.stdev([33.0, 36.0]), 3)}
    assert (rfa["runs"]["2"]["status"], rfa["runs"]["2"]["reason"]) == ("failed", "out of cheese")
    assert first["runs"]["3"]["status"] == "not run" and first["softmax_epochs"] == 5

    # Of the same seeds: 33 − 35 and 36 − 37.
    difference = rfa["differences"]["test"]
    assert (difference["mean"], difference["sd"]) == (-1.5, round(statistics.stdev([-2.0, -1.0]), 3))
    assert list(difference["p"]) == ["1", "3"] and max(difference["p"].values()) < 0.01
    assert softmax["differences"] == {} and min(first["differences"]["test"]["p"].values()) > 0.01
    for seed in ("1", "2"):
        systems = {name: lines_of(out / f"{name}-seed-{seed}/test/hypotheses.txt") for name in ("softmax", "first")}
        signature, wanted = paired_bootstrap(systems, lines_of(out / "reference.test"))
        assert first["differences"]["test"]["p"][seed] == round(wanted["first"], 4)
        assert report["signature"]["paired_bootstrap"] == signature
    assert report["signature"]["seeds"] == [1, 2, 3] and report["signature"]["updates"] == 2880


def test_the_tables(out):
    assert run_helper("recipes", "seeds.report", out).returncode == 0
    means, differences, about, sign = (out / "seeds.md").read_text(encoding="utf-8").split("\n\n")
    assert means.splitlines() == [
        "| arm | what differs | seeds | validation perplexity | BLEU, valid | BLEU, test |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `softmax` | `--causal-attention softmax` | 3 of 3 | 7.00 ± 1.00 | 32.00 ± 1.00 | 36.00 ± 1.00 |",
        "| `rfa` | the default | 2 of 3 (failed) | 7.50 ± 0.71 | 32.00 ± 1.41 | 34.50 ± 2.12 |",
        "| `first` | 5 epochs of softmax first, `--rfa-feature-map positive` | 2 of 3 (not run) | 6.25 ± 0.35 "
        "| 31.50 ± 0.71 | 36.00 ± 0.71 |",
    ]
    rows = [row.split(" | ")[:2] for row in differences.splitlines()]
    assert rows[2:] == [["| `rfa` − `softmax`", "−1.50 ± 0.71"], ["| `first` − `softmax`", "+0.50 ± 0.00"]]
    assert "sample standard deviation" in about
    assert sign.startswith("`transformer_rfa_tiny|epochs:20|updates:2880|seeds:1,2,3|beam:5|precision:float32|")
    assert f"commit:{'a' * 40}`, `{BLEU}`, `BLEU|" in sign and "|bs:1000|" in sign


def test_one_run_has_no_spread_and_no_difference(out):
    for mark in out.glob("*/complete"):
        if mark.parent.name != "rfa-seed-1":
            mark.unlink()
    assert run_helper("recipes", "seeds.report", out).returncode == 0
    text = (out / "seeds.md").read_text(encoding="utf-8")
    assert "| `rfa` | the default | 1 of 3 (failed, not finished) | 7.00 | 31.00 | 33.00 |" in text
    assert "| `softmax` | `--causal-attention softmax` | 0 of 3 (not finished) |  |  |  |" in text
    assert "No arm has a seed in common with the first one yet." in text


def test_the_test_is_that_of_sacrebleus_command(out):
    """Its own command line gives the same p-value and signature for the same files."""
    files = [out / f"{name}-seed-1/test/hypotheses.txt" for name in ("softmax", "first", "rfa")]
    command = ["sacrebleu", out / "reference.test", "--input", *files, "--paired-bs", "--metrics", "bleu"]
    command[0] = Path(sys.executable).with_name("sacrebleu")
    result = subprocess.run([*map(str, command), "--format", "json"], capture_output=True, text=True, check=True)
    wanted = [row["BLEU"]["p_value"] for row in json.loads(result.stdout) if "p_value" in row.get("BLEU", {})]
    systems = {str(number): lines_of(file) for number, file in enumerate(files)}
    signature, found = paired_bootstrap(systems, lines_of(out / "reference.test"))
    assert [round(value, 4) for value in found.values()] == [round(value, 4) for value in wanted if value is not None]
    assert signature.startswith("BLEU|nrefs:1|bs:1000|")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("queue", None, "cannot read '.*queue' .*; give the folder --out of"),
        ("queue", "", "'.*queue' is empty; start recipes/seeds.sh again"),
        ("settings", "beam=5\n", "'.*settings' holds no settings of .*; give the folder"),
        ("rfa-seed-1/train.log", STARTED, "'.*train.log' has no finite perplexity of 'valid'; remove '.*rfa-seed-1'"),
        ("rfa-seed-1/test/score.json", "{}", "'.*score.json' is no report of recipes/score.sh; remove"),
        ("rfa-seed-1/test/hypotheses.txt", None, "cannot read '.*hypotheses.txt' .*; remove '.*complete'"),
        ("reference.test", "one line\n", "'softmax' has 40 translations for 1 lines of reference"),
        ("reference.test", None, "cannot read '.*reference.test' .*; start recipes/seeds.sh again"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(out, file, text, message):
    spoil(out / file, text)
    with pytest.raises(ValueError, match=f"^{message}[^\n]*$"):
        seeds_report.report(out)
