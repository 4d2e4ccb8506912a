"""Checkpoints to convert, and sentences to fit to."""

from functools import lru_cache

import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from fairseq_rfa.programs.checkpoint_file import read_checkpoint, write_checkpoint
from tiny_data import parse

SMALL = tuple(
    "--encoder-layers 1 --decoder-layers 2 --encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-ffn-embed-dim 48 "
    "--decoder-ffn-embed-dim 48 --encoder-attention-heads 4 --decoder-attention-heads 4".split()
)


def valid_batches(data, rows=8):
    """The 8 sentences of validation as samples of fairseq."""
    task = TranslationTask.setup_task(convert_namespace_to_omegaconf(parse(data)).task)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    return [dataset.collater([dataset[i] for i in range(start, start + rows)]) for start in range(0, 8, rows)]


@lru_cache(maxsize=None)
def other_options(data):
    """All that a checkpoint says but for its model; fairseq takes its time to put it together."""
    return OmegaConf.to_container(convert_namespace_to_omegaconf(parse(data)), enum_to_str=True)


def made(data, folder, *flags, architecture="transformer", task=None, change=None, older=False):
    """A checkpoint of a model with random weights, with its options as older releases store them or as this one."""
    args = parse(data, *SMALL, *flags, architecture=architecture)
    torch.manual_seed(3)
    state = (task or TranslationTask.setup_task(args)).build_model(args).state_dict()
    if change is not None:
        change(state)
    args._name = args.arch
    options = {"args": args} if older else {"args": None, "cfg": {**other_options(data), "model": args}}
    history = {"criterion_name": "C", "optimizer_name": "O", "lr_scheduler_state": {}, "num_updates": 5}
    extra = {"train_iterator": {"epoch": 3, "iterations_in_epoch": 2}}
    checkpoint = {**options, "model": state, "optimizer_history": [history], "extra_state": extra}
    path = folder / "made.pt"
    torch.save({**checkpoint, "last_optimizer_state": {"state": torch.ones(3)}}, path)
    return path


def stored(checkpoint, folder):
    """The checkpoint after a file."""
    write_checkpoint(checkpoint, folder / "stored.pt")
    return read_checkpoint(folder / "stored.pt")
