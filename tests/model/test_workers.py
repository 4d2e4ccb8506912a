"""Data-parallel training in two processes of the CPU, started by torchrun."""

import json
from collections import namedtuple
from pathlib import Path

import pytest

import worker
from tiny_data import PLUGIN, SMALL, TRAINING, command, generate_here, results
from worker import watched_training
from workers import free_port

UPDATES = 20
STOP = 8  # in the middle of an epoch
DRAWS = ("--no-rfa-fixed-matrices", "--rfa-gate", "--dropout", "0.3")
NOTHING_RANDOM = ("--dropout", "0")
# An odd number of batches: in each epoch the second worker has one less.
UNEVEN = ("--max-tokens", "50")
# 8 batches: fairseq weighs an update wrongly where only some of a worker's batches are made up.
EVEN = ("--max-tokens", "58")

Runs = namedtuple("Runs", "whole stopped resumed halved")


def training(data, folder, *flags):
    return [
        *(str(data), "--user-dir", str(PLUGIN), "--arch", "transformer_rfa_tiny"),
        *(*SMALL, *TRAINING, "--save-dir", str(folder), *flags),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def workers(data, folder):
    """What two workers found, rank by rank, in trainings that share one start of the processes."""
    updates = "--max-update", str(UPDATES)
    trainings = Runs(
        whole=training(data, folder / "whole", *DRAWS, *UNEVEN, *updates),
        stopped=training(data, folder / "stopped", *DRAWS, *UNEVEN, "--max-update", str(STOP)),
        resumed=training(data, folder / "stopped", *DRAWS, *UNEVEN, *updates),
        halved=training(data, folder / "halved", *NOTHING_RANDOM, *EVEN, *updates, "--update-freq", "2"),
    )
    file = folder / "trainings.json"
    file.write_text(json.dumps(trainings))
    result = command(
        "torchrun",
        *("--nproc_per_node", 2, "--master_port", free_port()),
        *(worker.__file__, file),
        folder=folder,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [Runs(*json.loads(Path(f"{file}.{rank}").read_text())) for rank in range(2)]


def test_workers_train_together(workers):
    first, second = (runs.whole for runs in workers)
    assert len(first["losses"]) == len(second["losses"]) == UPDATES
    assert first["losses"] == second["losses"]  # the mean over both
    assert first["sizes"] != second["sizes"]


def test_parameters_stay_equal(workers):
    """With dropout, draws, batches of other lengths, and in the end a batch that one worker lacks."""
    first, second = (runs.whole for runs in workers)
    assert first["parameters"] == second["parameters"]
    assert first["dummy_batches"] == 0 and second["dummy_batches"] > 0


def test_a_stopped_training_resumes_exactly(workers):
    for runs in workers:
        assert runs.stopped["parameters"] != runs.whole["parameters"]
        assert runs.resumed["parameters"] == runs.whole["parameters"]
        assert runs.stopped["losses"]== runs.whole["losses"][:STOP]


def test_half_the_accumulation_is_the_same_training(workers, data, folder):
    """Two workers with two batches an update, and one with four."""
    flags = *NOTHING_RANDOM, *EVEN, "--max-update", str(UPDATES), "--update-freq", "4"
    alone = watched_training(training(data, folder / "alone", *flags))
    assert len(alone["losses"]) == UPDATES
    assert workers[0].halved["losses"] == pytest.approx(alone["losses"], rel=1e-4)


def test_the_checkpoint_of_two_workers_translates_in_one(workers, data, folder):
    output = generate_here(data, folder / "whole" / "checkpoint_last.pt", "--beam", "2")
    assert len(results(output)) == 8
