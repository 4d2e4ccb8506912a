"""What an encoder or a decoder with random feature attention cannot be."""

from ..functional.encoding import FEATURE_MAPS
from .directions import head_width
from .layers_to_keep import kept_layers

SOFTMAX = {
    "decoder": "--causal-attention softmax --cross-attention softmax",
    "encoder": "--encoder-attention softmax",
}
"""How a side does without random features."""


def validate_side(config, side):
    """Refuse what makes no sense, in one line that names the remedy.

    Args:
        config: a `TransformerRFAConfig`.
        side: "encoder" or "decoder", which has random feature attention.

    Raises:
        ValueError
    """
    options = getattr(config, side)
    if head_width(config, side) is None:
        raise ValueError(
            f"--{side}-attention-heads is {options.attention_heads!r}; "
            f"use a divisor of --{side}-embed-dim {options.embed_dim}"
        )
    _validate_layers_to_keep(config, side)
    if side == "decoder" and config.cross_self_attention:
        raise ValueError(
            f"--cross-self-attention joins source and prefix in one softmax; use it with {SOFTMAX[side]}"
        )
    if config.encoder.xformers_att_config or side == "decoder" and config.decoder.xformers_att_config:
        raise ValueError(
            f"xFormers replaces softmax attention, which this {side} lacks; drop the xformers options or use "
            f"{SOFTMAX[side]}"
        )


def _validate_layers_to_keep(config, side):
    value = getattr(config, side).layers_to_keep
    kept = kept_layers(side, value)
    moves = kept != list(range(len(kept)))
    if moves and FEATURE_MAPS[config.rfa_feature_map].source == "pool":
        free = [name for name, known in FEATURE_MAPS.items() if known.source != "pool"]
        raise ValueError(
            f"--{side}-layers-to-keep is {value!r}; with --rfa-feature-map {config.rfa_feature_map} a layer that "
            f"moves would read through the random matrices of another. Keep the first layers, or use one of the maps "
            f"{', '.join(free)}"
        )
