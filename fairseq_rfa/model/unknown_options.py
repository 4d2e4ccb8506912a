"""A misspelt override of a model's options is refused."""

import argparse
import ast
import difflib
from dataclasses import fields
from inspect import isclass

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

OF_FAIRSEQ = ("arch", "_name", "scale_attn", "scale_fc", "scale_heads", "scale_resids")
"""What fairseq reads of a Transformer's options though no flag sets it."""


def refuse_unknown_options(names, task, options):
    """fairseq stores a misspelt override among the options of the model, and nobody would read it.

    Args:
        names: those that a user may have written.
        task: whose options are among them.
        options: the dataclass of those of the model.

    Raises:
        ValueError: a name that no part of fairseq knows.
    """
    of_model = set(_names_of(options))
    others = [name for name in names if name not in of_model]
    known = of_model.union(_known_to_fairseq(task)) if others else of_model
    for name in others:
        if name not in known:
            nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            raise ValueError(f"there is no option {name}; did you mean {nearest[0]}?")


def names_to_check(cfg):
    """Names of a model's options that a user may have written.

    A checkpoint may hold options of another release or of a criterion that is not at hand. `_name` is the last that
    fairseq sets before it stores the options of a command line, so overrides come after it. All that a configuration
    file says of a model is meant for it, but fairseq drops an override that it lacks; only the command knows of it.

    Args:
        cfg: what fairseq gives to build_model.
    """
    if OmegaConf.is_config(cfg):
        return [*cfg, *_overrides_of_command()]
    names = list(vars(cfg))
    stored = names.index("_name") if "_name" in names else len(names)
    return [name for position, name in enumerate(names) if position > stored or name.startswith("rfa_")]


def _overrides_of_command():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model-overrides", default="{}")
    overrides = ast.literal_eval(parser.parse_known_args()[0].model_overrides)
    return [name for name, value in overrides.items() if not isinstance(value, dict)]


def _known_to_fairseq(task):
    kinds = [part.type for part in fields(FairseqConfig) if part.name != "model" and _has_parts(part.type)]
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    type(task).add_args(parser)
    for registry in REGISTRIES.values():
        kinds += registry["dataclass_registry"].values()
        for choice in registry["registry"].values():
            if not hasattr(choice, "__dataclass") and hasattr(choice, "add_args"):
                choice.add_args(parser)
    names = {part.name for part in fields(FairseqConfig)} - {"model"}
    return names.union(OF_FAIRSEQ, (action.dest for action in parser._actions), *map(_names_of, kinds))


def _names_of(kind, prefix=""):
    """Of the options in a dataclass of fairseq, as flags have them: encoder_layers for layers of the part encoder."""
    for part in fields(kind):
        if _has_parts(part.type):
            yield from _names_of(part.type, f"{prefix}{part.name}_")
        else:
            yield prefix + part.name


def _has_parts(kind):
    return isclass(kind) and issubclass(kind, FairseqDataclass)
