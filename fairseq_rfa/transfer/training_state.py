"""What a training goes on with after its attention has changed: updates, epoch, learning rate and optimizer."""

import torch


def keep_training(converted, checkpoint, old, new, started_anew):
    """Give a converted checkpoint the state of the training that it comes from.

    Args:
        converted: as `checkpoint.renewed` returns it; it is changed in place.
        checkpoint: as fairseq's load_checkpoint_to_cpu returns it; it is not changed.
        old, new: the models before and after.
        started_anew: names of the parameters whose values the conversion made; the optimizer starts anew with them.

    Returns:
        the number of updates, and how many parameters the optimizer knows.

    Raises:
        ValueError: the checkpoint holds no state of an optimizer, or that of other parameters.
    """
    state, iterator = checkpoint.get("last_optimizer_state"), checkpoint.get("extra_state", {}).get("train_iterator")
    if not state or not iterator:
        raise ValueError(
            "the checkpoint holds no state of its training (--no-save-optimizer-state); leave --keep-training out"
        )
    last = checkpoint["optimizer_history"][-1]
    kept = [name for name in _trained(new) if name in _trained(old) and name not in started_anew]
    converted["optimizer_history"] = [last]
    converted["last_optimizer_state"] = _for_parameters(state, _trained(old), _trained(new), kept)
    # Without "best": what softmax reached says nothing about the checkpoints to come.
    converted["extra_state"] = {"train_iterator": dict(iterator)}
    return last["num_updates"], len(kept)


def _trained(model):
    """Parameters by name in the order in which fairseq gives them to its optimizer; those that are shared, once."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def _for_parameters(state, old, new, kept):
    """The state of an optimizer for the parameters of the new model; those that are not kept start anew."""
    if len(state["param_groups"]) != 1:
        raise ValueError("the optimizer has several groups of parameters; leave --keep-training out")
    group = state["param_groups"][0]
    flat = len(group["params"]) == 1 < len(old)
    if not flat and len(group["params"]) != len(old):
        raise ValueError(
            f"the optimizer knows {len(group['params'])} parameters and the model trains {len(old)}; "
            "use the checkpoint of one training"
        )
    if flat:
        values = {0: {name: _recut(value, old, new, kept) for name, value in state["state"][0].items()}}
    else:
        numbers = {name: number for number, name in enumerate(old)}
        values = {
            number: state["state"][numbers[name]]
            for number, name in enumerate(new)
            if name in kept and numbers[name] in state["state"]
        }
    places = list(range(1 if flat else len(new)))
    return {**state, "state": values, "param_groups": [{**group, "params": places}]}


def _recut(value, old, new, kept):
    """Half precision trains one long parameter in place of all; its state is cut and put together again."""
    sizes = [parameter.numel() for parameter in old.values()]
    if not torch.is_tensor(value) or value.numel() != sum(sizes):
        return value
    parts = dict(zip(old, value.split(sizes)))
    return torch.cat([parts[name] if name in kept else value.new_zeros(new[name].numel()) for name in new])
