import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tiny_data import make_data, task_of, train_here  # noqa: E402


@pytest.fixture(autouse=True)
def same_start():
    """Every test starts from the same random numbers and leaves one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def task(data):
    return task_of(data)


@pytest.fixture(scope="session")
def checkpoint(data, tmp_path_factory):
    """A gated model, trained until its translations differ from each other."""
    folder = tmp_path_factory.mktemp("trained")
    return train_here(
        data, folder, "--max-update", "60", architecture="transformer_rfa_tiny_gate"
    )
