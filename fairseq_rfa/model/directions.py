"""How many directions a head has where nobody says: in proportion to its width."""

from ..functional.encoding import FEATURE_MAPS


def settle_directions(options):
    """Give the numbers of directions that were left open: they are in proportion to the width of a head.

    The paper has d in causal and 2d in cross attention.

    Args:
        options: of a model whose other options are complete; changed in place.
    """
    for name, number in default_directions(options).items():
        if getattr(options, name, None) is None:
            setattr(options, name, number)


def default_directions(options):
    """By name, the numbers of directions where none is given; empty where a head has no whole width."""
    feature_map = FEATURE_MAPS.get(options.rfa_feature_map)
    width, heads = options.decoder_embed_dim, options.decoder_attention_heads
    if feature_map is None or not isinstance(heads, int) or heads < 1 or width % heads:
        return {}
    head_dim = width // heads
    return {"rfa_causal_dim": head_dim, "rfa_cross_dim": head_dim if feature_map.square else 2 * head_dim}
