"""The report of recipes/documents.sh on folders that are made up."""

import json
import re

import pytest

from scripts import run_helper, spoil

BLEU = "BLEU|nrefs:1|case:mixed"
VERSIONS = {"torch": "2.13.0", "fairseq": "0.12.3", "fairseq_rfa": "0.1.0", "sacrebleu": "2.6.0"}
TRAINED = (
    "2026 | INFO | fairseq_cli.train | {'_name': None, 'common': {'fp16': False}}\n2026 | INFO | valid | epoch 001 | "
    "valid on 'valid' subset | loss 3 | nll_loss 2 | ppl 4 | wps 1 | num_updates 400 | best 1\n"
)
SETTINGS = "max-update=400\nmax-epoch=\nbeam=5\nbatch-size=16\nflags=\nsubsets=valid test\ndata=abc\n"
ARMS = {"softmax": "0 --causal-attention softmax", "gated": "0 --rfa-sentence-gate"}


def write_score(folder, bleu, seconds, memory, jobs):
    folder.mkdir(parents=True)
    score = {"score": bleu, "signature": BLEU, "versions": VERSIONS, "commit": "a" * 40, "sentences": 10}
    score |= {"architectures": ["transformer_rfa_tiny"], "decoding": {"seconds": seconds, "peak_memory": memory}}
    score["documents"] = {"score": bleu + 1, "signature": BLEU, "number": 2}
    (folder / "score.json").write_text(json.dumps(score), encoding="utf-8")
    (folder / "jobs").write_text(f"{jobs}\n", encoding="utf-8")


def make_study(folder, jobs=1):
    """Two arms, windows of 1 and 4, two seeds: softmax has all but one run that failed, the gate one run."""
    folder.mkdir()
    (folder / "settings").write_text(SETTINGS, encoding="utf-8")
    queue = []
    for seed in (1, 2):
        for window in (1, 4):
            for arm, rest in ARMS.items():
                if (arm, window) == ("gated", 1):
                    continue
                name = f"{arm}-window-{window}-seed-{seed}"
                queue.append(f"{name} {arm} {window} {seed} {rest}\n")
                if (arm, seed) == ("gated", 2):
                    continue
                run = folder / name
                valid = f"2026 | INFO | valid | valid on 'valid' subset | loss 3 | nll_loss {seed + 1} | ppl 4\n"
                for subset, bleu in (("valid", 20), ("test", 30), ("valid-reference", 25)):
                    if subset != "valid-reference" or window > 1:
                        write_score(run / subset, bleu + seed, window * 2.0, 1000000 * (bleu + window), jobs)
                (run / "train.log").write_text(TRAINED, encoding="utf-8")
                (run / "validate.log").write_text(valid, encoding="utf-8")
                (run / "threads").write_text("1\n", encoding="utf-8")
                if (window, seed) == (4, 2):
                    (run / "failed").write_text("out of cheese\n", encoding="utf-8")
                else:
                    (run / "complete").touch()
    (folder / "queue").write_text("".join(queue), encoding="utf-8")
    return folder


@pytest.fixture
def out(tmp_path):
    return make_study(tmp_path / "the study")


def read_report(out):
    result = run_helper("recipes", "documents.report", out)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return json.loads((out / "documents.json").read_text(encoding="utf-8"))


def test_means_over_the_seeds_by_window(out):
    report = read_report(out)
    softmax = report["arms"]["softmax"]["windows"]
    assert softmax["1"]["perplexity"] == {"mean": 6.0, "sd": 2.828}
    assert softmax["1"]["bleu"]["test"] == {"mean": 31.5, "sd": 0.707}
    assert softmax["1"]["document_bleu"]["test"]["mean"] == 32.5
    assert softmax["1"]["seconds_per_sentence"] == {"mean": 0.2, "sd": 0.0}
    assert "valid-reference" not in softmax["1"]["bleu"] and softmax["4"]["bleu"]["valid-reference"]["mean"] == 26
    # Of valid and test, the greater.
    assert softmax["4"]["peak_memory"] == 34000000
    assert (softmax["4"]["seeds"], softmax["4"]["runs"]["2"]["reason"]) == ([1], "out of cheese")
    assert list(report["arms"]["gated"]["windows"]) == ["4"]
    assert report["arms"]["gated"]["windows"]["4"]["runs"]["2"]["status"] == "not run"
    sign = report["signature"]
    assert (sign["windows"], sign["seeds"], sign["jobs"], sign["updates"]) == ([1, 4], [1, 2], 1, 400)
    assert sign["documents"] == {"valid": 2, "test": 2} and sign["max_epoch"] is None


def test_the_table(out):
    read_report(out)
    table, about, sign = (out / "documents.md").read_text(encoding="utf-8").split("\n\n")
    assert table.splitlines() == [
        "| window | arm | what differs | seeds | validation perplexity | BLEU, valid (documents) "
        "| BLEU, valid, reference | BLEU, test (documents) | seconds a sentence | peak memory |",
        "| --- " * 10 + "|",
        "| 1 | `softmax` | `--causal-attention softmax` | 2 of 2 | 6.00 ± 2.83 | 21.50 ± 0.71 (22.50 ± 0.71) |  "
        "| 31.50 ± 0.71 (32.50 ± 0.71) | 0.2000 ± 0.0000 | 31 MB |",
        "| 1 | `gated` | `--rfa-sentence-gate` | none |  |  |  |  |  |  |",
        "| 4 | `softmax` | `--causal-attention softmax` | 1 of 2 (failed) | 4.00 | 21.00 (22.00) | 26.00 (27.00) "
        "| 31.00 (32.00) | 0.8000 | 34 MB |",
        "| 4 | `gated` | `--rfa-sentence-gate` | 1 of 2 (not run) | 4.00 | 21.00 (22.00) | 26.00 (27.00) "
        "| 31.00 (32.00) | 0.8000 | 34 MB |",
    ]
    assert "Decoding was timed with 1 run at a time." in about
    assert about.endswith("No window of 1 for `gated`: the gate acts between sentences alone.")
    assert sign.startswith("`transformer_rfa_tiny|max-update:400|updates:400|windows:1,4|seeds:1,2|beam:5|batch-size:")
    assert sign.endswith(f", sentences `{BLEU}`, documents `{BLEU}`\n")


def test_what_was_decoded_beside_other_runs_is_not_timed(tmp_path):
    out = make_study(tmp_path / "the study", jobs=2)
    (out / "softmax-window-1-seed-1/valid/jobs").write_text("1\n", encoding="utf-8")
    report = read_report(out)
    for arm in report["arms"].values():
        for result in arm["windows"].values():
            assert result["seconds_per_sentence"]["mean"] is None
    text = (out / "documents.md").read_text(encoding="utf-8")
    assert "Runs at a time: 1,2; only what was decoded with 1 at a time is timed." in text


def test_a_study_without_a_complete_run(out):
    for mark in out.glob("*/complete"):
        mark.unlink()
    report = read_report(out)
    assert report["arms"]["softmax"]["windows"]["1"]["seeds"] == []
    assert "0 of 2 (not finished)" in (out / "documents.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "file, text, message",
    [
        ("queue", None, "cannot read '.*queue' .*; give the folder --out of recipes/documents.sh"),
        ("queue", "", "'.*queue' is empty; start recipes/documents.sh again"),
        ("settings", "beam=5\n", "'.*settings' holds no settings of recipes/documents.sh"),
        ("gated-window-4-seed-1/train.log", None, "cannot read '.*train.log' .*; train this run again"),
        ("gated-window-4-seed-1/validate.log", "", "'.*validate.log' holds no validation loss; remove the file"),
        ("gated-window-4-seed-1/valid/jobs", "x", "'.*jobs' holds no number; remove it"),
        ("gated-window-4-seed-1/test/score.json", "{}", "'.*score.json' is no report of recipes/score.sh; remove"),
        (
            "gated-window-4-seed-1/test/score.json",
            json.dumps({"score": 3, "signature": BLEU, "versions": VERSIONS}),
            "'.*score.json' says nothing of documents or time; remove it",
        ),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(out, file, text, message):
    spoil(out / file, text)
    result = run_helper("recipes", "documents.report", out)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert re.search(message, result.stderr), result.stderr
