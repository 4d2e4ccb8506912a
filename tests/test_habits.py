"""Habits of the code base that ruff and shellcheck hold; which ones, say ruff.toml and .shellcheckrc."""

import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tiny_data import ROOT

SHELL = {
    str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
    for pattern in (".ci/run", "data-prep/**/*.sh", "recipes/**/*.sh", "tests/**/*.sh")
    for file in sorted(ROOT.glob(pattern))
}
"""Texts of the files in the language of the shell."""
SCRIPTS = [name for name, text in SHELL.items() if text.startswith("#!")]
SHEBANG = "#!/usr/bin/env bash\n"


def lines_of(*command, folder):
    """What a command prints; an error of its own fails the test."""
    result = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert not result.stderr, result.stderr
    return result.stdout.splitlines()


def faults_of_python(folder):
    options = ["--no-cache", "--quiet", "--output-format", "concise", "--config", ROOT / "ruff.toml"]
    return lines_of(sys.executable, "-m", "ruff", "check", *options, folder, folder=folder)


def faults_of_script(script):
    """What shellcheck finds in a script and in what it sources."""
    path = shutil.which("shellcheck", path=sysconfig.get_path("scripts")) or shutil.which("shellcheck")
    assert path, "no command shellcheck; run: pip install -e '.[test]'"
    options = ["--rcfile", ROOT / ".shellcheckrc", "--check-sourced", "--format", "gcc"]
    return lines_of(path, *options, script, folder=ROOT)


def test_python_keeps_the_habits():
    assert not faults_of_python(ROOT)


@pytest.mark.parametrize(
    "text, rule",
    [
        ("import os\n", "F401"),
        ("import torch\nimport os\n\nprint(os, torch)\n", "I001"),
        ("import os  # noqa\n", "PGH004"),
        ("import numpy as np\n\nLARGEST = np.Inf\n", "NPY201"),
        ("def append(x, to=[]):\n    to.append(x)\n", "B006"),
        (f"NAME = '{'x' * 120}'\n", "E501"),
    ],
)
def test_a_fault_of_python_is_found(tmp_path, text, rule):
    (tmp_path / "example.py").write_text(text)
    assert any(f" {rule} " in line for line in faults_of_python(tmp_path))


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_keeps_the_habits(script):
    assert not faults_of_script(script)


def test_each_file_that_is_no_script_is_sourced_by_one():
    """Or nothing would check it."""
    sourced = {name for script in SCRIPTS for name in re.findall(r"^ *source .*/([\w-]+\.sh)\"", SHELL[script], re.M)}
    assert {name.rpartition("/")[2] for name in SHELL if name not in SCRIPTS} == sourced


@pytest.mark.parametrize(
    "text, rule",
    [("rm -- $1\n", "SC2086"), ("name=1\n", "SC2034"), ("local name=1\n", "SC2168"), ("cd folder\n", "SC2164")],
)
@pytest.mark.parametrize("is_sourced", [False, True])
def test_a_fault_of_a_script_is_found(tmp_path, text, rule, is_sourced):
    script = tmp_path / "example.sh"
    if is_sourced:
        (tmp_path / "part.sh").write_text(text)
        text = 'here=$(dirname -- "$0")\nsource "$here/part.sh"\n'
    script.write_text(SHEBANG + text)
    assert any(line.endswith(f"[{rule}]") for line in faults_of_script(script))
