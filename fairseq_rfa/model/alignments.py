"""Trainings that learn alignments, which they do from the weights of cross attention."""

from argparse import Namespace
from typing import Union

from omegaconf import DictConfig, OmegaConf

CRITERION = "label_smoothed_cross_entropy_with_alignment"


def refuse_alignments(args: Union[Namespace, DictConfig]) -> None:
    """On the command line and in a configuration file; what a command line has trained may be used in any way.

    Args:
        args: what fairseq gives to an architecture, with the default values filled in.

    Raises:
        ValueError: a training that reads weights which its cross attention does not give.
    """
    if args.cross_attention == "rfa" and _learns_alignments(args):
        raise ValueError(
            f"--criterion {CRITERION} --load-alignments learns from the weights of cross attention, and random "
            "feature attention gives none in training; use --cross-attention softmax, or drop --load-alignments"
        )


def _learns_alignments(args: Union[Namespace, DictConfig]) -> bool:
    if OmegaConf.is_config(args):
        try:
            criterion = OmegaConf.select(args, "..criterion._name")
            return criterion == CRITERION and bool(OmegaConf.select(args, "..task.load_alignments"))
        except KeyError:
            return False  # a configuration of the model alone
    is_command_line = not hasattr(args, "_name")
    return is_command_line and getattr(args, "criterion", None) == CRITERION and getattr(args, "load_alignments", False)
