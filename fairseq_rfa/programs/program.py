"""What the programs of this package share: options, quiet libraries, results that are written whole."""

import argparse
import importlib
import json
import logging
import os
import sys
import tempfile
import time
from contextlib import contextmanager

import torch
from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10


class Parser(argparse.ArgumentParser):
    """An error takes one line, without the usage."""

    def error(self, message):
        name = self.prog.rpartition("fairseq_rfa.")[2].split()[0]
        self.exit(2, f"{name}: {message}\n")


def parser_of(name, description):
    """A parser of the options of a program of this package; the description is shown as it is written."""
    return Parser(
        prog=f"python -m fairseq_rfa.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_machine_options(parser):
    """On what the program computes."""
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--threads", type=positive_number(int), metavar="N", help="of torch (default: torch's choice)"
    )


def positive_number(kind):
    """A parser of numbers of a kind (int or float) that are finite and greater than 0."""

    def parse(text):
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not 0 < number < float("inf"):
            what = "a whole number from 1" if kind is int else "a number greater than 0"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


def check_folder(out):
    """Raises ValueError now, not after the work, where the results cannot be written."""
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"cannot write to '{out}': '{nearest}' is no folder that can be written to")


def find_device(name):
    """Raises ValueError where torch has no such device, or one without float64."""
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("use cpu or cuda")
        torch.empty(1, device=device)
    # torch built without CUDA answers with AssertionError.
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name}: {str(error).splitlines()[0]}") from None
    return device


@contextmanager
def progress(name, total, unit):
    """A function that counts one run more: a bar on stderr where it is a terminal, lines of a log elsewhere."""
    started = reported = time.monotonic()
    with tqdm(total=total, desc=name, unit=f" {unit}", disable=not sys.stderr.isatty(), leave=False) as bar:
        done = 0

        def advance(text):
            nonlocal done, reported
            done += 1
            bar.set_postfix_str(text, refresh=False)
            bar.update()
            now = time.monotonic()
            if bar.disable and now - reported >= SECONDS_BETWEEN_LINES:
                reported = now
                line = f"{name}: {done} of {total} {unit}, {now - started:.0f} s ({text})"
                print(line, file=sys.stderr, flush=True)

        yield advance


@contextmanager
def only_warnings():
    """fairseq has every library tell its smallest doings on stderr."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


def load_plot(name, package):
    """The function plot of the module plot of a package; exits where matplotlib is missing."""
    try:
        return importlib.import_module(".plot", package).plot
    except ImportError as error:
        sys.exit(f"{name}: {error}; run: pip install 'fairseq-rfa[recipes]'")


@contextmanager
def errors_in_one_line(name, sizes):
    """Exits with one line for what a user can mend.

    Args:
        sizes: the option that makes less work for the memory.
    """
    try:
        yield
    except (OSError, ValueError, FloatingPointError) as error:
        sys.exit(f"{name}: {error}")
    except torch.OutOfMemoryError as error:
        sys.exit(f"{name}: {str(error).splitlines()[0]}; use smaller {sizes}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted, nothing is written")


def write_json(report, path):
    """Raises OSError."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def write(report, out, name, plot):
    """NAME.json and NAME.png in the folder out, both whole or neither.

    Args:
        plot: draws a report into a file.

    Raises:
        OSError
    """
    missing = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=out) as unfinished:
            files = [os.path.join(unfinished, f"{name}.{ending}") for ending in ("json", "png")]
            write_json(report, files[0])
            plot(report, files[1])
            for file in files:
                os.replace(file, out / os.path.basename(file))
    except BaseException:
        for folder in missing:
            if folder.exists():
                folder.rmdir()
        raise
