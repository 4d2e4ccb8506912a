"""The task stateful_language_modeling in fairseq's training: what it carries, when it starts anew, how it goes on."""

from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from fairseq_rfa.language import task as module
from helpers import largest_difference
from language_model_data import build_lm, parse_lm
from stateful_data import GATED, stateful_flags, train_stateful

UPDATES = 14
STOP = 9  # in the middle of the second epoch


def trainer_of(text, *flags):
    """A trainer with its iterator over the training data, before the first update."""
    cfg = convert_namespace_to_omegaconf(parse_lm(text, *stateful_flags(*flags), architecture=GATED))
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    iterator = trainer.get_train_iterator(1)
    task.load_dataset("valid")
    trainer.begin_epoch(1)
    return trainer, iterator


def batches_of(iterator):
    return list(iterator.next_epoch_itr(shuffle=True))


def newest(state):
    """The tensors of all layers after the newest segment."""
    return [x for totals in state.newest for x in totals if x is not None]


def same(one, other):
    return len(one) == len(other) and all(torch.equal(x, y) for x, y in zip(one, other))


def test_a_training_carries_its_state(text):
    """What an update leaves are the sums over all segments so far, by the weights of the time."""
    trainer, iterator = trainer_of(text, "--lr", "0", "--dropout", "0", "--continue-positions")
    batches = batches_of(iterator)
    for batch in batches[:3]:
        trainer.train_step([batch])
    tokens = torch.cat([batch["net_input"]["src_tokens"] for batch in batches[:3]], dim=1)
    with torch.no_grad(), module.carrying(trainer.get_model(), None) as carried:
        trainer.get_model()(tokens)
    expected = [x for state in carried for x in state.after]
    for found, wanted in zip(newest(trainer.task.train_state), expected):
        assert largest_difference(found, wanted) < 1e-4


def test_with_a_reset_at_each_segment_it_is_a_stateless_training(text):
    """The losses of the same batches in fairseq's own task and criterion, to the last bit."""
    losses = []
    for reset in (True, False):
        trainer, iterator = trainer_of(text, "--dropout", "0.1")
        found = []
        for batch in batches_of(iterator):
            if reset:
                trainer.task.train_state = module.StreamState()
            step = trainer.task.train_step if reset else super(type(trainer.task), trainer.task).train_step
            with mock.patch.object(trainer.task, "train_step", step):
                found.append(trainer.train_step([batch])["loss"])
        losses.append(found)
    assert losses[0] == losses[1]


def test_a_carried_state_changes_the_losses(text):
    stateless = train_stateful(text, "--max-update", "5", reset=True)
    stateful = train_stateful(text, "--max-update", "5")
    assert stateful["losses"][0] == stateless["losses"][0]
    assert all(abs(one - other) > 1e-5 for one, other in zip(stateful["losses"][1:], stateless["losses"][1:]))


@pytest.mark.parametrize("flags", ["", "--update-freq 2", "--rfa-local-window 3 --continue-positions"])
def test_a_stopped_training_goes_on_exactly(text, tmp_path, flags):
    updates = "--max-update", str(UPDATES)
    whole = train_stateful(text, *flags.split(), *updates, save_dir=tmp_path / "whole")
    stop = STOP if "freq" not in flags else 5
    stopped = train_stateful(text, *flags.split(), "--max-update", str(stop), save_dir=tmp_path / "parts")
    resumed = train_stateful(text, *flags.split(), *updates, save_dir=tmp_path / "parts")
    assert stopped["losses"] + resumed["losses"] == whole["losses"]
    assert len(whole["losses"]) == UPDATES and resumed["parameters"] == whole["parameters"]


def test_a_checkpoint_holds_plain_tensors(text, tmp_path):
    train_stateful(text, "--max-update", str(STOP), save_dir=tmp_path)
    extra = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint_last.pt"))["extra_state"]
    saved = extra["StatefulLanguageModelingTask"]
    assert saved["place"]["columns"] == 4 and len(saved["states"]) == 2
    assert {type(x) for parts in saved["states"] for x in parts.values()} == {torch.Tensor}


def test_nothing_is_kept_at_the_end_of_an_epoch(text, tmp_path):
    train_stateful(text, "--max-epoch", "1", save_dir=tmp_path)
    extra = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint_last.pt"))["extra_state"]
    assert extra["StatefulLanguageModelingTask"] == {}


def test_each_epoch_starts_anew(text):
    """With weights that stay as they are, epochs have the same losses."""
    found = train_stateful(text, "--lr", "0", "--dropout", "0", "--max-epoch", "3")["losses"]
    number = len(found) // 3
    assert found[:number] == found[number : 2 * number] == found[2 * number :]


@pytest.mark.parametrize("after_each", [True, False])
def test_validation_changes_nothing(text, after_each):
    """In the middle of an epoch: neither the training nor, the second time, the validation."""
    flags = "--max-update", str(UPDATES)
    without = train_stateful(text, *flags, "--disable-validation")
    validated = train_stateful(text, *flags, "--validate-interval-updates", "1" if after_each else "3")
    assert validated["losses"] == without["losses"] and validated["parameters"] == without["parameters"]


def test_validations_are_alike(text):
    """Neither the one before counts, nor the training that goes on between them."""
    trainer, iterator = trainer_of(text, "--lr", "0")
    found = []
    for batch in batches_of(iterator)[:2]:
        trainer.begin_valid_epoch(1)
        valid = trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)
        found.append([float(trainer.valid_step(batch)["loss"]) for batch in valid])
        trainer.train_step([batch])
    assert len(found[0]) > 1 and found[0] == found[1]


def test_a_validation_carries_its_state(text):
    trainer, _ = trainer_of(text)
    losses = {}
    for reset in (False, True):
        trainer.begin_valid_epoch(1)
        losses[reset] = []
        for batch in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            if reset:
                trainer.task.valid_state = module.StreamState()
            losses[reset].append(float(trainer.valid_step(batch)["loss"]))
    assert losses[False][0] == losses[True][0] and losses[False][1:] != losses[True][1:]


def test_a_batch_that_fairseq_makes_up_changes_no_state(text):
    trainer, iterator = trainer_of(text)
    batches = batches_of(iterator)
    trainer.train_step([batches[0]])
    before = newest(trainer.task.train_state)
    trainer.train_step([{}])
    assert same(newest(trainer.task.train_state), before)
    trainer.begin_valid_epoch(1)
    valid = list(trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False))
    trainer.valid_step(valid[0])
    of_validation = newest(trainer.task.valid_state)
    trainer.valid_step({})
    assert same(newest(trainer.task.valid_state), of_validation)
    trainer.train_step([{}])  # of validation data by now
    assert same(newest(trainer.task.train_state), before)


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_a_batch_without_memory_changes_no_state(text, place):
    trainer, iterator = trainer_of(text)
    batches = batches_of(iterator)
    trainer.train_step([batches[0]])
    before = newest(trainer.task.train_state)

    def fail(*arguments, **options):
        raise RuntimeError("out of memory")

    where = (trainer.get_model().decoder, "output_layer") if place == "forward" else (trainer.optimizer, "backward")
    with mock.patch.object(*where, fail):
        assert trainer.train_step([batches[1]]) is None
    assert same(newest(trainer.task.train_state), before)
    assert trainer.train_step([batches[2]]) is not None
    assert not same(newest(trainer.task.train_state), before)


def test_a_loss_that_is_not_finite_leaves_no_state(text):
    trainer, iterator = trainer_of(text)
    batches = batches_of(iterator)
    trainer.train_step([batches[0]])
    before = newest(trainer.task.train_state)
    with mock.patch.object(trainer.get_model().decoder, "output_layer", lambda x: x.sum() * float("nan") + x):
        with pytest.raises(FloatingPointError):
            trainer.train_step([batches[1]])
    assert same(newest(trainer.task.train_state), before)


def test_a_batch_may_come_twice(text):
    """After an overflow: it follows the same state as the first time."""
    trainer, iterator = trainer_of(text, "--lr", "0", "--dropout", "0")
    batches = batches_of(iterator)
    trainer.train_step([batches[0]])
    losses = [trainer.train_step([batches[1]])["loss"] for _ in range(2)]
    assert losses[0] == losses[1]


def test_an_epoch_without_its_first_batch_does_not_follow_the_last_one(text):
    trainer, iterator = trainer_of(text)
    for batch in batches_of(iterator):
        trainer.train_step([batch])
    trainer.begin_epoch(2)
    batches = batches_of(trainer.get_train_iterator(2))
    assert trainer.task.train_state.before(batches[1]["place"]) is None


def test_half_precision_keeps_a_wide_state(text):
    trainer, iterator = trainer_of(text)
    trainer.get_model().bfloat16()
    for batch in batches_of(iterator)[:2]:
        trainer.task.train_step(batch, trainer.get_model(), trainer.criterion, mock.MagicMock(), 0)
    assert {x.dtype for x in newest(trainer.task.train_state)} == {torch.float32}


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--causal-attention softmax", "use --causal-attention rfa, or --task language_modeling"),
        ("--no-rfa-fixed-matrices", "--no-rfa-fixed-matrices draws other directions"),
        ("--rfa-exact-updates 3", "--rfa-exact-updates has no state"),
        ("--continue-positions --decoder-learned-pos", "use it without --decoder-learned-pos"),
        ("--sample-break-mode eos", "--sample-break-mode is eos"),
        ("--add-bos-token", "--add-bos-token is True"),
        ("--past-target", "--past-target is True"),
        ("--pad-to-fixed-length", "--pad-to-fixed-length is True"),
        ("--output-dictionary-size 8", "--output-dictionary-size is 8"),
        ("--max-tokens 15", "--tokens-per-sample is 16, and --max-tokens or the model takes 15"),
        ("--batch-size 1000", "use a smaller --batch-size"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(text, flags, message):
    architecture = {} if "exact" not in flags else {"architecture": "transformer_lm_rfa_tiny"}
    with pytest.raises(ValueError, match=message) as error:
        train_stateful(text, *flags.split(), "--max-update", "1", **architecture)
    assert "\n" not in str(error.value)


def test_other_columns_are_refused_in_the_middle_of_an_epoch(text, tmp_path):
    train_stateful(text, "--max-update", str(STOP), save_dir=tmp_path)
    with pytest.raises(ValueError, match="middle of 4 columns with segments of 16 tokens, and this training has 3"):
        train_stateful(text, "--batch-size", "3", "--max-update", str(UPDATES), save_dir=tmp_path)
    anew = train_stateful(text, "--batch-size", "3", "--reset-dataloader", "--max-update", "10", save_dir=tmp_path)
    assert len(anew["losses"]) == 1


def test_segments_without_a_state_before_them_are_warned_of(text, tmp_path, caplog):
    train_stateful(text, "--max-update", str(STOP), "--no-save-optimizer-state", save_dir=tmp_path / "a")
    trainer, iterator = trainer_of(text)
    with caplog.at_level("WARNING"):
        trainer.train_step([batches_of(iterator)[2]])
    assert "nothing was carried to segment 3" in caplog.text


def test_eval_lm_is_refused(text):
    trainer, _ = trainer_of(text)
    with pytest.raises(ValueError, match="python -m fairseq_rfa.perplexity"):
        trainer.task.eval_lm_dataloader(trainer.task.dataset("valid"))


def test_a_model_of_this_task_is_one_of_language_modeling(text, tmp_path):
    """It loads under fairseq's own task."""
    train_stateful(text, "--max-update", "3", save_dir=tmp_path)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "checkpoint_last.pt")])
    plain = build_lm(text, architecture=GATED)
    plain.load_state_dict(models[0].state_dict())
    assert type(task).__name__ == "StatefulLanguageModelingTask"
