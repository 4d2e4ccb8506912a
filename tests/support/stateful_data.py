"""Trainings of the task stateful_language_modeling."""

from contextlib import ExitStack
from unittest import mock

from fairseq_rfa.language.stream_state import StreamState
from language_model_data import FEW_MATRICES, SEGMENT, SMALL_LM, TRAINING_LM
from tiny_data import PLUGIN
from worker import watched_training

GATED = "transformer_lm_rfa_tiny_gate"


def stateful_flags(*flags):
    """Those of a small training."""
    task = "--task", "stateful_language_modeling", "--tokens-per-sample", str(SEGMENT), "--batch-size-valid", "1"
    return [*SMALL_LM, *FEW_MATRICES, *TRAINING_LM, *task, "--criterion", "cross_entropy", *flags]


def arguments_of(text, *flags, save_dir=None, architecture=GATED):
    """Those of fairseq-train."""
    saving = ("--no-save",) if save_dir is None else ("--save-dir", str(save_dir))
    return [str(text), "--user-dir", str(PLUGIN), "--arch", architecture, *stateful_flags(*saving, *flags)]


def train_stateful(text, *flags, reset=False, **options):
    """What `watched_training` finds.

    Args:
        reset: nothing is carried.
    """
    with ExitStack() as patches:
        if reset:
            patches.enter_context(mock.patch.object(StreamState, "before", lambda state, place: None))
        return watched_training(arguments_of(text, *flags, **options))
