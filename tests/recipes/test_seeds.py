import json

import pytest

from recipe_data import FLAGS, make_data
from scripts import refused, run_script, succeed, times, write_executable

SCRIPT = "recipes/seeds.sh"
SMALL = ["--cpu", "--max-tokens", "400", *FLAGS]
ARMS = """# what is compared
softmax 0 --causal-attention softmax --cross-attention softmax

first   1 --fit-sigma --rfa-feature-map positive
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("with spaces") / "the data", joined=True)


def arguments(data, out, arms, *more, seeds="3"):
    options = ["--data", data, "--out", out, "--arms", arms, "--seeds", seeds, "--max-epoch", 2, "--beam", 1]
    return [*map(str, options), *more, "--", *SMALL]


@pytest.fixture(scope="module")
def study(data, tmp_path_factory):
    """Two arms with one seed, one run after the other; the first start has no program to score with."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "arms").write_text(ARMS, encoding="utf-8")
    write_executable(folder / "fairseq-generate", "#!/bin/bash\necho 'out of cheese' >&2\nexit 3\n")
    given = arguments(data, folder / "the study", folder / "arms")
    first = run_script(SCRIPT, *given, first=folder)
    assert first.returncode != 0 and "2 of 2 runs failed: softmax-seed-3 first-seed-3; see" in first.stderr
    trained = [times(folder / "the study" / name)["checkpoint_best.pt"] for name in ("softmax-seed-3", "first-seed-3")]
    return folder / "the study", first.stdout, succeed(SCRIPT, *given).stdout, trained, given


def test_failed_runs_are_tried_again_and_not_trained_again(study):
    out, first, second, trained, _ = study
    assert "run 1 of 2: softmax-seed-3 failed: score.sh: fairseq-generate stopped: out of cheese" in first
    assert "| `softmax` | `--causal-attention softmax --cross-attention softmax` | 0 of 1 (failed) |" in first
    assert second.splitlines()[1].startswith("run 1 of 2: softmax-seed-3: validation perplexity ")
    assert second.endswith((out / "seeds.md").read_text(encoding="utf-8"))
    assert trained == [times(out / name)["checkpoint_best.pt"] for name in ("softmax-seed-3", "first-seed-3")]


def test_a_report_of_real_runs(study):
    out = study[0]
    report = json.loads((out / "seeds.json").read_text(encoding="utf-8"))
    assert (list(report["arms"]), report["first"]) == (["softmax", "first"], "softmax")
    assert report["subsets"] == ["valid", "test"]
    sign = report["signature"]
    wanted = {"architecture": "transformer_rfa_tiny", "epochs": 2, "seeds": [3], "beam": 1, "device": "cpu"}
    assert {name: sign[name] for name in wanted} == wanted
    assert "|bs:1000|" in sign["paired_bootstrap"] and sign["sacrebleu"].startswith("BLEU|")
    assert all(sign["versions"].values())
    scores = {}
    for name, arm in report["arms"].items():
        folder = out / f"{name}-seed-3"
        for subset in ("valid", "test"):
            score = json.loads((folder / subset / "score.json").read_text(encoding="utf-8"))
            assert (score["subset"], score["checkpoints"]) == (subset, ["checkpoint_best.pt"])
            assert arm["bleu"][subset] == {"mean": score["score"], "sd": None}
            scores[name, subset] = score["score"]
        assert f"ppl {arm['perplexity']['mean']:g} " in (folder / "train.log").read_text(encoding="utf-8")
        assert "'--seed' '3'" in (folder / "settings").read_text(encoding="utf-8")
    difference = report["arms"]["first"]["differences"]["test"]
    assert difference["mean"] == pytest.approx(scores["first", "test"] - scores["softmax", "test"], abs=1e-3)
    assert list(difference["p"]) == ["3"] and 0 < difference["p"]["3"] <= 1
    assert "softmax-epochs=1\n" in (out / "first-seed-3/settings").read_text(encoding="utf-8")
    assert "sigma of each head, fitted" in (out / "first-seed-3/conversion.txt").read_text(encoding="utf-8")


def test_a_second_call_repeats_nothing_and_the_table_needs_no_data(study):
    out, *_, given = study
    before = {name: times(out / name) for name in ("softmax-seed-3", "first-seed-3")}
    assert succeed(SCRIPT, *given).stdout.count("was complete: validation perplexity") == 2
    assert {name: times(out / name) for name in before} == before
    table = (out / "seeds.md").read_text(encoding="utf-8")
    (out / "seeds.md").unlink()
    assert succeed(SCRIPT, "--out", out, "--table-only").stdout == table
    assert (out / "seeds.md").read_text(encoding="utf-8") == table
    assert "beam=2" in refused(SCRIPT, *given[:-len(SMALL) - 1], "--beam", 2, "--", *SMALL)


def test_the_default_arms_can_be_listed():
    rows = [line.split() for line in succeed(SCRIPT, "--list").stdout.splitlines()]
    assert [row[0] for row in rows] == [
        *("softmax", "gaussian", "gaussian_softmax_first", "hedgehog", "hedgehog_softmax_first"),
    ]
    assert rows[2][1:] == ["10"] and rows[0][1:3] == ["0", "--causal-attention"]
    assert rows[4][-2:] == ["--distill-updates", "400"]


@pytest.mark.parametrize(
    ("arms", "more", "message"),
    [
        ("", [], "--arms '.*' holds no arm; write lines NAME SOFTMAX_EPOCHS FLAGS"),
        ("a/b 0", [], "arm 'a/b': a name has letters"),
        ("a 0\na 1", [], "arm 'a' occurs twice"),
        ("a --rfa-gate", [], "arm 'a': '--rfa-gate' epochs of softmax; use a number from 0"),
        ("a 2", [], "arm 'a': '2' epochs of softmax; use a number from 0 to less than --max-epoch 2"),
        ("a 0 --seed 4", [], "flag '--seed' after -- is set by this script"),
        ("a 0 --restart-lr", [], "arm 'a': option --restart-lr needs a value"),
        ("a 0", ["--seeds", "1 x"], "--seeds 'x' is not a whole number above 0"),
        ("a 0", ["--jobs", "0"], "--jobs '0' is not a whole number above 0"),
        ("a 0", ["--data", "/nowhere"], "--data '/nowhere' has no folder 'binarized'"),
        ("a 0", ["--arms", "/nowhere"], "file '/nowhere' not found; --arms must be"),
    ],
)
def test_bad_options_are_refused(data, tmp_path, arms, more, message):
    (tmp_path / "arms").write_text(arms, encoding="utf-8")
    error = refused(SCRIPT, *arguments(data, tmp_path / "out", tmp_path / "arms", *more))
    assert message.replace(".*", str(tmp_path / "arms")) in error
    assert not (tmp_path / "out").exists()


def test_a_table_of_no_study_is_refused(tmp_path):
    assert "give the folder --out of recipes/seeds.sh" in refused(SCRIPT, "--out", tmp_path, "--table-only")
