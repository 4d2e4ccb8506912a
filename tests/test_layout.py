"""The folders of the package stand on floors, and each module imports from the floors below its own only."""

import ast

import pytest

from tiny_data import PLUGIN

FLOORS = (
    ("functional", "programs", "compat"),
    ("attention",),
    ("model", "kernel_study", "documents", "language"),
    ("transfer", "benchmark", "perplexity"),
    ("zero_shot",),
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
AT_THE_TOP = {"__init__.py", "__main__.py", "compat.py", "average_checkpoints.py"}
"""What stands above all floors, but for compat.py."""
OTHER_LIBRARIES_OF_FUNCTIONAL = {"numpy", "torch"}


def room_of(file, package):
    """The folder, or the module, directly below the package."""
    return file.relative_to(package).parts[0].removesuffix(".py")


def imported(file, package):
    """Names of the modules that a file imports, in full, as lists of parts; the package is called fairseq_rfa."""
    here = ["fairseq_rfa", *file.relative_to(package).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = here[: len(here) - node.level + 1] if node.level else []
            module = [*start, *(node.module.split(".") if node.module else [])]
            yield from ([*module, alias.name] for alias in node.names)


def faults(package):
    """Imports that run up, or between the rooms of a floor, and foreign libraries where there may be none."""
    for file in sorted(package.rglob("*.py")):
        room = room_of(file, package)
        for name in imported(file, package):
            if name[0] == "fairseq_rfa":
                other = name[1] if len(name) > 1 else ""
                if room in FLOOR_OF and other != room and FLOOR_OF.get(other, len(FLOORS)) >= FLOOR_OF[room]:
                    yield f"{file.relative_to(package)} imports {'.'.join(name)}"
            elif room == "functional" and not is_of_functional(name[0]):
                yield f"{file.relative_to(package)} imports {name[0]}"


def is_of_functional(library):
    return library in OTHER_LIBRARIES_OF_FUNCTIONAL | {"collections", "functools", "itertools", "math", "typing"}


def test_imports_run_down():
    assert not list(faults(PLUGIN))


def test_each_room_has_a_floor():
    rooms = {file.name for file in PLUGIN.iterdir() if file.is_dir() and file.name != "__pycache__"}
    assert rooms == set(FLOOR_OF) - {"compat"}
    assert {file.name for file in PLUGIN.glob("*.py")} <= AT_THE_TOP


@pytest.mark.parametrize(
    "file, line",
    [
        ("functional/a.py", "from ..attention import CausalRFA"),
        ("functional/a.py", "import fairseq"),
        ("attention/a.py", "from ..model.config import RFA_OPTIONS"),
        ("attention/a.py", "from .. import model"),
        ("model/a.py", "from ..kernel_study.plot import plot"),
        ("benchmark/deep/a.py", "from ...zero_shot import rows"),
        ("compat.py", "import fairseq_rfa.model"),
        ("programs/a.py", "def f():\n    from .. import average_checkpoints"),
    ],
)
def test_an_import_that_runs_up_is_found(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line + "\n")
    assert list(faults(tmp_path))


@pytest.mark.parametrize(
    "file, line",
    [
        ("attention/a.py", "from ..functional import definition"),
        ("zero_shot/a.py", "from ..transfer.temperature import fit_sigma"),
        ("__init__.py", "from .model import architectures"),
        ("average_checkpoints.py", "from .model.config import RFA_OPTIONS"),
    ],
)
def test_an_import_that_runs_down_is_not(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line + "\n")
    assert not list(faults(tmp_path))
