"""The classes that fairseq's checkpoints hold, and which of them torch.load may make with weights_only."""

import argparse
import math
import pickle

import numpy as np
import torch

ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
"""Where NumPy 1 and NumPy 2 say that their arrays come from."""
MOST_DIMENSIONS = 32
NUMBERS = {kind: np.dtype(f"<{kind}") for kind in ("f8", "i8")}
STATE_OF_NUMBERS = (3, "<", None, None, None, -1, -1, 0)
"""What a pickled dtype of plain numbers says beside its kind; it ends with flags, of which objects have some."""


def allow_checkpoint_classes():
    """Let `torch.load` with weights_only read the harmless classes that fairseq's checkpoints hold.

    torch 2.6 and newer refuse every class that is not listed; fairseq stores the options as a Namespace,
    and with --eval-bleu its counts as arrays. A listed class can be called by the file with whatever the file
    says, and NumPy's own would then read any memory, so stand-ins answer to NumPy's names.
    """
    stand_ins = [(SavedArray, "numpy.ndarray"), (SavedNumbers, "numpy.dtype")]
    for module in ARRAY_MODULES:
        stand_ins += [(empty_array, f"{module}._reconstruct"), (saved_scalar, f"{module}.scalar")]
    torch.serialization.add_safe_globals([argparse.Namespace, *stand_ins])


class SavedNumbers:
    """Stands for numpy.dtype in a checkpoint: float64 or int64 with the lowest byte first."""

    __slots__ = ("kind",)

    def __new__(cls, kind, *flags):
        if type(kind) is not str or kind not in NUMBERS:
            raise _refused(f"arrays of {kind!r:.20}")
        numbers = super().__new__(cls)
        numbers.kind = kind
        return numbers

    def __setstate__(self, state):
        if state != STATE_OF_NUMBERS:
            raise _refused("arrays of changed numbers")


class SavedArray(np.ndarray):
    """An array of a checkpoint: as many float64 or int64 as it brings bytes, filled once. It is saved as a plain array.

    The file gets one that is empty from `empty_array`, and then fills it.
    """

    def __new__(cls, *arguments):
        raise _refused("an array over memory of its choice")

    def __setstate__(self, state):
        if self.size or type(state) is not tuple or len(state) != 5:
            raise _refused("an array that changes")  # whose former memory a tensor may still read
        _, shape, numbers, fortran_order, data = state
        if type(shape) is not tuple or len(shape) > MOST_DIMENSIONS or not all(map(_is_size, shape)):
            raise _refused("an array of an impossible shape")
        dtype = _dtype(numbers, data, math.prod(shape))
        super().__setstate__((1, shape, dtype, fortran_order is True, data))

    def __reduce__(self):
        return self.view(np.ndarray).__reduce__()


def empty_array(kind, shape, typecode):
    """Stands for what NumPy calls to make an array that is filled next; the last two arguments are always the same."""
    if kind is not SavedArray:
        raise _refused("arrays of another class")
    return np.ndarray.__new__(SavedArray, 0)


def saved_scalar(numbers, data):
    """Stands for what NumPy calls to make a single number."""
    return np.frombuffer(data, _dtype(numbers, data, 1))[0]


def _is_size(number):
    return type(number) is int and number > 0


def _dtype(numbers, data, size):
    if type(numbers) is not SavedNumbers:
        raise _refused("arrays of unknown numbers")
    dtype = NUMBERS[numbers.kind]
    if type(data) is not bytes or len(data) != size * dtype.itemsize:
        raise _refused("an array with more or fewer bytes than numbers")
    return dtype


def _refused(what):
    return pickle.UnpicklingError(f"Unsupported array: {what}; checkpoints hold arrays of float64 and int64 only")
