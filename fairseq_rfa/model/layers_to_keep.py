"""--encoder-layers-to-keep and --decoder-layers-to-keep: a model with some of the layers of a checkpoint.

fairseq leaves the others out when it loads the checkpoint, and gives those that stay new numbers.
"""

import re
from contextlib import nullcontext

from omegaconf import OmegaConf, open_dict

SIDES = ("encoder", "decoder")


def kept_layers(side, value):
    """Numbers of the layers that stay, in their order.

    Args:
        value: such as "0,2" or [0, 2]; nothing for all layers.

    Raises:
        ValueError: something else.
    """
    numbers = value.split(",") if isinstance(value, str) else value or ()
    try:
        kept = sorted({int(number) for number in numbers})
    except (TypeError, ValueError):
        kept = [-1]
    if kept and kept[0] < 0 or len(kept) != len(numbers):
        raise ValueError(f"--{side}-layers-to-keep is {value!r}; use different numbers of layers from 0, such as 0,2")
    return kept


def settle_layers_to_keep(cfg):
    """Bring both options into the form that fairseq reads.

    Its parser makes a list of the flag, and all else of it splits a text. Where one side is given, it leaves out all
    layers of the other, if the model has one. As in fairseq's own model, a checkpoint that is written later says how
    many layers there are.

    Args:
        cfg: what fairseq gives to build_model; it is changed.
    """
    sides = [side for side in SIDES if hasattr(cfg, f"{side}_layers")]
    kept = {side: kept_layers(side, getattr(cfg, f"{side}_layers_to_keep", None)) for side in sides}
    if not any(kept.values()):
        return
    with open_dict(cfg) if OmegaConf.is_config(cfg) else nullcontext():
        for side, layers in kept.items():
            layers = layers or range(getattr(cfg, f"{side}_layers"))
            setattr(cfg, f"{side}_layers_to_keep", ",".join(map(str, layers)))
            setattr(cfg, f"{side}_layers", len(layers))


def names_before(own, side, prefix, layers_to_keep):
    """Parameters by the names that they have in the checkpoint, before fairseq leaves layers out.

    Args:
        own: parameters of encoder or decoder by name.
        side: which of them it is.
        prefix: how these names begin.
    """
    kept = kept_layers(side, layers_to_keep)
    number = re.compile(re.escape(f"{prefix}layers.") + r"(\d+)")
    return {number.sub(lambda found: f"{prefix}layers.{kept[int(found[1])]}", name): own[name] for name in own}
