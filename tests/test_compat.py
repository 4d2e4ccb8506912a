import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairseq_rfa.compat import counting_from_start, restore_functions, restore_numpy_functions
from tiny_data import train_here

RUNTIME = SimpleNamespace(global_ordinal=lambda: 3, world_size=lambda: 8)


def newer_xla(get_memory_info):
    """As torch_xla 2.7 and newer: without get_ordinal and xrt_world_size."""
    return SimpleNamespace(get_memory_info=get_memory_info)


def memory_in_bytes(device=None):
    return {"bytes_used": 1024 * 250, "bytes_limit": 1024 * 1000, "peak_bytes_used": 1024 * 300}


def no_memory_info(device=None):
    raise RuntimeError("not implemented")


def test_removed_functions_come_back():
    xla_model = newer_xla(memory_in_bytes)
    restore_functions(xla_model, RUNTIME)
    assert xla_model.get_ordinal() == 3
    assert xla_model.xrt_world_size() == 8


def test_functions_that_are_there_stay():
    xla_model = newer_xla(memory_in_bytes)
    xla_model.get_ordinal, xla_model.xrt_world_size = lambda: 1, lambda: 2
    restore_functions(xla_model, RUNTIME)
    assert (xla_model.get_ordinal(), xla_model.xrt_world_size()) == (1, 2)


@pytest.mark.parametrize("times", [1, 2])
def test_memory_in_the_keys_that_fairseq_reads(times):
    xla_model = newer_xla(memory_in_bytes)
    for _ in range(times):
        restore_functions(xla_model, RUNTIME)
    info = xla_model.get_memory_info("xla:0")
    assert (info["kb_free"], info["kb_total"]) == (750, 1000)
    assert info["peak_bytes_used"] == 1024 * 300


def test_memory_of_an_older_version_stays():
    xla_model = newer_xla(lambda device: {"kb_free": 1, "kb_total": 2})
    restore_functions(xla_model, RUNTIME)
    assert xla_model.get_memory_info("xla:0") == {"kb_free": 1, "kb_total": 2}


def test_a_device_without_an_account_of_memory():
    xla_model = newer_xla(no_memory_info)
    restore_functions(xla_model, RUNTIME)
    assert xla_model.get_memory_info("xla:0") == {"kb_free": 0, "kb_total": 0}


def percentile(a, q, axis=None, *, method="linear"):
    return np.percentile(a, q, axis=axis, method=method)


@pytest.mark.parametrize("times", [1, 2])
def test_what_numpy_removed_comes_back(times):
    numpy = SimpleNamespace(percentile=percentile)
    for _ in range(times):
        restore_numpy_functions(numpy)
    assert np.zeros(1, dtype=numpy.compat.long).dtype == np.int64
    numbers = [3, 1, 2, 5]
    assert numpy.percentile(numbers, 50) == 2.5
    assert numpy.percentile(numbers, 50, interpolation="lower") == 2
    assert numpy.percentile([numbers], 50, 1, method="higher") == 3


def test_what_numpy_has_stays():
    def with_interpolation(a, q, interpolation="linear"):
        return interpolation

    numpy = SimpleNamespace(percentile=with_interpolation, compat=SimpleNamespace(long=int))
    before = dict(vars(numpy))
    restore_numpy_functions(numpy)
    assert vars(numpy) == before


def test_batches_come_in_buckets(data, tmp_path):
    """fairseq makes them with what NumPy 2 removed."""
    path = train_here(data, tmp_path, "--max-update", "2", "--num-batch-buckets", "3")
    assert path.exists()


class ReadAhead:
    """As fairseq's loader for TPUs: it counts from where the iterator stands after the reading ahead."""

    def __init__(self, iterator):
        iterator.n += 5
        self.n = iterator.n


@pytest.mark.parametrize("times", [1, 2])
def test_batches_that_were_read_ahead_still_count(times):
    loader = ReadAhead
    for _ in range(times):
        loader = counting_from_start(loader)
    iterator = SimpleNamespace(n=2)
    assert loader(iterator).n == 2 and iterator.n == 7
    assert loader(SimpleNamespace(n=0)).n == 0


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_arrays_in_a_checkpoint_are_read(tmp_path, kind):
    counts = np.array([3, 2, 1, 0], dtype=kind)
    torch.save({"extra_state": {"val": counts}}, tmp_path / "arrays.pt")
    found = torch.load(tmp_path / "arrays.pt", weights_only=True)["extra_state"]["val"]
    assert found.dtype == kind and found.tolist() == counts.tolist()


def test_arrays_of_objects_are_refused(tmp_path):
    """They can hold anything that pickle can."""
    torch.save({"val": np.array([{}], dtype=object)}, tmp_path / "objects.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "objects.pt", weights_only=True)


def test_a_checkpoint_with_counts_of_bleu_is_read(data, tmp_path):
    scores = "--eval-bleu --eval-bleu-detok space --best-checkpoint-metric bleu --maximize-best-checkpoint-metric"
    flags = *scores.split(), "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--max-update"
    train_here(data, tmp_path, *flags, "1")
    state = torch.load(train_here(data, tmp_path, *flags, "2"), weights_only=True)
    assert state["extra_state"]["train_iterator"]["iterations_in_epoch"] == 2  # it went on
    counts = [meter for _, name, _, meter in dict(state["extra_state"]["metrics"])["valid"] if name == "_bleu_counts"]
    assert isinstance(counts[0]["sum"], np.ndarray)
