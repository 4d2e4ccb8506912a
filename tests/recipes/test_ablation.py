import json
import os
import signal
import subprocess
import zipfile

import pytest
from test_recipes import SMALL, data  # noqa: F401 the fixture

import mend_checkpoint
from scripts import (
    PATIENCE,
    epoch_and_wait,
    programs_with,
    refused,
    run_script,
    start,
    succeed,
    times,
    wait_until,
    write_executable,
)

SCRIPT = "recipes/ablation.sh"
NAMES = (
    "softmax rfa cross_dim_16 cross_dim_64 cross_dim_256 causal_dim_16 causal_dim_32 "
    "arccos elu positive cosine learned gate orthogonal window unnormalized"
).split()


def arguments(binarized, out, *more):
    options = ["--data", binarized, "--out", out, "--study", "baselines", "--max-epoch", 8]
    return [*map(str, options), "--beam", "2", "--seed", "3", *more, "--", *SMALL]


def test_the_queue_can_be_listed():
    rows = [line.split() for line in succeed(SCRIPT, "--list").stdout.splitlines()]
    assert [row[0] for row in rows] == NAMES
    flags = {row[0]: row[1:] for row in rows}
    assert flags["rfa"] == ["baselines", "transformer_rfa_tiny"]
    assert flags["causal_dim_32"] == ["causal", "transformer_rfa_tiny", "--rfa-causal-dim", "32"]
    assert flags["gate"] == ["variants", "transformer_rfa_tiny_gate"]
    chosen = succeed(SCRIPT, "--study", "causal", "--list", "--study", "variants").stdout
    assert [line.split()[0] for line in chosen.splitlines()] == NAMES[:2] + NAMES[5:7] + NAMES[12:]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--study", "size"], "--study 'size' is not one of baselines, cross"),
        (["--jobs", "0"], "--jobs '0' is not a whole number above 0"),
        (["--", "--seed=2"], "flag '--seed=2' after -- is set by this script"),
        (["--", "--max-update", "2"], "flag '--max-update' after -- is set by this script"),
        ([], "has no folder 'binarized'"),
    ],
)
def test_bad_options_are_refused(tmp_path, more, message):
    assert message in refused(SCRIPT, "--data", tmp_path, "--out", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_cut_off_is_replaced_by_the_newest_whole_one(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    mend_checkpoint.mend(tmp_path)
    assert not last.exists()
    for age, name in enumerate(["checkpoint2.pt", "checkpoint1.pt", "checkpoint_best.pt"]):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("data", name * 1000)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    whole = (tmp_path / "checkpoint2.pt").read_bytes()
    last.write_bytes(whole[:-100])
    mend_checkpoint.mend(tmp_path)
    assert last.read_bytes() == whole
    last.write_bytes((tmp_path / "checkpoint1.pt").read_bytes())
    mend_checkpoint.mend(tmp_path)
    assert last.read_bytes() == (tmp_path / "checkpoint1.pt").read_bytes()
    for file in tmp_path.iterdir():
        file.write_bytes(whole[:500])
    mend_checkpoint.mend(tmp_path)
    assert not last.exists() and len(list(tmp_path.iterdir())) == 3


@pytest.fixture(scope="module")
def queue(data, tmp_path_factory):  # noqa: F811
    """Stopped in the second run, while a checkpoint was copied, and started again."""
    out = tmp_path_factory.mktemp("with spaces") / "the study"
    process = start(SCRIPT, *arguments(data, out), first=epoch_and_wait(tmp_path_factory.mktemp("commands"), "rfa"))
    wait_until((out / "rfa/checkpoint_last.pt").exists, process)
    process.terminate()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert programs_with(out) == []
    assert not (out / "rfa/trained").exists()
    os.truncate(out / "rfa/checkpoint_last.pt", 100_000)
    before = times(out / "softmax")
    return out, printed, before, succeed(SCRIPT, *arguments(data, out)).stdout


def test_a_stopped_queue_continues(queue):
    out, first, before, second = queue
    assert times(out / "softmax") == before
    assert "Loaded checkpoint" in (out / "rfa/train.log").read_text(encoding="utf-8")
    lines = first.splitlines()
    assert lines[0] == "run 1 of 2: softmax …" and lines[2:] == ["run 2 of 2: rfa …"]
    result = lines[1].removeprefix("run 1 of 2: softmax: ")
    assert result == (out / "softmax/complete").read_text(encoding="utf-8").strip()
    lines = second.splitlines()
    assert lines[:2] == [f"run 1 of 2: softmax was complete: {result}", "run 2 of 2: rfa …"]
    assert lines[2].startswith("run 2 of 2: rfa: validation perplexity ") and len(lines) == 3


def test_a_report_of_real_runs(queue):
    out = queue[0]
    report = json.loads((out / "ablation.json").read_text(encoding="utf-8"))
    assert list(report["runs"]) == NAMES
    sign = report["signature"]
    wanted = {"epochs": 8, "seed": 3, "beam": 2, "precision": "float32", "device": "cpu", "threads": 1}
    assert {name: sign[name] for name in wanted} == wanted
    assert sign["sacrebleu"].startswith("BLEU|nrefs:1|") and all(sign["versions"].values())
    for name in ("softmax", "rfa"):
        run, log = report["runs"][name], (out / name / "train.log").read_text(encoding="utf-8")
        assert list(run["perplexities"]) == [str(epoch) for epoch in range(1, 9)]
        assert f"ppl {run['perplexity']:g} " in log.replace("\n", " ") and run["parameters"] > 100_000
        assert run["directions"] == {"causal": 64, "cross": 128}
        score = json.loads((out / name / "valid/score.json").read_text(encoding="utf-8"))
        assert (score["subset"], score["beam"], score["sentences"]) == ("valid", 2, 10)
        assert run["bleu"] == score["score"]
        settings = (out / name / "settings").read_text(encoding="utf-8")
        assert "'--seed' '3'" in settings and ("'softmax'" in settings) == (name == "softmax")
        assert not list((out / name).glob("test*"))


def test_a_second_call_repeats_nothing(data, queue):  # noqa: F811
    out = queue[0]
    before = {name: times(out / name) for name in ("softmax", "rfa")}
    succeed(SCRIPT, *arguments(data, out))
    assert {name: times(out / name) for name in before} == before
    assert "max-epoch=9" in refused(SCRIPT, *arguments(data, out, "--max-epoch", "9"))


def test_a_failed_run_does_not_stop_the_others(data, queue, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", queue[0], out], check=True)
    (out / "rfa/complete").unlink()
    for file in ("complete", "trained"):
        (out / "softmax" / file).unlink()
    write_executable(tmp_path / "fairseq-train", "#!/bin/bash\necho 'out of cheese'\nexit 3\n")
    result = run_script(SCRIPT, *arguments(data, out), first=tmp_path)
    assert result.returncode != 0 and "1 of 2 runs failed: softmax; see" in result.stderr
    assert result.stdout.splitlines()[1] == "run 1 of 2: softmax failed: out of cheese"
    assert (out / "rfa/complete").exists()
    runs = json.loads((out / "ablation.json").read_text(encoding="utf-8"))["runs"]
    assert (runs["softmax"]["status"], runs["softmax"]["reason"]) == ("failed", "out of cheese")
    assert (runs["rfa"]["status"], runs["rfa"]["perplexity_ratio"]) == ("complete", None)


@pytest.mark.parametrize(
    ("number", "first_line"), [(signal.SIGINT, "true"), (signal.SIGTERM, "trap '' TERM")]
)
def test_no_training_outlives_the_queue(data, tmp_path, number, first_line):  # noqa: F811
    """Whether the trainings end when they are asked to or not."""
    started = tmp_path / "started"
    started.mkdir()
    write_executable(
        tmp_path / "fairseq-train",
        f"#!/bin/bash\n{first_line}\ntouch '{started}'/$$\nbash -c 'sleep 300; true' '{tmp_path}'\n",
    )
    command = arguments(data, tmp_path / "out", "--jobs", "2")
    process = start(SCRIPT, *command, first=tmp_path)
    wait_until(lambda: len(os.listdir(started)) == 2, process)
    assert len(programs_with(tmp_path)) > 4
    assert "is at work in" in refused(SCRIPT, *command)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert programs_with(tmp_path) == []
    # The runs announce themselves; which is first does not matter.
    assert sorted(printed.splitlines()) == ["run 1 of 2: softmax …", "run 2 of 2: rfa …"]
    assert not list((tmp_path / "out").glob("*/failed"))
