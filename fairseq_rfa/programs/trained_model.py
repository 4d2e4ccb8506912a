"""A trained model together with the sentences that a study runs it on."""

from functools import partial

import numpy as np
import torch
from fairseq import checkpoint_utils, utils

from .checkpoint_file import reason


def load_trained(checkpoint, data, subsets):
    """The model of a checkpoint, its options and a task that has loaded the subsets of the data.

    Args:
        checkpoint: file that fairseq-train wrote.
        data: folder of fairseq-preprocess.
        subsets: names such as "valid".

    Raises:
        ValueError: the checkpoint or the data cannot be read.
    """
    try:
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        for subset in subsets:
            task.load_dataset(subset)
    # Of a broken file and of missing data anything may come: wrong keys, no pickle, no dictionary.
    except Exception as error:
        named = "' and '".join(dict.fromkeys(subsets))
        raise ValueError(f"cannot load '{checkpoint}' with '{named}' of '{data}': {reason(error)}") from error
    return models[0], cfg, task


def readable_sentences(dataset, reader, number, error):
    """Numbers of the first sentences of a dataset, at most so many, that are not too long for a model or a task.

    Raises:
        ValueError: with this error where there is none.
    """
    indices, most = np.arange(len(dataset)), reader.max_positions()
    if most is not None:
        indices, _ = dataset.filter_indices_by_size(indices, most)
    if not len(indices):
        raise ValueError(error)
    return [int(index) for index in indices[:number]]


def move_to(sample, device):
    """A sample of fairseq on a device."""
    return utils.apply_to_sample(partial(torch.Tensor.to, device=device), sample)
