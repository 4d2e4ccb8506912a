"""Which parameters of a decoder belong to which attention: the one table that loading and converting follow."""

from typing import NamedTuple

PLACES = {"causal": "self_attn", "cross": "encoder_attn"}
"""What a layer of the decoder calls its two attentions."""

RFA_PARAMETERS = (
    ".sigma",
    ".gate_proj.weight",
    ".gate_proj.bias",
    ".feature_weight",
    ".feature_bias",
)
"""Endings of the names that only random feature attention has. All other names are those of fairseq's Transformer."""

PROJECTIONS = tuple(f"{{attention}}.{letter}_proj." for letter in ("q", "k", "v", "out"))
NAMES_OF_RESET = {
    "none": {"causal": (), "cross": ()},
    "projections": {"causal": PROJECTIONS, "cross": PROJECTIONS},
    "all": {
        "causal": ("{attention}.", "{attention}_layer_norm.", "attn_ln.", "c_attn"),
        "cross": ("{attention}.", "{attention}_layer_norm."),
    },
}
"""How the names begin, within a layer, that --reset-attention draws anew in a place."""


class Exchanged(NamedTuple):
    dropped: list
    added: list


def exchange(state_dict, own, decoder):
    """Drop what another attention left in a state dict, and add the initial values of what this one has beside it.

    Args:
        state_dict: changed in place.
        own: by name, all that this decoder has of `RFA_PARAMETERS`.
        decoder: how the names of its parameters begin, with a point at the end, or nothing.

    Returns:
        the names of both.
    """
    dropped = [
        name
        for name in state_dict
        if name.startswith(f"{decoder}layers.") and name.endswith(RFA_PARAMETERS) and name not in own
    ]
    added = [name for name in own if name not in state_dict]
    for name in dropped:
        del state_dict[name]
    for name in added:
        state_dict[name] = own[name].clone()
    return Exchanged(dropped, added)


def names_to_reset(state_dict, reset, places):
    """Names of a model's state dict that `reset`, a key of `NAMES_OF_RESET`, means in these places."""
    begins = tuple(
        begin.format(attention=PLACES[place]) for place in places for begin in NAMES_OF_RESET[reset][place]
    )
    # decoder.layers.0.self_attn.q_proj.weight: what a layer has, from the fourth part on
    return [
        name
        for name in state_dict
        if name.startswith("decoder.layers.") and name.split(".", 3)[-1].startswith(begins)
    ]
