"""A checkpoint brings numbers and options; whatever else it asks for is refused before anything is read or run."""

import argparse
import collections
import pickle
import tracemalloc

import numpy as np
import pytest
import torch

from fairseq_rfa.programs.checkpoint_file import read_checkpoint
from pickles import Made, Name, again, write

ARRAY, DTYPE = Name("numpy", "ndarray"), Name("numpy", "dtype")
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
RECONSTRUCT, SCALAR = (Name(MODULES[0], name) for name in ("_reconstruct", "scalar"))
NAMESPACE = Name("argparse", "Namespace")
LITTLE = (3, "<", None, None, None, -1, -1, 0)
OF_OBJECTS = (3, "|", None, None, None, -1, -1, 63)
EIGHT = b"\0\0\0\0\0\0\xf0?"  # 1.0


def dtype(kind="f8", state=LITTLE):
    return Made(DTYPE, (kind, False, True), state)


def array(shape=(1,), numbers=None, data=EIGHT, order=False, reconstruct=RECONSTRUCT):
    state = (1, shape, numbers or dtype(), order, data)
    return Made(reconstruct, (ARRAY, (0,), b"b"), state)


OBJECTS = dtype("O8", OF_OBJECTS)
FILLED = array()
EMPTY = Made(RECONSTRUCT, (ARRAY, (0,), b"b"))
ENDLESS = (2**62, 2**62, 2**62)
HOSTILE = {
    "array over a buffer": Made(ARRAY, ((1,), dtype(), EIGHT)),
    "array of objects over a buffer": Made(ARRAY, ((1,), OBJECTS, EIGHT)),
    "array of objects by a string": Made(ARRAY, ((1,), "O", EIGHT)),
    "array of objects that is filled": array(numbers=OBJECTS, data=[{}]),
    "array of objects from bytes": array(numbers=OBJECTS),
    "array of memory as it is": Made(ARRAY, ((1000,), "f8")),
    "array of far strides": Made(ARRAY, ((2,), "f8", EIGHT, 0, (2**40,))),
    "array made without its constructor": Made(ARRAY, (), (1, (1,), dtype(), False, EIGHT), new=True),
    "array of an array": Made(RECONSTRUCT, (EMPTY, (0,), b"b")),
    "array of a class of torch": Made(RECONSTRUCT, (Name("torch", "Tensor"), (0,), b"b")),
    "array of endless shape, empty": Made(ARRAY, (ENDLESS, "f8")),
    "array of endless shape": array(ENDLESS),
    "array of gigabytes": array((2**30,)),
    "array of endlessly many dimensions": array((2**2000,) * 1000),
    "array of more dimensions than NumPy has": array((1,) * 100),
    "array of more numbers than bytes": array((2,)),
    "array of fewer numbers than bytes": array((1,), data=2 * EIGHT),
    "array of a negative shape": array((-1,)),
    "array of two negative shapes": array((-1, -1)),
    "array of nothing": array((0,), data=EIGHT),
    "array of an endless nothing": array((0, 2**62)),
    "array of a shape of floats": array((1.0,)),
    "array of a shape of truth": array((True,)),
    "array of a shape of text": array("1"),
    "array of a list as shape": array([1]),
    "array of an array as shape": array(FILLED),
    "array of text": array(data="\0" * 8),
    "array of a list": array(data=[1.0]),
    "array of a tensor": array(data=torch.zeros(8, dtype=torch.uint8)),
    "array of a bytearray": array(data=bytearray(EIGHT)),
    "array of numbers of the other order": array(numbers=dtype("f8", (3, ">", *LITTLE[2:]))),
    "array of numbers with the flags of objects": array(numbers=dtype("f8", (*LITTLE[:-1], 63))),
    "array of numbers with a state of their own": array(numbers=dtype("f8", {"kind": "O"})),
    "array of numbers with fields": array(numbers=dtype("V8", (3, "|", None, ("a",), {"a": (OBJECTS, 0)}, 8, 1, 16))),
    "array of parts of numbers": array(numbers=dtype("V8", (3, "|", (OBJECTS, (1,)), None, None, 8, 1, 63))),
    "array of text as numbers": array(numbers="O"),
    "array of float64 as text": array(numbers="f8"),
    "array of options as numbers": array(numbers=Made(NAMESPACE, (), {"kind": "f8"})),
    "array of the class of numbers": array(numbers=DTYPE),
    "array of another kind of numbers": array(numbers=dtype("c16"), data=2 * EIGHT),
    "array of a list of kinds": array(numbers=Made(DTYPE, (["f8"],), LITTLE)),
    "array of numbers by a dictionary": array(numbers=Made(DTYPE, ({"names": ["a"], "formats": ["O"]},))),
    "array that is filled twice": again(FILLED, (1, (1,), dtype(), False, EIGHT)),
    "array with attributes": Made(RECONSTRUCT, (ARRAY, (0,), b"b"), {"__class__": 1}),
    "array with slots": Made(RECONSTRUCT, (ARRAY, (0,), b"b"), (None, {"shape": (9,)})),
    "array with too short a state": Made(RECONSTRUCT, (ARRAY, (0,), b"b"), (1, (1,), dtype())),
    "array with the state of NumPy before 1.0": Made(RECONSTRUCT, (ARRAY, (0,), b"b"), ((1,), dtype(), False, EIGHT)),
    "tensor over an array that is filled twice": [
        FILLED,
        Made(Name("torch._utils", "_rebuild_device_tensor_from_numpy"), (FILLED, torch.float64, "cpu", False)),
        again(FILLED, (1, (1,), dtype(), False, EIGHT)),
    ],
    "scalar of objects": Made(SCALAR, (OBJECTS, EIGHT)),
    "scalar of text as numbers": Made(SCALAR, ("O", EIGHT)),
    "scalar of too few bytes": Made(SCALAR, (dtype(), EIGHT[:4])),
    "scalar of too many bytes": Made(SCALAR, (dtype(), 2 * EIGHT)),
    "scalar of text": Made(SCALAR, (dtype(), "\0" * 8)),
    "scalar without bytes": Made(SCALAR, (dtype(),)),
    "options that turn into numbers": Made(NAMESPACE, (), (None, {"__class__": DTYPE})),
    "options that turn into an array": Made(NAMESPACE, (), (None, {"__class__": ARRAY})),
    "call of an array": Made(FILLED, ()),
    "call of numbers": Made(dtype(), ("O",)),
    "counter over an array of objects": Made(
        Name("collections", "Counter"), (Made(ARRAY, ((1,), OBJECTS, EIGHT)),)
    ),
    "counter over memory as it is": Made(Name("collections", "Counter"), (Made(ARRAY, ((8,), "f8")),)),
    "a class of ours": Name("fairseq_rfa.model.config", "TransformerRFAConfig"),
    "a model of ours": Made(Name("fairseq_rfa", "TransformerRFAModel"), (None, None), new=True),
    "a stand-in by its own name": Name("fairseq_rfa.programs.saved_classes", "SavedArray"),
    "a function of ours": Made(Name("fairseq_rfa.compat", "restore_xla_functions"), ()),
    "a function of torch": Made(Name("torch", "load"), ("x.pt",)),
    "a deeper function of torch": Made(Name("torch.hub", "load_state_dict_from_url"), ("http://localhost/x",)),
    "a function of NumPy": Made(Name("numpy", "fromfile"), ("/dev/zero",)),
    "memory of NumPy": Made(Name("numpy.core.multiarray", "frombuffer"), (EIGHT,)),
    "memory of ctypes": Made(Name("ctypes", "string_at"), (1,)),
    "a reader of memory": Made(Name("numpy.lib.stride_tricks", "as_strided"), (FILLED, (2**20,))),
    "a system call": Made(Name("os", "system"), ("true",)),
    "an evaluation": Made(Name("builtins", "eval"), ("1",)),
    "an attribute": Made(Name("builtins", "getattr"), (NAMESPACE, "__init__")),
    "a call within a call": Made(Name("torch", "Size"), (Made(Name("builtins", "eval"), ("[1]",)),)),
}
ALLOWANCE = 2**22
"""Bytes; the greatest file of these has some ten thousand."""


@pytest.mark.parametrize("contents", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_file_is_refused(tmp_path, contents):
    path = write({"model": {}, "extra_state": contents}, tmp_path / "bad.pt")
    tracemalloc.start()
    try:
        with pytest.raises((pickle.UnpicklingError, TypeError, ValueError, RuntimeError)):
            torch.load(path, weights_only=True)
        assert tracemalloc.get_traced_memory()[1] < ALLOWANCE
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError, match="no whole checkpoint of fairseq: ") as refusal:
        read_checkpoint(path)
    assert "\n" not in str(refusal.value) and "weights_only" not in str(refusal.value)


@pytest.mark.parametrize("module", MODULES)
def test_arrays_and_numbers_of_both_releases_of_numpy_are_read(tmp_path, module):
    reconstruct, scalar = Name(module, "_reconstruct"), Name(module, "scalar")
    many = np.arange(10_000, dtype="<i8")
    contents = {
        "float64": array((2, 2), data=np.arange(4.0).tobytes(), reconstruct=reconstruct),
        "columns": array((2, 2), data=np.arange(4.0).tobytes(), order=True, reconstruct=reconstruct),
        "int64": array(many.shape, dtype("i8"), many.tobytes(), reconstruct=reconstruct),
        "single": array((), reconstruct=reconstruct),
        "scalar": Made(scalar, (dtype(), EIGHT)),
        "whole": Made(scalar, (dtype("i8"), b"\7" + b"\0" * 7)),
    }
    found = torch.load(write(contents, tmp_path / "good.pt"), weights_only=True)
    expected = {
        "float64": np.array([[0.0, 1.0], [2.0, 3.0]]),
        "columns": np.array([[0.0, 2.0], [1.0, 3.0]]),
        "int64": many,
        "single": np.array(1.0),
        "scalar": np.float64(1.0),
        "whole": np.int64(7),
    }
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and np.array_equal(found[name], value), name
        assert isinstance(found[name], type(value)), name


def test_a_counter_over_an_array_counts_its_numbers(tmp_path):
    """torch allows counters, and an array has nothing but numbers to count."""
    counter = Made(Name("collections", "Counter"), (array((2,), data=2 * EIGHT),))
    found = torch.load(write(counter, tmp_path / "good.pt"), weights_only=True)
    assert found == collections.Counter({1.0: 2})


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_an_array_that_was_read_is_saved_as_a_plain_one(tmp_path, protocol):
    """Whoever reads it next may not have this package."""
    read = torch.load(write(array(), tmp_path / "good.pt"), weights_only=True)
    for value in (read, read + 1, read[:], [read]):
        assert b"fairseq_rfa" not in pickle.dumps(value, protocol)
    assert type(pickle.loads(pickle.dumps(read, protocol))) is np.ndarray


def test_options_of_every_kind_are_read(tmp_path):
    """As releases of fairseq store them: all in a Namespace, or in dictionaries with the model's in a Namespace."""
    options = argparse.Namespace(arch="transformer", lr=[0.1], adam_betas="(0.9, 0.98)", dropout=0.3, data=None)
    contents = {"args": options, "cfg": {"model": options, "common": {"seed": 1, "empty": {}}, "lr": (1, 2.0, "3")}}
    torch.save(contents, tmp_path / "good.pt")
    assert torch.load(tmp_path / "good.pt", weights_only=True) == contents
