"""The study of kernels: what is expected of its numbers, its files, its verdict, its refusals."""

import json
import struct
import sys

import pytest
import torch

from fairseq_rfa.kernel_study import __main__ as kernel_study
from fairseq_rfa.kernel_study import plot as kernel_plot
from fairseq_rfa.kernel_study import verdict as kernel_verdict
from fairseq_rfa.kernel_study.errors import KERNELS
from scripts import refused_by
from tiny_data import ROOT, command

SMALL = ["--directions", "16", "64", "256", "--seeds", "4", "--positions", "48"]
TINY = ["--directions", "4", "8", "--seeds", "2", "--positions", "6", "--head-dim", "4"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "new" / "study"
    kernel_study.main([*SMALL, "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def report(out):
    return json.loads((out / "kernel_study.json").read_text(encoding="utf-8"))


def found(entries, **wanted):
    (entry,) = [entry for entry in entries if all(entry[key] == value for key, value in wanted.items())]
    return entry


def test_gaussian_error_falls_with_the_root_of_the_directions(report):
    # The mean of 4 seeds deviates by about 4 % at 16 directions and 1 % at 256: by 0.015 in the slope.
    case = dict(input="random", map="gaussian", rows="independent")
    assert found(report["slopes"], **case)["kernel"] == pytest.approx(-0.5, abs=0.05)


@pytest.mark.parametrize("directions", [64, 256])
@pytest.mark.parametrize("kind", ["random", "clustered"])
def test_orthogonal_rows_are_better(report, kind, directions):
    independent, orthogonal = (
        found(report["measurements"], input=kind, map="gaussian", rows=rows, directions=directions)
        for rows in ("independent", "orthogonal")
    )
    assert orthogonal["kernel"]["mean"] < 0.8 * independent["kernel"]["mean"]


def test_report_has_all_entries_and_a_signature(report):
    cases = 2 * len(KERNELS) * 2
    assert len(report["measurements"]) == 3 * cases
    assert len(report["slopes"]) == len(report["claim"]["cases"]) == cases
    assert len(report["uniform"]) == 2 * len(KERNELS)
    for entry in report["measurements"]:
        for quantity in ("kernel", "attention", "output"):
            assert entry[quantity]["mean"] > 0 and entry[quantity]["deviation"] > 0
    sign = report["signature"]
    assert set(sign["inputs"]) == {"random", "clustered"}
    assert (sign["head_dim"], sign["seeds"], sign["sigma"], sign["floor"]) == (64, 4, [1.0], 0.1)
    assert sign["versions"]["torch"] == torch.__version__
    assert {"numpy", "fairseq_rfa"} <= set(sign["versions"])
    assert {"device", "threads", "precision", "commit"} <= set(sign)


def test_claim_is_judged_by_the_measured_error(report):
    claim = report["claim"]
    for case in claim["cases"]:
        key = {name: case[name] for name in ("input", "sigma", "map", "rows")}
        entry = found(report["measurements"], **key, directions=256)
        assert case["error"] == entry["attention"]
        assert case["holds"] == (entry["attention"]["mean"] < 0.05)
        assert case["extrapolated"] == (not case["holds"])
    assert claim["judged"] == 20 and claim["holds_in"] == sum(case["holds"] for case in claim["cases"])


def test_picture_is_wide_and_nothing_else_is_left(out):
    assert sorted(file.name for file in out.iterdir()) == ["kernel_study.json", "kernel_study.png"]
    width, height = struct.unpack(">II", (out / "kernel_study.png").read_bytes()[16:24])
    assert width >= 800 and height >= 400


def curve(*points):
    return [{"directions": number, "attention": {"mean": error}} for number, error in points]


@pytest.mark.parametrize(
    "points, expected",
    [
        ([(16, 0.2), (64, 0.1)], (256, True)),
        ([(16, 0.2), (1024, 0.025)], (256, False)),
        ([(16, 0.04), (64, 0.02)], (11, True)),
        # The first half is a floor that bites and says nothing about the second.
        ([(4, 50.0), (16, 5.0), (64, 0.1), (256, 0.05), (1024, 0.025)], (256, False)),
        ([(4, 500.0), (16, 0.4), (64, 0.2), (256, 0.1)], (1024, True)),
        ([(16, 0.2), (64, 0.2)], (None, True)),
        ([(16, 0.2)], (None, True)),
    ],
)
def test_number_of_directions_for_five_per_cent(points, expected):
    number, extrapolated = kernel_verdict.needed_directions(curve(*points), "attention", 0.05)
    assert extrapolated == expected[1]
    # Rounded up, after logarithms.
    assert number == expected[0] or expected[0] <= number <= expected[0] + 1


def test_same_seeds_give_the_same_numbers_and_the_verdict_is_printed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(kernel_plot, "plot", lambda report, path: open(path, "w").close())
    texts = []
    for name in ("first", "second"):
        kernel_study.main([*TINY, "--sigma", "1", "2", "--out", str(tmp_path / name)])
        texts.append((tmp_path / name / "kernel_study.json").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    printed = capsys.readouterr().out
    assert "clustered, sigma 2" in printed and "256 directions were not measured" in printed


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--directions", "16", "0"], "'0' is not a whole number from 1"),
        (["--sigma", "-1"], "'-1' is not a number greater than 0"),
        (["--sigma", "nan"], "'nan' is not a number"),
        (["--seeds", "none"], "'none' is not a whole number"),
        (["--direction", "16"], "unrecognized arguments"),
        (["--checkpoint", "model.pt"], "--checkpoint and --data belong together"),
        (["--checkpoint", "a", "--data", "b", "--head-dim", "8"], "--head-dim is that of the checkpoint"),
        (["--device", "nowhere"], "--device nowhere"),
        (["--device", "meta"], "--device meta"),
        (["--checkpoint", "missing.pt", "--data", "missing"], "cannot load 'missing.pt'"),
    ],
)
def test_bad_options_are_refused_in_one_line(capsys, tmp_path, arguments, said):
    assert said in refused_by(kernel_study.main, capsys, *arguments, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_refused_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.delattr(kernel_study, "study")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert "cannot write" in refused_by(kernel_study.main, capsys, *TINY, "--out", out)


def test_missing_matplotlib_names_the_remedy(capsys, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "fairseq_rfa.kernel_study.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused_by(kernel_study.main, capsys, *TINY, "--out", tmp_path / "out")
    assert "matplotlib" in said and "pip install 'fairseq-rfa[recipes]'" in said
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_earlier_results_and_nothing_of_its_own(capsys, monkeypatch, tmp_path):
    def fail(report, path):
        open(path, "w").close()
        raise OSError("no space left")

    monkeypatch.setattr(kernel_plot, "plot", fail)
    assert "no space left" in refused_by(kernel_study.main, capsys, *TINY, "--out", tmp_path / "new" / "out")
    assert not list(tmp_path.iterdir())
    (tmp_path / "kernel_study.json").write_text("earlier")
    refused_by(kernel_study.main, capsys, *TINY, "--out", tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["earlier"]


def test_numbers_out_of_range_are_refused(capsys, tmp_path):
    said = refused_by(kernel_study.main, capsys, *TINY, "--sigma", "1e3", "--out", tmp_path / "out")
    assert "use a smaller --sigma" in said
    assert not list(tmp_path.iterdir())


def test_a_trained_model_is_studied(checkpoint, data, tmp_path, capsys):
    arguments = ["--checkpoint", checkpoint, "--data", data, "--sentences", "3", *TINY[:-2]]
    kernel_study.main([*map(str, arguments), "--out", str(tmp_path / "out")])
    result = json.loads((tmp_path / "out" / "kernel_study.json").read_text(encoding="utf-8"))
    layers = {f"layer {layer} {place}" for layer in (0, 1) for place in ("causal", "cross")}
    assert {entry["input"] for entry in result["claim"]["cases"]} == {"random", "clustered", *layers}
    sign = result["signature"]
    assert (sign["sentences"], sign["subset"], sign["head_dim"]) == (3, "valid", 8)
    assert sign["checkpoint"] == checkpoint.name and not result["claim"]["is_about_this_head_dim"]
    assert "layer 1 cross" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["folder", "subset", "broken"])
def test_what_cannot_be_read_is_said_in_one_line(checkpoint, data, tmp_path, capsys, wrong):
    if wrong == "folder":
        data = tmp_path
    if wrong == "broken":
        checkpoint = tmp_path / "broken.pt"
        checkpoint.write_bytes(b"no checkpoint")
    subset = "absent" if wrong == "subset" else "valid"
    arguments = ["--checkpoint", checkpoint, "--data", data, "--subset", subset]
    assert "cannot load" in refused_by(kernel_study.main, capsys, *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_exits_with_an_error(tmp_path):
    arguments = ["-m", "fairseq_rfa.kernel_study", "--directions", "0", "--out", tmp_path / "out"]
    result = command(sys.executable, *arguments, folder=ROOT)
    assert result.returncode and not result.stdout
    assert result.stderr.splitlines()[-1].startswith("kernel_study: argument --directions")
