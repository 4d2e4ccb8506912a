"""How many directions a head has where nobody says."""

from ..functional.encoding import FEATURE_MAPS

NUMBERS = {"rfa_causal_dim": 64, "rfa_cross_dim": 128}
"""Those of the paper, whose heads are 64 wide; whether narrower heads do with less has not been measured."""


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
    width, heads = options.decoder_embed_dim, options.decoder_attention_heads
    if feature_map is None or not feature_map.square or not isinstance(heads, int) or heads < 1 or width % heads:
        return NUMBERS
    return dict.fromkeys(NUMBERS, width // heads)
