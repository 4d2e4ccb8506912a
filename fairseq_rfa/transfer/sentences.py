"""Sentences of a data set, as the model of a checkpoint reads them."""

from contextlib import contextmanager
from itertools import count

from fairseq import tasks, utils
from fairseq.tasks import LegacyFairseqTask
from omegaconf import OmegaConf, open_dict

from ..functional.random_matrices import LARGEST_SEED
from ..programs.trained_model import readable_sentences
from .vocabulary import number_of_words

ROWS = 8


def read_task(checkpoint, data, subset):
    """The task of a checkpoint on other data, with a subset loaded.

    Args:
        checkpoint: as fairseq's load_checkpoint_to_cpu returns it.
        data: folder of fairseq-preprocess with its dictionaries.
        subset: for example "valid".

    Raises:
        ValueError: the data cannot be read, or are of another vocabulary.
    """
    cfg = OmegaConf.create(OmegaConf.to_container(checkpoint["cfg"].task, resolve=True))
    with open_dict(cfg):
        cfg.data = str(data)
    with _reading(subset, data):
        task = tasks.setup_task(cfg)
        task.load_dataset(subset)
    state = checkpoint["model"]
    sides = [side for side in ("encoder", "decoder") if any(name.startswith(f"{side}.") for name in state)]
    # A decoder alone reads the source.
    for side, dictionary in zip(sides, (task.source_dictionary, task.target_dictionary)):
        words = number_of_words(state, side)
        if len(dictionary) != words:
            raise ValueError(
                f"the {side} of the checkpoint has {words} words and its dictionary in '{data}' has "
                f"{len(dictionary)}; use the data that it was trained on"
            )
    return task


def held_out_subset(task):
    """valid, which is then loaded, or train where the data have no valid; raises ValueError if it cannot be read."""
    with _reading("valid", _data_of(task)):
        try:
            task.load_dataset("valid")
        except FileNotFoundError:
            return "train"
    return "valid"


def first_sentences(task, subset, number):
    """The first sentences of a subset, as samples of fairseq.

    Args:
        number: at most so many; those too long for the model are passed over.

    Raises:
        ValueError: there is none.
    """
    dataset = task.dataset(subset)
    indices = readable_sentences(dataset, task, number, f"'{_data_of(task)}' has no sentence in '{subset}'")
    return [
        dataset.collater([dataset[i] for i in indices[start : start + ROWS]])
        for start in range(0, len(indices), ROWS)
    ]


def endless_batches(task, subset, tokens, seed):
    """Samples of fairseq with at most so many words on a side, epoch after epoch, each in an order of its own.

    Raises:
        ValueError: no sentence is so short.
    """
    dataset = task.dataset(subset)
    epochs = task.get_batch_iterator(
        dataset,
        max_tokens=tokens,
        max_positions=utils.resolve_max_positions(task.max_positions(), tokens),
        ignore_invalid_inputs=True,
        seed=seed % (LARGEST_SEED // 2),  # fairseq adds the number of the epoch
        disable_iterator_cache=True,  # which would go on in the order of an earlier call
    )
    if not len(epochs):
        raise ValueError(f"'{_data_of(task)}' has no sentence of at most {tokens} words in '{subset}'")
    return (batch for _ in count() for batch in epochs.next_epoch_itr(shuffle=True))


def _data_of(task):
    """fairseq's language_modeling has its options elsewhere than other tasks."""
    return (task.args if isinstance(task, LegacyFairseqTask) else task.cfg).data


@contextmanager
def _reading(subset, data):
    try:
        yield
    # Of missing data anything may come: no dictionary, no such subset.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"cannot read '{subset}' of '{data}': {reason}") from error
