"""Checkpoints that can be converted: understood through fairseq, and made anew."""

from argparse import Namespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf

from ..model.config import RFA_OPTIONS
from ..model.parameters import RFA_PARAMETERS
from ..programs.checkpoint_file import some_of
from ..programs.plain_options import plain, with_attributes
from .kinds import KINDS
from .vocabulary import number_of_words, task_with

# Of older releases; fairseq passes over them when it loads, because they are computed from the sizes.
COMPUTED = (".embed_positions.weights", ".embed_positions._float_tensor")


def model_options(checkpoint):
    """Options of the model, complete; `arch` says which of `KINDS` it is.

    Raises:
        ValueError: another model, or an unknown one.
    """
    stored = OmegaConf.select(checkpoint["cfg"], "model")
    if OmegaConf.is_config(stored):
        stored = Namespace(**OmegaConf.to_container(stored, resolve=True, enum_to_str=True))
    if not isinstance(stored, Namespace):
        raise ValueError("the checkpoint says nothing about its model; use one that fairseq-train wrote")
    options = Namespace(**vars(stored))
    name = getattr(options, "_name", None) or getattr(options, "arch", None)
    model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    known = [name for name, kind in KINDS.items() if kind.models[name] is model]
    if not known:
        raise ValueError(f"the model of the checkpoint is {name}; use one of {', '.join(KINDS)}")
    options._name = name  # a checkpoint, not a command line, whose flags would be checked
    if name in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[name](options)
    options.user_dir = None
    for side in KINDS[known[0]].sides:
        if hasattr(options, f"{side}_embed_path"):
            setattr(options, f"{side}_embed_path", None)
    options.arch = options._name = known[0]
    return options


def parameters(checkpoint, kind):
    """Names and tensors, without those that fairseq computes.

    Args:
        kind: of the model, one of `KINDS`.

    Raises:
        ValueError: something else among them, or no embeddings.
    """
    state = {name: value for name, value in checkpoint["model"].items() if not name.endswith(COMPUTED)}
    strange = [name for name, value in state.items() if not torch.is_tensor(value)]
    if strange:
        raise ValueError(f"{some_of(strange)} in the checkpoint is no tensor; use one that fairseq-train wrote")
    for side in kind.sides:
        number_of_words(state, side)
    return state


def build(options, state, seed):
    """A new model with these options for the vocabularies of the state dict; the same seed gives the same weights.

    It is in evaluation, where layers that training leaves out at random are all there.

    What fairseq fills in is filled in in the options as well.

    Raises:
        ValueError: options that make no sense together.
    """
    # Nobody watches.
    building = Namespace(**{**vars(options), "tensorboard_logdir": None, "rfa_monitor": None})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = KINDS[options.arch].models[options.arch].build_model(building, task_with(state, KINDS[options.arch]))
    for name, value in vars(building).items():
        vars(options).setdefault(name, value)
    return model.eval()


def check(state, model):
    """Upgrade a state dict in place as the model does when it loads, and compare names and sizes.

    Raises:
        ValueError: anything missing, unexpected, or of another size.
    """
    own, theirs = ({name for name in x if name.endswith(RFA_PARAMETERS)} for x in (model.state_dict(), state))
    missing, unexpected = own - theirs, theirs - own  # which the upgrade would mend
    if not missing and not unexpected:
        model.upgrade_state_dict(state)
        expected = model.state_dict()
        missing, unexpected = expected.keys() - state.keys(), state.keys() - expected.keys()
    if missing:
        raise ValueError(f"the checkpoint lacks {some_of(missing)}, which its options ask for")
    if unexpected:
        raise ValueError(f"the checkpoint has {some_of(unexpected)}, which its options do not ask for")
    for name, value in state.items():
        if value.shape != expected[name].shape:
            raise ValueError(
                f"{name} is {tuple(value.shape)} in the checkpoint and {tuple(expected[name].shape)} by its options"
            )


def renewed(checkpoint, state, options):
    """A checkpoint with these parameters and options that is at the start of its training.

    For the plain model all is in containers and numbers, so that torch loads it where nobody has allowed a class.
    """
    cfg = OmegaConf.to_container(checkpoint["cfg"], resolve=True, enum_to_str=True)
    args = None
    if options.arch == KINDS[options.arch].plain:
        for option in RFA_OPTIONS:
            vars(options).pop(option.name, None)
        options = plain(options)
        args = with_attributes(options, plain(cfg["task"]))
    cfg["model"] = options
    cfg["common"] = {**(cfg.get("common") or {}), "user_dir": None}
    last = checkpoint["optimizer_history"][-1]
    history = {name: last.get(name) for name in ("criterion_name", "optimizer_name")}
    kept = {name: checkpoint[name] for name in ("criterion", "task_state") if name in checkpoint}
    return {
        "args": args,
        "cfg": {name: value if name == "model" else plain(value) for name, value in cfg.items()},
        "model": state,
        **kept,
        "optimizer_history": [{**history, "lr_scheduler_state": {}, "num_updates": 0}],
        "last_optimizer_state": None,
        "extra_state": {
            "train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
        },
    }
