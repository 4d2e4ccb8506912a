"""The last interval of a training stands in TensorBoard's files, however the training ends."""

import gc
from collections import OrderedDict

import pytest
import torch
from fairseq.trainer import Trainer
from torch.utils.hooks import RemovableHandle

from fairseq_rfa.model import monitoring
from monitored_training import steps, train
from tiny_data import build


@pytest.fixture
def without_collection():
    """No garbage is collected: a model that nobody needs any more could leave, and so write, at any time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "ending",
    [
        ["--no-save"],
        ["--disable-validation"],
        ["--disable-validation", "--no-save"],
        ["--disable-validation", "--no-save", "--update-freq", "1"],
        ["--disable-validation", "--no-save", "--bf16"],
        ["--disable-validation", "--no-save", "--optimizer", "sgd"],
        ["--disable-validation", "--no-save", "--optimizer", "adafactor"],
    ],
    ids=" ".join,
)
def test_the_last_interval_is_written(data, tmp_path, without_collection, ending):
    """Whatever fairseq does after the last update: it validates, saves, or neither."""
    train(data, tmp_path, *ending)
    assert steps(tmp_path / "tensorboard") == [2, 4]


def test_the_last_interval_of_the_last_epoch_is_written(data, tmp_path, without_collection):
    path = train(data, tmp_path, "--disable-validation", "--max-update", 0, "--max-epoch", 2, "--log-interval", 1)
    num_updates = torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"]
    assert steps(tmp_path / "tensorboard") == list(range(1, num_updates + 1))


class Interruption(KeyboardInterrupt):
    pass


def interrupted(data, folder, monkeypatch, place, update):
    """A training with --disable-validation that somebody stops at a call of this method of the trainer."""
    method = getattr(Trainer, place)

    def interrupt(trainer, *arguments, **options):
        if trainer.get_num_updates() == update:
            raise Interruption
        return method(trainer, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, place, interrupt)
        with pytest.raises(Interruption):
            train(data, folder, "--disable-validation", "--max-update", 6, "--save-interval-updates", 1)


@pytest.mark.parametrize(
    "place, update, expected",
    [
        ("cumulative_training_time", 4, [2, 4]),  # the update is done, and nothing has been saved
        ("save_checkpoint", 4, [2, 4]),
        ("save_checkpoint", 3, [2]),  # in the middle of an interval
        ("clip_grad_norm", 3, [2]),  # what would be the update 4 has been forward and back
        ("train_step", 4, [2, 4]),
    ],
)
def test_an_interrupted_training_has_written_what_was_done(
    data, tmp_path, monkeypatch, place, update, expected
):
    interrupted(data, tmp_path, monkeypatch, place, update)
    assert steps(tmp_path / "tensorboard") == expected


def test_an_interrupted_training_writes_no_more_when_another_goes_on(
    data, tmp_path, monkeypatch, without_collection
):
    interrupted(data, tmp_path, monkeypatch, "clip_grad_norm", 3)
    train(data, tmp_path, "--max-update", 6, "--disable-validation")
    assert steps(tmp_path / "tensorboard") == [2, 4, 6]


def test_a_model_that_is_gone_is_watched_no_more(data, tmp_path, monkeypatch):
    hooks = OrderedDict()

    def register(hook):
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    monkeypatch.setattr(monitoring, "register_optimizer_step_post_hook", register)
    model = build(data, "--tensorboard-logdir", str(tmp_path))
    assert len(hooks) == 1
    model.set_num_updates(0)
    del model
    gc.collect()
    assert not hooks
