import shutil
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS / "support"), str(ROOT), str(ROOT / "recipes/lib"), str(ROOT / "data-prep/lib")]

from language_model_data import make_text, task_of_text, train_lm_here  # noqa: E402
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
def text(tmp_path_factory):
    return make_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def text_task(text):
    return task_of_text(text)


@pytest.fixture(scope="session")
def checkpoint(data, tmp_path_factory):
    """A gated model, trained until its translations differ, on data that are no longer where they were."""
    folder = tmp_path_factory.mktemp("trained")
    elsewhere = shutil.copytree(data, folder / "elsewhere")
    flags = ["--max-update", "60"]
    path = train_here(elsewhere, folder, *flags, architecture="transformer_rfa_tiny_gate")
    shutil.rmtree(elsewhere)
    return path


@pytest.fixture(scope="session")
def text_checkpoint(text, tmp_path_factory):
    """A gated language model that has learnt something."""
    folder = tmp_path_factory.mktemp("trained_on_text")
    return train_lm_here(text, folder, "--max-epoch", "6", architecture="transformer_lm_rfa_tiny_gate")


@pytest.fixture
def without_gradients():
    """As when decoding; states are then updated in place."""
    with torch.no_grad():
        yield
