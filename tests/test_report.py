"""python -m fairseq_rfa: where the package is, what it runs with, and what does not fit."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys

import fairseq
import numpy
import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_rfa import compat
from fairseq_rfa.__main__ import main
from fairseq_rfa.model.architectures import ARCHITECTURES
from fairseq_rfa.model.language_model_architectures import LANGUAGE_MODEL_ARCHITECTURES
from tiny_data import PLUGIN, ROOT


def report(capsys):
    """Exit status, the lines of stdout and those of stderr."""
    with pytest.raises(SystemExit) as stop:
        main([])
    printed = capsys.readouterr()
    return stop.value.code, printed.out.splitlines(), printed.err.splitlines()


def run_python(*arguments, folder, without=None):
    """Python in a folder, under LC_ALL=C without its escapes to UTF-8, on libraries that cannot be imported."""
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    path = os.pathsep.join(map(str, filter(None, [without, ROOT])))
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **variables, "PYTHONPATH": path}, capture_output=True)


@pytest.fixture
def broken_libraries(tmp_path):
    """A folder in which NumPy, torch and fairseq stand and fail, for the path of Python."""
    for library in (compat.NUMPY, compat.TORCH, compat.FAIRSEQ):
        folder = tmp_path / "broken" / library.module
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text('raise OSError("cannot open libé.so\\nin line 2")\n', encoding="utf-8")
    return tmp_path / "broken"


def test_versions_folder_devices_and_architectures(capsys):
    status, lines, problems = report(capsys)
    assert (status, problems) == (0, [])
    said = {line[:16].strip(): line[16:] for line in lines if not line.startswith(" ")}
    assert said["user-dir"] == str(PLUGIN)
    for name, module in (("NumPy", numpy), ("torch", torch), ("fairseq", fairseq)):
        assert said[name].startswith(f"{module.__version__} (tested: ")
    assert said["Python"].startswith(platform.python_version())
    assert said["devices"].startswith(f"CPU threads: {torch.get_num_threads()}; GPU: ")
    listed = " ".join(line[16:] for line in lines[list(said).index("architectures") :])
    assert set(listed.split(", ")) == {*ARCHITECTURES, *LANGUAGE_MODEL_ARCHITECTURES}


def test_the_folder_alone(tmp_path, broken_libraries):
    """It needs no library, and comes byte for byte."""
    folder = tmp_path / "déjà vu"
    shutil.copytree(PLUGIN, folder / "fairseq_rfa", ignore=shutil.ignore_patterns("__pycache__"))
    result = run_python("-m", "fairseq_rfa", "--user-dir", folder=folder, without=broken_libraries)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout == os.fsencode(folder / "fairseq_rfa") + b"\n"


def test_a_report_under_the_locale_c(tmp_path):
    result = run_python("-m", "fairseq_rfa", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert os.fsencode(PLUGIN) in result.stdout and b"transformer_rfa_tiny" in result.stdout


@pytest.mark.parametrize(
    "module, version, remedy",
    [
        (numpy, "3.0.0", "pip install 'numpy>=1.23,<3'"),
        (numpy, "1.22.4", "pip install 'numpy>=1.23,<3'"),
        (torch, "2.5.1+cpu", "pip install 'torch>=2.6,<3'"),
        (torch, "3.0.0", "pip install 'torch>=2.6,<3'"),
        (fairseq, "0.12.2", "pip uninstall -y fairseq ve-fairseq fairseq-fixed; pip install "),
        (fairseq, "1.0.0a0+e0884db", "pip uninstall -y fairseq ve-fairseq fairseq-fixed; pip install "),
    ],
)
def test_a_version_that_does_not_fit_is_one_line(monkeypatch, capsys, module, version, remedy):
    monkeypatch.setattr(module, "__version__", version)
    status, lines, problems = report(capsys)
    assert status == 1 and len(problems) == 1
    assert f" is {version} and must be " in problems[0] and remedy in problems[0]
    assert any(f"{version} (tested: " in line for line in lines)


@pytest.mark.parametrize("version", ["3.10.13", "4.0.0"])
def test_another_python_does_not_fit(monkeypatch, capsys, version):
    monkeypatch.setattr(platform, "python_version", lambda: version)
    status, _, problems = report(capsys)
    assert status == 1 and len(problems) == 1
    assert f"Python is {version}" in problems[0] and "use Python 3.11" in problems[0]


def test_everything_that_does_not_fit_is_said_at_once(monkeypatch, capsys):
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    monkeypatch.setattr(fairseq, "__version__", "0.12.2")
    assert [line.split()[1] for line in report(capsys)[2]] == ["torch", "fairseq"]


def test_two_distributions_of_fairseq_do_not_fit(monkeypatch, capsys):
    both = {"fairseq": ["fairseq", "ve-fairseq"] * 2}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: both)
    status, _, problems = report(capsys)
    assert status == 1 and len(problems) == 1
    assert "fairseq and ve-fairseq overwrite each other" in problems[0] and "pip uninstall" in problems[0]


def test_architectures_that_fairseq_does_not_know(monkeypatch, capsys):
    monkeypatch.delitem(ARCH_MODEL_REGISTRY, "transformer_rfa_tiny_gate")
    status, _, problems = report(capsys)
    assert status == 1 and len(problems) == 1
    assert "fairseq does not know transformer_rfa_tiny_gate;" in problems[0]


def test_libraries_that_fail_have_their_remedies(tmp_path, broken_libraries):
    result = run_python("-m", "fairseq_rfa", folder=tmp_path, without=broken_libraries)
    assert result.returncode == 1
    assert os.fsencode(PLUGIN) in result.stdout and b"not registered" in result.stdout
    assert result.stderr.startswith(b"fairseq_rfa: NumPy cannot be imported (OSError: cannot open lib")
    assert b"pip install 'numpy" in result.stderr
    assert b"Traceback" not in result.stderr and b"line 2" not in result.stderr


@pytest.mark.parametrize("program", ["average_checkpoints", "benchmark", "kernel_study", "transfer", "zero_shot"])
def test_programs_end_in_one_line(tmp_path, broken_libraries, program):
    result = run_python("-m", f"fairseq_rfa.{program}", folder=tmp_path, without=broken_libraries)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(b"fairseq_rfa: NumPy cannot be imported")


def test_an_import_fails_with_the_remedy(tmp_path, broken_libraries):
    result = run_python("-c", "import fairseq_rfa", folder=tmp_path, without=broken_libraries)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(b"ImportError: NumPy cannot be imported")


@pytest.mark.parametrize("module, version", [(numpy, "1.22.4"), (torch, "2.5.1")])
def test_an_import_refuses_versions_that_fail_later(monkeypatch, module, version):
    monkeypatch.setattr(module, "__version__", version)
    with pytest.raises(ImportError, match=f"is {version} and must be"):
        compat.prepare_libraries()


def test_an_import_takes_a_fairseq_that_works(monkeypatch):
    monkeypatch.setattr(fairseq, "__version__", "0.12.2+mended")
    compat.prepare_libraries()


@pytest.mark.parametrize("module", ["fairseq_rfa", "fairseq_cli.train"])
def test_an_import_prints_nothing(tmp_path, module):
    """As long as tensorboardX is there, of which fairseq would say that it is to be installed."""
    result = run_python("-c", f"import {module}", folder=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_tested_versions_are_those_of_the_constraints():
    constraints = read("constraints.txt").splitlines()
    assert f"torch=={compat.TORCH.tested}" in constraints
    assert f"numpy=={compat.NUMPY_1}; python_version < '3.13'" in constraints
    assert f"numpy=={compat.NUMPY_2}; python_version >= '3.13'" in constraints
    assert compat.NUMPY.tested in (compat.NUMPY_1, compat.NUMPY_2)
    assert {compat.FAIRSEQ_WITH_WHEELS, compat.FAIRSEQ_AS_SOURCE} < {*constraints}
    assert compat.FAIRSEQ_HERE.endswith(f"=={compat.FAIRSEQ.tested}")
    assert f"xla_version={compat.XLA.tested}" in read("recipes/tpu-check.sh").splitlines()


def test_versions_that_fit_are_those_that_are_installed():
    setup = read("setup.py")
    for library in (compat.NUMPY, compat.TORCH):
        assert f'"{library.module}>={library.lowest},<{library.below}"' in setup
        assert f"'{library.module}>={library.lowest},<{library.below}'" in library.remedy
    lowest, below = compat.PYTHON.lowest, compat.PYTHON.below
    assert f'python_requires=">={lowest},<{below}"' in setup
    check = f"{compat.numbers(lowest)} <= sys.version_info < {compat.numbers(below)}"
    assert read("recipes/lib/environment.sh").count(check) == 2
    for distribution in (compat.FAIRSEQ_WITH_WHEELS, compat.FAIRSEQ_AS_SOURCE):
        assert f'"{distribution}; ' in setup
        assert compat.version_problem(compat.FAIRSEQ, distribution.partition("==")[2]) is None
