"""The only file that knows versions of Python, fairseq, torch, NumPy and torch_xla.

It imports none of them but in its functions, so that it can say which of them does not fit.
"""

import functools
import importlib
import inspect
import platform
import re
import sys
from types import SimpleNamespace
from typing import NamedTuple


class Library(NamedTuple):
    """A library, or Python: what was tested, and from which version on, and below which, it fits."""

    name: str
    module: str
    tested: str
    lowest: str
    below: str
    remedy: str


BEFORE_PYTHON_3_13 = sys.version_info[:2] < (3, 13)
"""Since then there is neither a wheel of fairseq nor NumPy 1."""
FAIRSEQ_WITH_WHEELS, FAIRSEQ_AS_SOURCE = "ve-fairseq==0.12.3", "fairseq-fixed==0.12.3.1"
HAS_WHEEL = BEFORE_PYTHON_3_13 and (sys.platform, platform.machine()) == ("linux", "x86_64")
FAIRSEQ_HERE = FAIRSEQ_WITH_WHEELS if HAS_WHEEL else FAIRSEQ_AS_SOURCE
NUMPY_1, NUMPY_2 = "1.26.4", "2.5.5"
FAIRSEQ_REMEDY = f"run: pip uninstall -y fairseq ve-fairseq fairseq-fixed; pip install {FAIRSEQ_HERE}"
XLA_REMEDY = "use the environment that recipes/tpu-check.sh makes, or run: pip uninstall -y torch_xla"
PYTHON = Library("Python", "sys", "3.11 to 3.13", "3.11", "3.14", "use Python 3.11, 3.12 or 3.13")
NUMPY_HERE = NUMPY_1 if BEFORE_PYTHON_3_13 else NUMPY_2
NUMPY = Library("NumPy", "numpy", NUMPY_HERE, "1.23", "3", "run: pip install 'numpy>=1.23,<3'")
TORCH = Library("torch", "torch", "2.13.0", "2.6", "3", "run: pip install 'torch>=2.6,<3'")
FAIRSEQ = Library("fairseq", "fairseq", FAIRSEQ_HERE.partition("==")[2], "0.12.3", "0.12.4", FAIRSEQ_REMEDY)
XLA = Library("torch_xla", "torch_xla", "2.9.0", "2", "3", XLA_REMEDY)

NO_MEMORY_KNOWN = {"kb_free": 0, "kb_total": 0}


def is_asked_for_report():
    """Whether `python -m fairseq_rfa` starts, which says what is wrong where an import of the package stops.

    argv begins with -m until Python has found the module, whose name stands before the arguments.
    """
    starts = sys.argv[:1] == ["-m"] and hasattr(sys, "orig_argv")
    return starts and sys.orig_argv[-len(sys.argv)].endswith("fairseq_rfa")


def prepare_libraries():
    """What the package needs before anything else of it is imported.

    Raises:
        ImportError: something is missing, or its version leads to errors later; the programs of the package exit.
    """
    problem = first_problem()
    if problem and sys.argv[:1] == ["-m"]:
        sys.exit(f"fairseq_rfa: {problem}")
    if problem:
        raise ImportError(problem)
    restore_numpy_functions(sys.modules["numpy"])
    restore_xla_functions()


def first_problem():
    """One line about the first thing with which the package cannot work, with the remedy; None without one.

    A fairseq of another version may serve, if it can be imported.
    """
    return (
        version_problem(PYTHON, platform.python_version())
        or import_problem(NUMPY)
        or version_problem(NUMPY, sys.modules["numpy"].__version__)
        or import_problem(TORCH)
        or version_problem(TORCH, sys.modules["torch"].__version__)
        or import_problem(FAIRSEQ)
    )


def import_problem(library):
    """One line about a library that cannot be imported, with the remedy; None where it can be."""
    try:
        importlib.import_module(library.module)
    # Of a broken installation anything may come.
    except Exception as error:
        return f"{library.name} cannot be imported ({in_one_line(error)}); {library.remedy}"
    return None


def in_one_line(error):
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0].strip(": ")


def version_problem(library, version):
    """One line about a library in a version that does not fit, with the remedy; None where it fits."""
    if version is None:
        return f"{library.name} is not installed; {library.remedy}"
    if numbers(library.lowest) <= numbers(version) < numbers(library.below):
        return None
    needed = f"{library.lowest} or newer and below {library.below}"
    return f"{library.name} is {version} and must be {needed}; {library.remedy}"


def numbers(version):
    """(2, 13, 0) of 2.13.0+cpu."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", version)[0].split(".")))


def rebuild_batches_each_epoch(task):
    """Let a resumed training see the batches of one that was not stopped.

    fairseq makes the batches with the seed of the epoch in which the program starts and keeps them, so a
    training resumed in another epoch would see others. The task's option rebuild_batches makes them anew in
    each epoch; no flag of fairseq sets it.
    """
    from omegaconf import OmegaConf, open_dict

    if task.cfg is None:  # of a task that has its options elsewhere, as fairseq's language_modeling
        task.cfg = OmegaConf.create()
    if OmegaConf.is_config(task.cfg):
        with open_dict(task.cfg):
            task.cfg.rebuild_batches = True


def restore_numpy_functions(numpy):
    """Give NumPy back what its versions from 2 on removed and fairseq uses to make batches in buckets.

    Doing it twice changes nothing.
    """
    if not hasattr(numpy, "compat"):
        numpy.compat = SimpleNamespace(long=int)
    if "interpolation" not in inspect.signature(numpy.percentile).parameters:
        numpy.percentile = taking_interpolation(numpy.percentile)


def taking_interpolation(percentile):
    """percentile that takes its argument `method` by its former name, too."""

    @functools.wraps(percentile)
    def with_former_name(*arguments, interpolation=None, **options):
        if interpolation is not None:
            options["method"] = interpolation
        return percentile(*arguments, **options)

    return with_former_name


def restore_xla_functions():
    """Give torch_xla, where it is installed, the functions back that fairseq still calls."""
    try:
        import torch_xla.core.xla_model as xla_model
        from torch_xla import runtime
    except ImportError:
        return
    from fairseq import utils

    restore_functions(xla_model, runtime)
    utils.tpu_data_loader = counting_from_start(utils.tpu_data_loader)


def restore_functions(xla_model, runtime):
    """torch_xla 2.7 removed get_ordinal and xrt_world_size, and get_memory_info counts in bytes.

    Doing it twice changes nothing.
    """
    for name, successor in (("get_ordinal", "global_ordinal"), ("xrt_world_size", "world_size")):
        if not hasattr(xla_model, name):
            setattr(xla_model, name, getattr(runtime, successor))
    xla_model.get_memory_info = in_kilobytes(xla_model.get_memory_info)


def in_kilobytes(get_memory_info):
    """get_memory_info with the keys that fairseq reads; zeros on a device that keeps no account, like a CPU."""

    @functools.wraps(get_memory_info)
    def with_former_keys(*arguments):
        try:
            info = get_memory_info(*arguments)
        except RuntimeError:
            return dict(NO_MEMORY_KNOWN)
        if "kb_total" in info:
            return info
        total, used = info["bytes_limit"] // 1024, info["bytes_used"] // 1024
        return {**info, "kb_total": total, "kb_free": total - used}

    return with_former_keys


def counting_from_start(tpu_data_loader):
    """tpu_data_loader without the loss of batches.

    fairseq asks where an iterator stands after torch_xla has begun to read it ahead in another thread, and so
    leaves out as many batches at the end of the epoch as that thread has read by then.
    """

    @functools.wraps(tpu_data_loader)
    def with_right_count(iterator):
        start = getattr(iterator, "n", 0)
        loader = tpu_data_loader(iterator)
        loader.n = start
        return loader

    return with_right_count
