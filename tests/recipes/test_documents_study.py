"""recipes/documents.sh on a small corpus with documents."""

import json
import re
import sys
from pathlib import Path

import pytest

from recipe_data import FLAGS, make_documents
from scripts import refused, run_script, succeed, times, write_executable

SCRIPT = "recipes/documents.sh"
SMALL = ["--cpu", "--max-tokens", "400", *FLAGS]
ARMS = """rfa   0
gated 0 --rfa-feature-map elu --rfa-sentence-gate
"""
NAMES = ["rfa-window-1-seed-1", "rfa-window-2-seed-1", "gated-window-2-seed-1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("with spaces") / "the data")


def arguments(data, out, arms, *more, windows="1 2"):
    options = ["--data", data, "--out", out, "--arms", arms, "--windows", windows, "--max-update", 4, "--beam", 1]
    return [*map(str, options), *more, "--", *SMALL]


def train_without_gate(folder):
    """A fairseq-train that leaves the gate out, so that the queue is tested and not the model."""
    real = Path(sys.executable).with_name("fairseq-train")
    write_executable(
        folder / "fairseq-train",
        f"""#!/bin/bash
for word; do
    [ "$word" = --rfa-sentence-gate ] || set -- "$@" "$word"
    shift
done
exec '{real}' "$@"
""",
    )
    return folder


@pytest.fixture(scope="module")
def study(data, tmp_path_factory):
    """Two arms on windows of 1 and 2; the first start has no program to decode with."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "arms").write_text(ARMS, encoding="utf-8")
    (folder / "bin").mkdir()
    train_without_gate(folder / "bin")
    broken = folder / "bin/fairseq-generate"
    write_executable(broken, "#!/bin/bash\necho 'out of cheese' >&2\nexit 3\n")
    given = arguments(data, folder / "the study", folder / "arms")
    first = run_script(SCRIPT, *given, first=folder / "bin")
    assert first.returncode != 0 and f"3 of 3 runs failed: {' '.join(NAMES)}; see" in first.stderr, first.stderr
    broken.unlink()
    trained = [times(folder / "the study" / name)["checkpoint_best.pt"] for name in NAMES]
    second = succeed(SCRIPT, *given, first=folder / "bin")
    return folder / "the study", first.stdout, second.stdout, trained, given


def test_failed_runs_are_tried_again_and_not_trained_again(study):
    out, first, second, trained, _ = study
    assert first.startswith("no window of 1 for gated: the gate acts between sentences alone\nrun 1 of 3: rfa-window-1")
    assert "run 3 of 3: gated-window-2-seed-1 failed: score.sh: fairseq-generate stopped: out of cheese" in first
    assert "| 1 | `rfa` | the default | 0 of 1 (failed) |" in first
    assert "run 2 of 3: rfa-window-2-seed-1: validation perplexity " in second
    assert second.endswith((out / "documents.md").read_text(encoding="utf-8"))
    assert trained == [times(out / name)["checkpoint_best.pt"] for name in NAMES]


def test_each_run_trains_and_decodes_with_its_window(study):
    out = study[0]
    for name in NAMES:
        context = int(name.split("-")[2]) - 1
        wanted = f"'--task' 'document_translation' '--context-sentences' '{context}'"
        assert wanted in (out / name / "settings").read_text(encoding="utf-8")
        context_flags = ["--cpu", "--task", "document_translation", "--context-sentences", str(context)]
        own = [*context_flags, "--batch-size", "16"]
        for subset in ("valid", "test"):
            score = json.loads((out / name / subset / "score.json").read_text(encoding="utf-8"))
            assert (score["subset"], score["flags"], score["beam"]) == (subset, own, 1)
        above = out / name / "valid-reference/score.json"
        assert above.exists() == (context > 0)
        if context:
            score = json.loads(above.read_text(encoding="utf-8"))
            assert (score["subset"], score["flags"]) == (
                "valid",
                [*context_flags, "--context-prefix", "reference", "--batch-size", "16"],
            )


def test_a_report_of_real_runs(study):
    out = study[0]
    report = json.loads((out / "documents.json").read_text(encoding="utf-8"))
    assert {name: list(arm["windows"]) for name, arm in report["arms"].items()} == {"rfa": ["1", "2"], "gated": ["2"]}
    sign = report["signature"]
    wanted = {"windows": [1, 2], "jobs": 1, "updates": 4, "batch_size": 16, "documents": {"valid": 2, "test": 4}}
    assert {name: sign[name] for name in wanted} == wanted
    for arm, windows in report["arms"].items():
        for window, result in windows["windows"].items():
            folder = out / f"{arm}-window-{window}-seed-1"
            scores = {
                name: json.loads((folder / name / "score.json").read_text(encoding="utf-8")) for name in result["bleu"]
            }
            assert list(scores) == ["valid", "test", *["valid-reference"] * (window == "2")]
            for name, score in scores.items():
                assert result["bleu"][name]["mean"] == score["score"]
                assert result["document_bleu"][name]["mean"] == score["documents"]["score"]
            own = [scores[name]["decoding"] for name in ("valid", "test")]
            seconds = sum(decoding["seconds"] for decoding in own) / (5 + 11)
            assert result["seconds_per_sentence"]["mean"] == pytest.approx(seconds, abs=1e-6)
            assert result["peak_memory"] == max(decoding["peak_memory"] for decoding in own)
            log = (folder / "validate.log").read_text(encoding="utf-8")
            # fairseq prints two digits of the loss's power, which the report takes from its three digits.
            printed = float(re.findall(r"\| ppl ([0-9.]+) \|", log)[-1])
            assert result["perplexity"]["mean"] == pytest.approx(printed, rel=1e-3)
    assert (out / "documents.png").exists() and (out / "documents.pdf").exists()


def test_the_perplexity_counts_each_sentence_once(study):
    """The loss of windows of 1 and of 2 is the mean over as many tokens."""
    tokens = {
        line.partition("| wpb ")[2].split()[0]
        for name in NAMES
        for line in (study[0] / name / "validate.log").read_text(encoding="utf-8").splitlines()
        if "| wpb " in line
    }
    assert len(tokens) == 1


def test_a_second_call_repeats_nothing_and_the_table_needs_no_data(study):
    out, *_, given = study
    before = {name: times(out / name) for name in NAMES}
    again = succeed(SCRIPT, *given).stdout
    assert again.count("was complete: validation perplexity") == 3
    assert {name: times(out / name) for name in before} == before
    table = (out / "documents.md").read_text(encoding="utf-8")
    (out / "documents.md").unlink()
    assert succeed(SCRIPT, "--out", out, "--table-only").stdout == table
    changed = [*given[: -len(SMALL) - 1], "--batch-size", "8", "--", *SMALL]
    assert "batch-size=8" in refused(SCRIPT, *changed)


def test_the_default_arms_can_be_listed():
    rows = [line.split() for line in succeed(SCRIPT, "--list").stdout.splitlines()]
    assert [row[0] for row in rows] == ["softmax", "rfa", "rfa_sentence_gate", "hedgehog"]
    assert rows[2][1:] == ["0", "--rfa-sentence-gate"]


@pytest.mark.parametrize(
    ("arms", "more", "message"),
    [
        ("a/b 0", [], "arm 'a/b': a name has letters"),
        ("a x", [], "arm 'a': 'x' epochs of softmax; use a number from 0\n"),
        ("a 3", ["--max-epoch", "3"], "'3' epochs of softmax; use a number from 0 to less than --max-epoch 3"),
        ("a 0 --context-sentences 3", [], "flag '--context-sentences' after -- is set by this script"),
        ("a 0 --rfa-sentence-gate", ["--windows", "1"], "leaves no run; use a window above 1"),
        ("a 0", ["--windows", "0"], "--windows '0' is not a whole number above 0"),
        ("a 0", ["--seeds", "1 x"], "--seeds 'x' is not a whole number above 0"),
        ("a 0", ["--batch-size", "x"], "--batch-size 'x' is not a whole number above 0"),
        ("a 0", ["--data", "/nowhere"], "--data '/nowhere' has no folder 'binarized'"),
    ],
)
def test_bad_options_are_refused(data, tmp_path, arms, more, message):
    (tmp_path / "arms").write_text(arms, encoding="utf-8")
    assert message in refused(SCRIPT, *arguments(data, tmp_path / "out", tmp_path / "arms", *more))
    assert not (tmp_path / "out").exists()


def test_data_without_documents_are_refused(data, tmp_path):
    for name in ("binarized", "raw"):
        (tmp_path / name).mkdir()
        for file in (data / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "binarized/test.documents").unlink()
    (tmp_path / "arms").write_text("a 0", encoding="utf-8")
    error = refused(SCRIPT, *arguments(tmp_path, tmp_path / "out", tmp_path / "arms"))
    assert "test.documents' not found; make the data with data-prep/prepare.sh --documents" in error


def test_a_table_of_no_study_is_refused(tmp_path):
    assert "give the folder --out of recipes/documents.sh" in refused(SCRIPT, "--out", tmp_path, "--table-only")
