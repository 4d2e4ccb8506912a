import importlib.metadata
import shutil
import subprocess

import pytest

from fairseq_rfa.compat import FAIRSEQ_HERE
from fairseq_rfa.programs import signature
from scripts import ROOT


def test_versions_are_those_of_the_distributions():
    assert signature.version("torch") == importlib.metadata.version("torch")
    assert signature.version("fairseq") == importlib.metadata.version(FAIRSEQ_HERE.partition("==")[0])
    assert signature.version("no_such_module") is None


@pytest.mark.parametrize("changed", [False, True])
def test_the_commit_is_that_of_the_repository_with_a_mark_for_changes(tmp_path, monkeypatch, changed):
    package = tmp_path / "fairseq_rfa"
    shutil.copytree(ROOT / "fairseq_rfa", package, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    if changed:
        (package / "compat.py").write_text("")
    monkeypatch.setattr(signature, "PACKAGE", package)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    assert signature.commit() == head + "-dirty" * changed


def test_no_commit_outside_git_and_where_git_does_not_know_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(signature, "PACKAGE", tmp_path)
    assert signature.commit() is None
    (tmp_path / "__init__.py").write_text("")
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    assert signature.commit() is None
