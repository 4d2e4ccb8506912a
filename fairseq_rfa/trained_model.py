"""Load a trained model together with the data that a study runs it on."""

from fairseq import checkpoint_utils


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
        reason = " ".join(str(error).split()) or type(error).__name__
        named = "' and '".join(dict.fromkeys(subsets))
        raise ValueError(f"cannot load '{checkpoint}' with '{named}' of '{data}': {reason}") from error
    return models[0], cfg, task
