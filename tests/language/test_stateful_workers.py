"""Two workers of the CPU share the columns of a stream, and a checkpoint holds the states of both."""

import json
from collections import namedtuple
from pathlib import Path

import pytest

import worker
from stateful_data import arguments_of, train_stateful
from tiny_data import command
from workers import free_port

UPDATES = 14
STOP = 9  # in the middle of the second epoch
SHARED = ("--batch-size", "2", "--rfa-local-window", "2")
# 57 tokens in two columns: in the last segment one worker has a token, and the other has none.
UNEVEN = ("--train-subset", "test", "--tokens-per-sample", "14", "--dropout", "0", "--update-freq", "2")

Runs = namedtuple("Runs", "whole stopped resumed validated uneven for_one")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stateful")


@pytest.fixture(scope="module")
def both(text, folder):
    """What two workers found, rank by rank, in trainings that share one start of the processes."""

    def arguments(name, *flags, updates=UPDATES):
        return arguments_of(text, *SHARED, *flags, "--max-update", str(updates), save_dir=folder / name)

    trainings = Runs(
        whole=arguments("whole"),
        stopped=arguments("parts", updates=STOP),
        resumed=arguments("parts"),
        validated=arguments("validated", "--validate-interval-updates", "1"),
        uneven=arguments("uneven", *UNEVEN, "--batch-size", "1"),
        for_one=arguments("for-one", "--dropout", "0", updates=STOP),
    )
    file = folder / "trainings.json"
    file.write_text(json.dumps(trainings))
    started = command(
        "torchrun", "--nproc_per_node", 2, "--master_port", free_port(), worker.__file__, file, folder=folder
    )
    assert started.returncode == 0, started.stderr[-3000:]
    return [Runs(*json.loads(Path(f"{file}.{rank}").read_text())) for rank in range(2)]


def test_workers_train_together(both):
    first, second = (runs.whole for runs in both)
    assert len(first["losses"]) == UPDATES
    assert first["losses"] == second["losses"] and first["parameters"] == second["parameters"]


def test_a_stopped_training_goes_on_exactly(both):
    for runs in both:
        assert runs.stopped["losses"] + runs.resumed["losses"] == runs.whole["losses"]
        assert runs.resumed["parameters"] == runs.whole["parameters"] != runs.stopped["parameters"]


def test_validation_changes_nothing(both):
    for runs in both:
        assert runs.validated["losses"] == runs.whole["losses"]


def test_no_worker_makes_up_batches(both):
    assert all(run["dummy_batches"] == 0 for runs in both for run in runs)
    assert both[0].uneven["sizes"] == both[1].uneven["sizes"]
    assert both[0].uneven["sizes"][:3] == [[1, 14], [1, 14], [1, 1]]


def test_two_workers_are_one_with_twice_the_columns(both, text):
    alone = train_stateful(text, "--rfa-local-window", "2", *UNEVEN, "--batch-size", "2", "--max-update", str(UPDATES))
    assert both[0].uneven["losses"] == pytest.approx(alone["losses"], rel=1e-4)


def test_one_worker_goes_on_with_the_columns_of_two(both, text, folder):
    flags = "--rfa-local-window", "2", "--batch-size", "4", "--dropout", "0", "--max-update", str(UPDATES)
    resumed = train_stateful(text, *flags, save_dir=folder / "for-one")
    alone = train_stateful(text, *flags)
    assert both[0].for_one["losses"] + resumed["losses"] == pytest.approx(alone["losses"], rel=1e-4)
