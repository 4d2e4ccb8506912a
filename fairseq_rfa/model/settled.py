"""What is done with the options of a model before it is built, whichever model it is."""

from argparse import Namespace

from omegaconf import OmegaConf

from ..compat import rebuild_batches_each_epoch
from .directions import settle_directions
from .layers_to_keep import settle_layers_to_keep
from .unknown_options import names_to_check, refuse_unknown_options
from .unread_options import warn_of_unread_options


def known_options(cfg, task, dataclass):
    """What fairseq gives to build_model, as a Namespace.

    Args:
        dataclass: of the options that the model has.

    Raises:
        ValueError: there is an option that nobody knows.
    """
    settle_layers_to_keep(cfg)
    refuse_unknown_options(names_to_check(cfg), task, dataclass)
    return Namespace(**OmegaConf.to_container(cfg, resolve=True)) if OmegaConf.is_config(cfg) else cfg


def settled(config, task):
    """A `TransformerRFAConfig` without anything left open, and the task ready for its model.

    Raises:
        ValueError: what it says makes no sense.
    """
    settle_directions(config)
    config.validate()
    warn_of_unread_options(config)
    rebuild_batches_each_epoch(task)
    return config
