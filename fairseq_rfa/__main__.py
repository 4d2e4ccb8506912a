"""python -m fairseq_rfa: the folder to give to --user-dir, versions beside the tested ones, devices, architectures.

    python -m fairseq_rfa
    fairseq-train DATA --user-dir "$(python -m fairseq_rfa --user-dir)" --arch transformer_rfa ...

Each thing that does not fit is one line on stderr with its remedy, and the exit status is then 1.
"""

import argparse
import importlib.metadata
import platform
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

from . import __version__, compat
from .programs import signature

FOLDER = Path(__file__).parent
COLUMN = 16
"""Where the second column starts."""


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_rfa",
        description="Say where the package is and what it runs with; exit with 1 where something does not fit.",
        allow_abbrev=False,
    )
    parser.add_argument("--user-dir", action="store_true", help="print the folder to give to --user-dir, nothing else")
    return parser.parse_args(arguments)


def version_of(library):
    """Version of what was imported, else of what is installed; None without either."""
    module = sys.modules.get(library.module)
    return getattr(module, "__version__", None) or signature.version(library.module)


def problems_of_libraries():
    """For each library one line that says what does not fit, or None."""
    yield compat.version_problem(compat.PYTHON, platform.python_version())
    can_import = True
    for library in (compat.NUMPY, compat.TORCH, compat.FAIRSEQ):
        # What cannot be imported takes the others with it.
        failure = compat.import_problem(library) if can_import else None
        can_import = can_import and not failure
        yield failure or compat.version_problem(library, version_of(library))
    yield problem_of_two_fairseqs()
    if can_import and find_spec(compat.XLA.module):
        yield compat.import_problem(compat.XLA) or compat.version_problem(compat.XLA, version_of(compat.XLA))


def problem_of_two_fairseqs():
    """One line where several installed distributions hold the module fairseq."""
    names = sorted(set(importlib.metadata.packages_distributions().get("fairseq", [])))
    if len(names) < 2:
        return None
    return f"{' and '.join(names)} overwrite each other's files; {compat.FAIRSEQ.remedy}"


def problem_of_architectures():
    """One line where fairseq does not know the architectures after the package has been imported."""
    remedy = "take a fresh copy of the repository or install fairseq-rfa again"
    try:
        compat.prepare_libraries()
        from .model.architectures import ARCHITECTURES
        from .model.language_model_architectures import LANGUAGE_MODEL_ARCHITECTURES
    # Of a broken copy anything may come.
    except Exception as error:
        return f"the architectures cannot be registered ({compat.in_one_line(error)}); {remedy}"
    missing = (ARCHITECTURES.keys() | LANGUAGE_MODEL_ARCHITECTURES.keys()) - set(registered())
    return f"fairseq does not know {', '.join(sorted(missing))}; {remedy}" if missing else None


def problems():
    """One line for each thing that does not fit; the package is imported only where all libraries fit."""
    return list(filter(None, problems_of_libraries())) or list(filter(None, [problem_of_architectures()]))


def registered():
    """Names of the architectures that fairseq knows of this package."""
    models = sys.modules.get("fairseq.models")
    begins = ("transformer_rfa", "transformer_lm_rfa")
    return [name for name in getattr(models, "ARCH_MODEL_REGISTRY", ()) if name.startswith(begins)]


def devices():
    """The processors that torch and torch_xla found, in words."""
    torch, runtime = sys.modules.get("torch"), sys.modules.get("torch_xla.runtime")
    if torch is None:
        return "unknown without torch"
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    tpu = f"torch_xla computes on {runtime.device_type()}" if runtime else "none without torch_xla"
    return f"CPU threads: {torch.get_num_threads()}; GPU: {', '.join(gpus) or 'none'}; TPU: {tpu}"


def rows():
    """Pairs of a name and what there is to say about it."""
    yield "user-dir", str(FOLDER)
    yield "fairseq_rfa", __version__
    yield "Python", f"{platform.python_version()} (tested: {compat.PYTHON.tested})"
    for library in (compat.FAIRSEQ, compat.TORCH, compat.NUMPY, compat.XLA):
        yield library.name, f"{version_of(library) or 'not installed'} (tested: {library.tested})"
    yield "devices", devices()
    yield "architectures", ", ".join(registered()) or "not registered"


def main(arguments=None):
    if parse_arguments(arguments).user_dir:
        print(FOLDER)
        return
    found = problems()
    for name, text in rows():
        lines = textwrap.wrap(text, 100) if name == "architectures" else [text]
        print(f"{name:{COLUMN}}" + ("\n" + " " * COLUMN).join(lines))
    sys.stdout.flush()
    for problem in found:
        print(f"fairseq_rfa: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
