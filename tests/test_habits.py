"""Habits of the code base that ruff holds; which ones, says ruff.toml."""

import subprocess
import sys

import pytest

from tiny_data import ROOT


def faults(folder):
    """What ruff finds in a folder, with the project's rules."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", "--quiet"]
    result = subprocess.run(
        [*command, "--config", str(ROOT / "ruff.toml"), str(folder)], cwd=folder, capture_output=True, text=True
    )
    assert not result.stderr, result.stderr
    return result.stdout.splitlines()


def test_python_keeps_the_habits():
    assert not faults(ROOT)


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
def test_a_fault_is_found(tmp_path, text, rule):
    (tmp_path / "example.py").write_text(text)
    assert any(f" {rule} " in line for line in faults(tmp_path))
