"""Sentences of a data set, as the model of a checkpoint reads them."""

from fairseq import tasks
from omegaconf import OmegaConf, open_dict

from ..programs.trained_model import readable_sentences

ROWS = 8


def sentences(checkpoint, data, subset, number):
    """The first sentences of a subset, as samples of fairseq.

    Args:
        checkpoint: as fairseq's load_checkpoint_to_cpu returns it.
        data: folder of fairseq-preprocess with its dictionaries.
        subset: for example "valid".
        number: at most so many; those too long for the model are passed over.

    Raises:
        ValueError: the data cannot be read, are of another vocabulary, or have no sentence.
    """
    cfg = OmegaConf.create(OmegaConf.to_container(checkpoint["cfg"].task, resolve=True))
    with open_dict(cfg):
        cfg.data = str(data)
    try:
        task = tasks.setup_task(cfg)
        task.load_dataset(subset)
    # Of missing data anything may come: no dictionary, no such subset.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"cannot read '{subset}' of '{data}': {reason}") from error
    for side, dictionary in (("encoder", task.source_dictionary), ("decoder", task.target_dictionary)):
        weight = checkpoint["model"][f"{side}.embed_tokens.weight"]
        if len(dictionary) != len(weight):
            raise ValueError(
                f"the {side} of the checkpoint has {len(weight)} words and its dictionary in '{data}' has "
                f"{len(dictionary)}; use the data that it was trained on"
            )
    dataset = task.dataset(subset)
    indices = readable_sentences(dataset, task, number, f"'{data}' has no sentence in '{subset}'")
    return [
        dataset.collater([dataset[i] for i in indices[start : start + ROWS]])
        for start in range(0, len(indices), ROWS)
    ]
