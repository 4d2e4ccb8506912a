"""The report on folders that are made up."""

import json
import re

import pytest

from losses import Loss, read_validation
from scripts import run_helper, spoil
from transfer import report as transfer_report
from transfer.curves import read_curves, smooth

BLEU = "BLEU|nrefs:1|case:mixed"
VERSIONS = {"torch": "2.13.0", "fairseq": "0.12.3", "fairseq_rfa": "0.1.0", "sacrebleu": "2.6.0"}
STARTED = (
    "2026 | INFO | fairseq_cli.train | {'_name': None, 'common': {'fp16': False}, "
    "'model': Namespace(rfa_feature_map='gaussian', rfa_causal_dim=64, rfa_cross_dim=128)}\n"
    "2026 | INFO | fairseq_cli.train | num. shared model params: 1,520,896 (num. trained: 9)\n"
)
SETTINGS = """preset=multi30k
arch=transformer_rfa_tiny
arm-updates=60
arm-lr=0.002
arm-warmup=20
update-tokens=4096
log-interval=10
beam=5
seed=3
flags=
data=abc
"""
QUEUE = """softmax_source softmax source
rfa_source rfa source
softmax_scratch softmax scratch
rfa_scratch rfa scratch
softmax_continued softmax continued
rfa_from_softmax rfa kept unit-length
rfa_from_softmax_fitted rfa kept unit-length fitted
rfa_from_softmax_reset rfa reset unit-length
softmax_from_rfa softmax kept
"""


def inner(updates, loss, nll=1.5):
    return (
        f"2026 | INFO | train_inner | epoch 001:     {updates} / 144 loss={loss}, nll_loss={nll}, ppl=2.83, wps=9.1, "
        f"num_updates={updates}, lr=0.1, gnorm=0.3, train_wall=4, wall=9\n"
    )


def validated(updates, loss, nll):
    return (
        f"2026 | INFO | valid | epoch 001 | valid on 'valid' subset | loss {loss} | nll_loss {nll} | ppl 4 | wps 3.1 "
        f"| wpb 2 | bsz 1 | num_updates {updates} | best_loss 3.4\n"
    )


def epoch(updates, loss, nll):
    return (
        f"2026 | INFO | train | epoch 001 | loss {loss} | nll_loss {nll} | ppl 6.1 | wps 3.1 | wpb 2 "
        f"| num_updates {updates} | lr 0 | train_wall 19 | wall 21\n"
    )


def write_score(folder, bleu):
    folder.mkdir(parents=True)
    score = {"score": bleu, "signature": BLEU, "versions": VERSIONS, "commit": "a" * 40}
    (folder / "score.json").write_text(json.dumps(score), encoding="utf-8")


def make_run(out, name, lines=None, bleu=None, start=None):
    """A run that is complete; `lines` of its train.log, `start`: BLEU and losses before training."""
    folder = out / name
    folder.mkdir()
    (folder / "threads").write_text("1\n", encoding="utf-8")
    if lines is not None:
        (folder / "train.log").write_text(STARTED + "".join(lines), encoding="utf-8")
    if bleu is not None:
        write_score(folder / "valid", bleu)
    if start is not None:
        write_score(folder / "start", start[0])
        losses = f"loss {start[1]} | nll_loss {start[2]} | ppl 4 | wps 0"
        line = f"2026 | INFO | valid | valid on 'valid' subset | {losses}\n"
        (folder / "start/validate.log").write_text(line, encoding="utf-8")
    (folder / "complete").touch()


def curve(*losses):
    return [inner(10 * number, loss) for number, loss in enumerate(losses, 1)]


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "the study"
    folder.mkdir()
    (folder / "queue").write_text(QUEUE, encoding="utf-8")
    (folder / "settings").write_text(SETTINGS, encoding="utf-8")
    source = [inner(10, 3.9), validated(144, 3.5, 2.0), epoch(144, 3.8, 2.4)]
    make_run(folder, "softmax_source", source, 31.5)
    make_run(folder, "rfa_source", [inner(10, 4.9), validated(144, 3.9, 2.5), epoch(144, 4.4, 2.9)], 29.25)
    make_run(folder, "softmax_scratch", [*curve(12, 9, 7, "nan", 6.5, 6.0), validated(60, 6.1, 4.5)], 2.5)
    make_run(folder, "softmax_continued", [*curve(3.75, 3.5, 3.25), validated(30, 3.25, 1.75)], 32.0)
    kept = [*curve(6.0, 4.5, 4.25, 4.0, 3.9, 3.7), validated(30, 3.75, 2.25), validated(60, 3.625, 2.125)]
    make_run(folder, "rfa_from_softmax", kept, 30.0, (1.5, 8.5, 7.0))
    fitted = [*curve(7.0, 5.0), validated(20, 4.5, 3.0)]
    make_run(folder, "rfa_from_softmax_fitted", fitted, 20.0, (0.75, 9.5, 8.0))
    make_run(folder, "softmax_from_rfa", [*curve(4.0, 3.75, 3.75), validated(60, 3.5, 2.0)], 31.0, (2.25, 9.0, 7.5))
    make_run(folder, "rfa_from_softmax_reset", curve(8.0, 7.0))
    (folder / "rfa_from_softmax_reset/complete").unlink()
    return folder


def write_report(out, *more):
    return run_helper("recipes", "transfer.report", out, *more)


def test_a_study_that_is_not_finished(out):
    result = write_report(out, "--smooth", "20")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    report = json.loads((out / "transfer_study.json").read_text(encoding="utf-8"))
    sign = report["signature"]
    assert (sign["map"], sign["directions"], sign["seed"]) == ("gaussian", {"causal": 64, "cross": 128}, 3)
    assert report["sources"]["softmax"] == {
        "updates": 144, "training_loss": 3.8, "training_nll_loss": 2.4,
        "perplexity": 4.0, "bleu": 31.5,
    }
    arms = report["arms"]
    # Means of two rows: 5.25, 4.375, 4.125, 3.95, 3.8.
    assert arms["rfa_from_softmax"]["reached"] == {"softmax": 60, "rfa": 30}
    assert arms["softmax_from_rfa"]["reached"] == {"softmax": 30, "rfa": 20}
    continued = arms["softmax_continued"]
    assert (continued["from"], continued["projections"], continued["start_bleu"]) == ("softmax", None, None)
    assert continued["reached"] == {"softmax": 20, "rfa": 20}
    assert arms["softmax_scratch"]["reached"] == {"softmax": None, "rfa": None}
    assert arms["softmax_scratch"]["least_smoothed_loss"] == 6.25
    assert arms["rfa_scratch"]["status"] == "not run" and arms["rfa_from_softmax_reset"]["status"] == "not finished"
    assert (out / "transfer_study.png").read_bytes().startswith(b"\x89PNG")


def test_the_tables(out):
    assert write_report(out, "--smooth", "20").returncode == 0
    text = (out / "transfer_study.md").read_text(encoding="utf-8")
    assert text.split("\n\n")[0].splitlines()[2:] == [
        "| softmax | softmax | 4.00 | 31.50 |",
        "| softmax | RFA, sigma at its start | 128.00 | 1.50 |",
        "| softmax | RFA, sigma fitted | 256.00 | 0.75 |",
        "| RFA | RFA | 5.66 | 29.25 |",
        "| RFA | softmax | 181.02 | 2.25 |",
    ]
    assert text.split("\n\n")[1].splitlines() == [
        "| arm | perplexity | BLEU | step at softmax's loss (3.800) | step at RFA's loss (4.400) |",
        "| --- | --- | --- | --- | --- |",
        "| `softmax_scratch` | 22.63 | 2.50 | not reached (6.250) | not reached (6.250) |",
        "| `rfa_scratch` | not run |  |  |  |",
        "| `softmax_continued` | 3.36 | 32.00 | 20 | 20 |",
        "| `rfa_from_softmax` | 4.36 | 30.00 | 60 | 30 |",
        "| `rfa_from_softmax_fitted` | 8.00 | 20.00 | not reached (6.000) | not reached (6.000) |",
        "| `rfa_from_softmax_reset` | not finished |  | not reached (7.500) | not reached (7.500) |",
        "| `softmax_from_rfa` | 4.00 | 31.00 | 30 | 20 |",
    ]
    assert text.splitlines()[-1] == (
        "`transformer_rfa_tiny|map:gaussian|directions:64+128|updates:60|lr:0.002|warmup:20|update-tokens:4096|seed:3"
        "|beam:5|smooth:20|precision:float32|device:cpu|threads:1|torch:2.13.0|fairseq:0.12.3|fairseq_rfa:0.1.0"
        f"|sacrebleu:2.6.0|commit:{'a' * 40}`, `{BLEU}` on validation data"
    )


def test_losses_that_are_not_finite_stay_empty(out):
    _, rows = transfer_report.report(out, 20)
    empty = {row["step"]: row for row in rows if row["arm"] == "softmax_scratch"}
    assert empty[40]["loss"] is None and empty[40]["smoothed_loss"] is None and empty[50]["smoothed_loss"] is None
    assert (empty[60]["loss"], empty[60]["smoothed_loss"], empty[60]["validation_loss"]) == (6.0, 6.25, 6.1)
    start = next(row for row in rows if row["arm"] == "rfa_from_softmax")
    assert (start["step"], start["loss"], start["validation_loss"], start["validation_nll_loss"]) == (0, None, 8.5, 7.0)


def test_nothing_is_complete(out):
    for mark in out.glob("*/complete"):
        mark.unlink()
    assert write_report(out).returncode == 0
    assert "step at softmax's loss |" in (out / "transfer_study.md").read_text(encoding="utf-8")


def test_the_last_time_counts_where_a_training_went_back(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("".join([inner(10, 5), inner(20, 4), STARTED, inner(20, 3), inner(30, 2)]), encoding="utf-8")
    training = read_curves(path).training
    assert training == {10: Loss(5.0, 1.5), 20: Loss(3.0, 1.5), 30: Loss(2.0, 1.5)}
    assert smooth(training, 20) == {20: Loss(4.0, 1.5), 30: Loss(2.5, 1.5)}
    assert smooth(training, 40) == smooth({}, 10) == {}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("queue", None, "cannot read '.*queue' .*; give the folder --out of"),
        ("settings", "beam=5\n", "'.*settings' holds no settings of .*; give the folder"),
        ("rfa_source/train.log", None, "cannot read '.*train.log' .*; train this run again"),
        ("rfa_source/train.log", inner(10, "much"), "'.*train.log' gives a loss as 'much' .*no number; train"),
        ("rfa_source/train.log", inner(10, 3), "'.*train.log' has no finite loss on 'valid'; remove '.*rfa_source'"),
        ("rfa_source/train.log", inner(9, 3) + validated(9, 3, 2), "'.*train.log' has no loss of an epoch; remove"),
        ("softmax_from_rfa/start/validate.log", "", "'.*validate.log' holds no validation loss; remove the file"),
        ("softmax_from_rfa/valid/score.json", None, "cannot read '.*score.json' .*start recipes/transfer-study.sh"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(out, file, text, message):
    spoil(out / file, text)
    with pytest.raises(ValueError, match=f"^{message}[^\n]*$"):
        transfer_report.report(out, 20)


def test_an_error_ends_the_program_without_a_report(out):
    result = write_report(out, "--smooth", "25")
    assert result.returncode == 1
    assert re.fullmatch(r"transfer/report.py: --smooth 25 is no multiple of the 10 updates of a row\n", result.stderr)
    assert not list(out.glob("transfer_study.*"))


def test_the_line_of_fairseq_validate(tmp_path):
    path = tmp_path / "validate.log"
    path.write_text(
        "2026-11-30 08:44:41 | INFO | valid | valid on 'valid' subset | loss 4.5 | nll_loss 4.25 | ppl 18.15 | wps 0\n",
        encoding="utf-8",
    )
    assert read_validation(path) == Loss(4.5, 4.25)
