"""What stands in recipes/ and data-prep/, and how their Python helpers find each other."""

import subprocess

import pytest

from scripts import ROOT, environment, refused, succeed

FOLDERS = ("data-prep", "recipes")
NO_SCRIPTS = {"README.md", "RESULTS.md", "figures", "hyperparameters.sh", "lib"}
AT_THE_TOP = [
    f"{folder}/{name}"
    for folder in FOLDERS
    for name in sorted({file.name for file in (ROOT / folder).iterdir()} - NO_SCRIPTS)
]


@pytest.mark.parametrize("script", AT_THE_TOP)
def test_what_stands_at_the_top_is_run_by_users(script):
    text = succeed(script, "--help").stdout
    assert "--out DIR" in text and not text.startswith("#")
    assert "unknown option '--nonsense'" in refused(script, "--nonsense")
    assert "option --out needs a value" in refused(script, "--out")


def helper(command, **options):
    """Run a line of shell with the functions of common.sh."""
    text = f'set -euo pipefail; source "$0/recipes/lib/common.sh"; {command}'
    return subprocess.run(["bash", "-c", text, str(ROOT)], capture_output=True, text=True, **options)


def test_helpers_find_each_other_and_nothing_of_the_current_folder(tmp_path):
    for name in ("german_english", "study", "training_log", "transfer", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    for command in (
        '"${data_prep_helper[@]}" number_phrases --help',
        '"${recipes_helper[@]}" ablation.report --help',
        '"${recipes_helper[@]}" transfer.report --help',
    ):
        result = helper(command, cwd=tmp_path, env=environment())
        assert result.returncode == 0 and result.stdout.startswith("usage: "), result.stderr


def test_helpers_keep_the_modules_that_the_user_has_added(tmp_path):
    (tmp_path / "added.py").write_text("print('found')\n")
    for helpers in ("recipes_helper", "data_prep_helper"):
        result = helper(f'"${{{helpers}[@]}}" added', env=environment(PYTHONPATH=str(tmp_path)))
        assert result.stdout == "found\n", result.stderr
