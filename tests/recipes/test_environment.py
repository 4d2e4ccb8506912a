"""recipes/lib/environment.sh, with made-up Pythons in place of real ones: nothing is installed."""

import os
import shutil
import subprocess

import pytest

from scripts import ROOT, write_executable

# Answers what environment.sh asks of a Python, and writes down what it was told to do.
PYTHON = """#!/bin/bash
case "$1 $2" in
    "-c "*) exit 0 ;;
    "- "*) [[ " $* " != *" ${LACKS-no module} "* ]] || exit 1; exit "${LACKS_MODULES-1}" ;;
    "-m venv")
        echo "venv with ${0##*/}" >>"$LOG"
        mkdir -p "$4/bin"
        cp "$0" "$4/bin/python"
        printf '#!/bin/bash\\necho "pip 1 from %s/lib/pip (python 3.12)"\\n' "$4" >"$4/bin/pip"
        chmod +x "$4/bin/pip"
        ;;
    "-m pip") echo "install in $PWD" >>"$LOG"; exit "${PIP_FAILS-0}" ;;
esac
"""


# The same of a Python for which fairseq has no wheel.
NEWER_PYTHON = PYTHON.replace(
    '"-c "*) exit 0 ;;',
    '"-c "*"(3, 11) <= sys.version_info < (3, 13)"*) exit 1 ;; "-c "*Python.h*) echo "$HEADER" ;; "-c "*) exit 0 ;;',
)


class Machine:
    """A copy of the repository's set-up, and a PATH with what the test puts on it."""

    def __init__(self, folder):
        self.log = folder / "log"
        self.root = folder / "a repository"
        self.commands = folder / "commands"
        self.commands.mkdir()
        (self.root / "recipes/lib").mkdir(parents=True)
        (self.root / "fairseq_rfa").mkdir()
        for name in ("setup.py", "constraints.txt"):
            (self.root / name).write_text("first version\n")
        for name in ("common.sh", "environment.sh"):
            shutil.copy(ROOT / "recipes/lib" / name, self.root / "recipes/lib" / name)
        for name in ("bash", "cat", "dirname", "mkdir", "cp", "chmod", "mv", "rm", "sha256sum"):
            (self.commands / name).symlink_to(shutil.which(name))

    def add(self, name, text=PYTHON):
        write_executable(self.commands / name, text)

    def activate(self, **variables):
        script = (
            "set -euo pipefail; source recipes/lib/common.sh; source recipes/lib/environment.sh; "
            'activate_environment pytest; printf "%s\\n" "PATH=$PATH"'
        )
        return subprocess.run(
            [shutil.which("bash"), "-c", script],
            cwd=self.root,
            env={"PATH": str(self.commands), "LOG": str(self.log), **variables},
            capture_output=True,
            text=True,
        )

    def done(self):
        """What was done since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path.resolve())


def test_an_environment_is_made_once(machine):
    machine.add("python3.12")
    installed = f"install in {machine.root}"
    result = machine.activate()
    assert result.returncode == 0, result.stderr
    assert machine.done() == ["venv with python3.12", installed]
    assert f"PATH={machine.root}/.venv/bin:" in result.stdout
    assert machine.activate().returncode == 0
    assert machine.done() == []
    (machine.root / "setup.py").write_text("second version\n")
    assert machine.activate().returncode == 0
    assert machine.done() == [installed]


def test_what_pip_builds_is_built_with_the_constraints(machine):
    """Their file is found by its name alone: pip takes a path with a space for two."""
    machine.add("python3.12", PYTHON.replace('"install in $PWD"', '"$PWD $PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT"'))
    assert machine.activate().returncode == 0
    assert machine.done()[1] == f"{machine.root} constraints.txt constraints.txt"


def test_an_interrupted_installation_is_done_again(machine):
    machine.add("python3.12")
    result = machine.activate(PIP_FAILS="1")
    assert result.returncode != 0
    assert "pip could not install" in result.stderr
    machine.done()
    assert machine.activate().returncode == 0
    assert machine.done() == [f"install in {machine.root}"]


def test_a_moved_environment_is_made_again(machine):
    machine.add("python3.12")
    machine.activate()
    machine.root = machine.root.rename(machine.root.parent / "moved")
    machine.done()
    assert machine.activate().returncode == 0
    assert machine.done() == ["venv with python3.12", f"install in {machine.root}"]


def test_pythons_that_do_not_serve_are_passed_over(machine, tmp_path):
    """A name that is found but does not run, and a second one of the same name behind it."""
    machine.add("python3.12", "#!/bin/bash\nexit 127\n")
    machine.add("python3.11", "#!/bin/bash\nexit 1\n")
    behind = tmp_path / "behind"
    behind.mkdir()
    write_executable(behind / "python3.11", PYTHON)
    result = machine.activate(PATH=f"{machine.commands}{os.pathsep}{behind}")
    assert result.returncode == 0, result.stderr
    assert machine.done()[0] == "venv with python3.11"


@pytest.mark.parametrize("first", ["python3", "python3.13"])
def test_a_python_with_wheels_of_fairseq_comes_first(machine, first):
    machine.add(first, NEWER_PYTHON)
    machine.add("python3.11")
    assert machine.activate().returncode == 0
    assert machine.done()[0] == "venv with python3.11"


@pytest.mark.parametrize("lacks", ["nothing", "a compiler", "its header"])
def test_a_python_without_wheels_needs_what_builds_fairseq(machine, tmp_path, lacks):
    machine.add("python3", NEWER_PYTHON)
    header = tmp_path / "Python.h"
    if lacks != "its header":
        header.touch()
    if lacks != "a compiler":
        machine.add("c++", "#!/bin/bash\n")
    result = machine.activate(HEADER=str(header))
    if lacks == "nothing":
        assert result.returncode == 0, result.stderr
        assert machine.done() == ["venv with python3", f"install in {machine.root}"]
    else:
        assert result.returncode != 0 and len(result.stderr.splitlines()) == 1
        assert f"a C++ compiler and the file '{header}'" in result.stderr
        assert machine.done() == ["venv with python3"]


def test_no_python_is_one_clear_line(machine):
    machine.add("python3", "#!/bin/bash\nexit 1\n")
    result = machine.activate()
    assert result.returncode != 0
    assert len(result.stderr.splitlines()) == 1
    assert "no Python 3.11, 3.12 or 3.13" in result.stderr
    assert not (machine.root / ".venv").exists()


@pytest.mark.parametrize(
    "module", ["matplotlib", "pytest", "ruff", "sentencepiece", "setuptools", "tensorboard", "tensorboardX"]
)
def test_what_an_active_environment_lacks_is_installed(machine, module):
    machine.add("python")
    machine.add("fairseq-train", "#!/bin/bash\n")
    active = {"VIRTUAL_ENV": "/somewhere", "LACKS_MODULES": "0", "LACKS": module}
    assert machine.activate(**active).returncode == 0
    assert machine.done() == [f"install in {machine.root}"]
    result = machine.activate(**active, PIP_FAILS="1")
    assert result.returncode != 0
    assert len(result.stderr.splitlines()) == 1 and "pip could not install" in result.stderr


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_is_used(machine, variable):
    machine.add("python")
    machine.add("fairseq-train", "#!/bin/bash\n")
    active = {variable: "/somewhere"}
    assert machine.activate(LACKS_MODULES="0", **active).returncode == 0
    assert machine.done() == []
    assert machine.activate(**active).returncode == 0
    assert machine.done() == [f"install in {machine.root}"]
    assert not (machine.root / ".venv").exists()


def test_nothing_is_installed_into_condas_base_environment(machine):
    machine.add("python")
    active = {"CONDA_PREFIX": "/somewhere", "CONDA_DEFAULT_ENV": "base"}
    assert machine.activate(**active).returncode == 0
    assert (machine.root / ".venv/installed").exists()


def test_an_active_environment_of_another_python_is_refused(machine):
    machine.add("python", '#!/bin/bash\n[ "$1" != --version ] || echo "Python 3.13.0"\nexit 1\n')
    result = machine.activate(VIRTUAL_ENV="/somewhere")
    assert result.returncode != 0
    assert "'/somewhere' has Python 3.13.0" in result.stderr
