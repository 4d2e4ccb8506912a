"""Which parameters of a model belong to which attention: the one table that loading and converting follow."""

import re
from typing import NamedTuple

from ..functional.encoding import FEATURE_MAPS


class Place(NamedTuple):
    """Where attentions of a model stand, one in each layer of a side."""

    side: str
    """"encoder" or "decoder" """
    attention: str
    """What its layers call it."""


PLACES = {
    "causal": Place("decoder", "self_attn"),
    "cross": Place("decoder", "encoder_attn"),
    "encoder": Place("encoder", "self_attn"),
}
OF_DECODER = ("causal", "cross")
"""The places that have random features where nobody says otherwise."""

SIGMA = (".sigma",)
GATE, SENTENCE_GATE = (
    tuple(f".{projection}.{name}" for name in ("weight", "bias")) for projection in ("gate_proj", "sentence_gate_proj")
)
MAPS = tuple(
    tuple(f".{name}" for name in known.parameters.values()) for known in FEATURE_MAPS.values() if known.parameters
)
"""Of each map that has parameters."""
GROUPS = {"causal": (SIGMA, GATE, SENTENCE_GATE, *MAPS), "cross": (SIGMA, *MAPS), "encoder": (SIGMA, *MAPS)}
"""Endings of names that an attention has together or not at all; every random feature attention has the first."""
RFA_PARAMETERS = SIGMA + GATE + SENTENCE_GATE + sum(MAPS, ())
"""Endings of the names that only random feature attention has. All other names are those of fairseq's Transformer."""

PROJECTIONS = tuple(f"{{attention}}.{letter}_proj." for letter in ("q", "k", "v", "out"))
NAMES_OF_RESET = {
    "none": dict.fromkeys(PLACES, ()),
    "projections": dict.fromkeys(PLACES, PROJECTIONS),
    "all": {
        "causal": ("{attention}.", "{attention}_layer_norm.", "attn_ln.", "c_attn"),
        "cross": ("{attention}.", "{attention}_layer_norm."),
        "encoder": ("{attention}.", "{attention}_layer_norm."),
    },
}
"""How the names begin, within a layer, that --reset-attention draws anew in a place."""


class Exchanged(NamedTuple):
    dropped: list
    added: list


def attentions_of(model, place):
    """The attention of each layer in a place, in their order; None where a layer has none."""
    side, attention = PLACES[place]
    return [getattr(layer, attention) for layer in getattr(model, side).layers]


def exchange(state_dict, own, side, prefix):
    """Drop what another attention left in a state dict, and add the initial values of what this one has beside it.

    Groups of parameters change, in all layers of a place. What is of no such group stays, for torch to refuse.

    Args:
        state_dict: changed in place.
        own: by name, all that this encoder or decoder has of `RFA_PARAMETERS`.
        side: "encoder" or "decoder".
        prefix: how the names of its parameters begin, with a point at the end, or nothing.

    Returns:
        the names of both.

    Raises:
        RuntimeError: a part of a group is missing, so the checkpoint is damaged; as torch raises for missing names.
    """
    dropped, added = [], []
    for place in (place for place in PLACES if PLACES[place].side == side):
        attentions = _attentions(state_dict, prefix, PLACES[place].attention)
        groups = [[name + ending for name in attentions for ending in group] for group in GROUPS[place]]
        _refuse_damage(state_dict, groups)
        for names in groups:
            if own.keys().isdisjoint(names):
                dropped += [name for name in names if name in state_dict]
            else:
                added += [name for name in names if name in own and name not in state_dict]
    for name in dropped:
        del state_dict[name]
    for name in added:
        state_dict[name] = own[name].clone()
    return Exchanged(dropped, added)


def _attentions(state_dict, prefix, attention):
    """Names of the attentions of a place in all layers, by the parameters that softmax has as well."""
    found = re.compile(re.escape(f"{prefix}layers.") + rf"\d+\.{attention}(?=\.)")
    matches = [found.match(name) for name in state_dict if not name.endswith(RFA_PARAMETERS)]
    return list(dict.fromkeys(match[0] for match in matches if match))


def _refuse_damage(state_dict, groups):
    some = [any(name in state_dict for name in names) for names in groups]
    some[0] = any(some)
    missing = [name for names, wanted in zip(groups, some) if wanted for name in names if name not in state_dict]
    if missing:
        raise RuntimeError(
            f"the checkpoint lacks {', '.join(missing)}, and has other parameters of the same attention; "
            "it is damaged, use a whole one"
        )


def own_parameters(attention):
    """What a random feature attention trains beside the parameters that it shares with softmax, in their order."""
    return [
        parameter
        for name, parameter in attention.named_parameters()
        if parameter.requires_grad and f".{name}".endswith(RFA_PARAMETERS)
    ]


def names_to_reset(state_dict, reset, places):
    """Names of a model's state dict that `reset`, a key of `NAMES_OF_RESET`, means in these places."""
    found = []
    for place in places:
        side, attention = PLACES[place]
        begins = tuple(begin.format(attention=attention) for begin in NAMES_OF_RESET[reset][place])
        # decoder.layers.0.self_attn.q_proj.weight: what a layer has, from the fourth part on
        found += [
            name
            for name in state_dict
            if name.startswith(f"{side}.layers.") and name.split(".", 3)[-1].startswith(begins)
        ]
    return found
