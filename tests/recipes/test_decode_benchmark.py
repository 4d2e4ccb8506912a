"""recipes/decode-benchmark.sh, with a made-up Python: nothing is measured."""

import pytest

from scripts import refused, run_script, times, write_executable

RECIPE = "recipes/decode-benchmark.sh"
# Has everything that the recipe asks for, and writes down what it is told to do.
PYTHON = """#!/bin/bash
[ "$1" != - ] || exit 0
printf '%s\\n' "$*" >>"$LOG"
! [ -f "$LOG.fail" ] || { echo table; exit 3; }
echo "a table"
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Runs the recipe in another folder with a made-up Python; returns the result and what Python was told."""
    (tmp_path / "commands").mkdir()
    for name in ("python", "fairseq-train"):
        write_executable(tmp_path / "commands" / name, PYTHON)
    log = tmp_path / "log"
    monkeypatch.setenv("LOG", str(log))

    def call(*arguments):
        result = run_script(
            RECIPE, "--out", "the results", *arguments, first=tmp_path / "commands", cwd=tmp_path
        )
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return result, lines

    return call


def test_recipe_decodes_with_both_beams_and_repeats_nothing(recipe, tmp_path):
    arguments = ["--lengths", "4 8", "--", "--no-memory", "--flags", "rfa_gate"]
    result, told = recipe(*arguments)
    assert result.returncode == 0, result.stderr
    assert [f"--beam {beam} " in line for beam, line in zip((1, 5), told)] == [True, True]
    assert all("benchmark decode" in line and "--lengths 4 8 --beam" in line for line in told)
    assert all(line.endswith("--no-memory --flags rfa_gate") for line in told)
    assert "a table" in result.stdout and f"{tmp_path}/the results/beam5/decode.png" in result.stdout
    before = times(tmp_path / "the results")
    again, told = recipe(*arguments)
    assert again.stdout == result.stdout and not told
    assert times(tmp_path / "the results") == before
    other, told = recipe("--lengths", "4")
    assert other.returncode and "other settings" in other.stderr and not told


def test_recipe_tries_a_failed_beam_again_with_other_settings_too(recipe, tmp_path):
    (tmp_path / "log.fail").touch()
    result, told = recipe("--lengths", "4")
    assert result.returncode and len(told) == 1
    assert not (tmp_path / "the results/beam1/table.txt").exists()
    (tmp_path / "log.fail").unlink()
    result, told = recipe("--lengths", "8")
    assert result.returncode == 0 and len(told) == 2
    assert "lengths=8" in (tmp_path / "the results/settings").read_text()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--lengths", "4 x"], "--lengths 'x' is not a whole number above 0"),
        (["--beam", "0"], "--beam '0' is not a whole number above 0"),
        (["--threads", "none"], "--threads 'none' is not"),
        (["--", "--beam", "3"], "flag '--beam' after -- is set by this script"),
    ],
)
def test_recipe_refuses_bad_options(tmp_path, arguments, said):
    assert said in refused(RECIPE, "--out", tmp_path / "out", *arguments)
    assert not list(tmp_path.iterdir())
