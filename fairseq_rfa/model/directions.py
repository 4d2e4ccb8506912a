"""How many directions a head has where nobody says."""

from ..functional.encoding import FEATURE_MAPS

NUMBERS = {"rfa_causal_dim": 64, "rfa_cross_dim": 128, "rfa_encoder_dim": 128}
"""Those of the paper, whose heads are 64 wide; whether narrower heads do with less has not been measured. An encoder
has as many as cross attention, which also reads a whole source."""
SIDES = {"rfa_causal_dim": "decoder", "rfa_cross_dim": "decoder", "rfa_encoder_dim": "encoder"}
"""Whose heads they are of."""


def settle_directions(options):
    """Give the numbers of directions that were left open, of the places that the model has.

    Args:
        options: of a model whose other options are complete; changed in place.
    """
    for name, number in default_directions(options).items():
        if hasattr(options, name) and getattr(options, name) is None:
            setattr(options, name, number)


def default_directions(options):
    """By name, the numbers of directions where none is given."""
    feature_map = FEATURE_MAPS.get(options.rfa_feature_map)
    if feature_map is None or not feature_map.square:
        return NUMBERS
    return {name: head_width(options, side) or NUMBERS[name] for name, side in SIDES.items()}


def head_width(options, side):
    """Of the heads of encoder or decoder; None where its options make no sense, or there is no such side."""
    width, heads = (getattr(options, f"{side}_{name}", None) for name in ("embed_dim", "attention_heads"))
    return None if not isinstance(heads, int) or heads < 1 or width % heads else width // heads
