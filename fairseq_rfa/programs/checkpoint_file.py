"""Checkpoints of fairseq as files: read if they are whole, and written whole."""

import os
import pickle
import re
import tempfile
from contextlib import contextmanager

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

MOST_LETTERS = 200
NAMES_IN_AN_ERROR = 3


def read_checkpoint(path):
    """A checkpoint of fairseq with "model" and "cfg", upgraded as fairseq does.

    Raises:
        ValueError: no such file, no checkpoint of fairseq, or one that is not whole.
    """
    if not os.path.isfile(path):
        raise ValueError(f"'{path}' is {'a folder' if os.path.isdir(path) else 'no file'}; use a checkpoint of fairseq")
    try:
        checkpoint = load_checkpoint_to_cpu(str(path))
        if not isinstance(checkpoint["model"], dict) or not checkpoint.get("cfg"):
            raise KeyError("model and cfg")
    # Of what is no checkpoint anything may come: no archive, no dictionary, other keys.
    except Exception as error:
        raise ValueError(f"'{path}' is no whole checkpoint of fairseq: {_reason_of_damage(error)}") from error
    return checkpoint


def reason(error):
    """Why a file does not load, in a line."""
    text = " ".join(str(error).split())
    if isinstance(error, pickle.UnpicklingError):
        # What torch says goes on with advice to load such a file unsafely.
        found = re.search(r"Unsupported [^.]*[\w.]*\w", text.partition(" Check the documentation")[0])
        return "it holds something else than numbers and options" + (f" ({found[0]})" if found else "")
    return text or type(error).__name__


def _reason_of_damage(error):
    if isinstance(error, (KeyError, TypeError, IndexError, AttributeError)) or "Tensor." in str(error):
        return "what it holds is something else"
    return reason(error)[:MOST_LETTERS]


def some_of(names):
    """The first of some names of parameters, and how many more there are."""
    names = sorted(names)
    more = len(names) - NAMES_IN_AN_ERROR
    return ", ".join(names[:NAMES_IN_AN_ERROR]) + (f" and {more} more" if more > 0 else "")


def check_output(path):
    """Raises ValueError now rather than after the work."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise ValueError(f"cannot write '{path}'; use a file in a folder that can be written to")


@contextmanager
def whole_file(path):
    """A file to write, which takes the place of `path` at the end if there was no error."""
    path = os.path.abspath(path)
    with tempfile.TemporaryDirectory(prefix=".unfinished.", dir=os.path.dirname(path)) as unfinished:
        file = os.path.join(unfinished, os.path.basename(path))
        yield file
        os.replace(file, path)


def write_checkpoint(checkpoint, path):
    """Whole or not at all. Raises OSError."""
    with whole_file(path) as file:
        try:
            torch.save(checkpoint, file)
        # So torch reports a full disk.
        except RuntimeError as error:
            raise OSError(f"cannot write '{path}': {str(error).splitlines()[0]}") from error
