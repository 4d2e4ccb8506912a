"""Options that the chosen attention does not read are warned of."""

import logging

from ..functional.encoding import FEATURE_MAPS
from .config import RFA_OPTIONS
from .directions import SIDES, default_directions, head_width
from .language_model_config import DecoderAloneConfig

logger = logging.getLogger(__name__)


def warn_of_unread_options(config):
    """One command line may serve several attentions, and an override changes that of a checkpoint: so no refusal."""
    for flag, reason in unread_options(config):
        logger.warning(f"{flag} changes nothing {reason}; leave it out")


def unread_options(config):
    """Flags of random feature attention that are not at their defaults and that this combination does not read.

    Args:
        config: a `TransformerRFAConfig` that makes sense.

    Yields:
        the flag with its value, and why.
    """
    settled = default_directions(config)
    for option in RFA_OPTIONS:
        value = getattr(config, option.name)
        reasons = [reason for need in NEEDS.get(option.name, ()) if (reason := need(config))]
        if reasons and value != settled.get(option.name, option.default):
            yield _as_written(option.name, value), reasons[0]


def _as_written(name, value):
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"


# Each says why what an option needs is not there, or nothing.


def _causal(config):
    return "with --causal-attention softmax" if config.causal_attention == "softmax" else None


def _cross(config):
    if config.no_cross_attention:
        return "with --no-cross-attention"
    return "with --cross-attention softmax" if config.cross_attention == "softmax" else None


def _encoder(config):
    return "with --encoder-attention softmax" if config.encoder_attention == "softmax" else None


def _features(config):
    if _has_causal_alone(config):
        return _causal(config)
    if not (_causal(config) and _cross(config) and _encoder(config)):
        return None
    return f"{_causal(config)} and {_cross(config)}"


def _has_causal_alone(config):
    return isinstance(config, DecoderAloneConfig)


def _gate(config):
    return None if config.rfa_gate else "without --rfa-gate"


def _sentence_gate(config):
    return None if config.rfa_sentence_gate else "without --rfa-sentence-gate"


def _denominator_without_gate(config):
    if _has_causal_alone(config):
        return _causal(config) or config.rfa_gate and "with --rfa-gate" or None
    if not (_encoder(config) and _cross(config)):
        return None
    return _causal(config) or config.rfa_gate and f"with --rfa-gate and {_cross(config)}" or None


def _sigma_of_all_but_cross(config):
    if config.rfa_cross_sigma_init is None or not _causal(config) or not _encoder(config):
        return None
    return f"{_causal(config)} and --rfa-cross-sigma-init"


def _pool(config):
    """A map that starts from the identity takes from the pool what goes beyond it."""
    if not FEATURE_MAPS[config.rfa_feature_map].square:
        return _matrices(config)
    softmax = {"rfa_causal_dim": _causal, "rfa_cross_dim": _cross, "rfa_encoder_dim": _encoder}
    for name, side in SIDES.items():
        if not softmax[name](config) and getattr(config, name) > head_width(config, side):
            return None
    return f"with --rfa-feature-map {config.rfa_feature_map} while no head has more directions than entries"


def _of_map(has):
    def need(config):
        return None if has(FEATURE_MAPS[config.rfa_feature_map]) else f"with --rfa-feature-map {config.rfa_feature_map}"

    return need


_matrices = _of_map(lambda known: known.source is not None)
_drawn_matrices = _of_map(lambda known: known.source == "pool")
_unit_length = _of_map(lambda known: known.unit_length)
_kernel = _of_map(lambda known: known.kernel is not None)
_floor = _of_map(lambda known: known.has_floor)

NEEDS = {
    "rfa_feature_map": (_features,),
    "rfa_causal_dim": (_causal, _matrices),
    "rfa_cross_dim": (_cross, _matrices),
    "rfa_encoder_dim": (_encoder, _matrices),
    "rfa_gate": (_causal,),
    "rfa_gate_bias": (_causal, _gate),
    "rfa_sentence_gate": (_causal,),
    "rfa_sentence_gate_bias": (_causal, _sentence_gate),
    "rfa_num_matrices": (_features, _pool),
    "rfa_seed": (_features, _pool),
    "rfa_orthogonal": (_features, _drawn_matrices),
    "rfa_fixed_matrices": (_features, _drawn_matrices),
    "rfa_exact_updates": (_features, _kernel),
    "rfa_sigma_init": (_features, _sigma_of_all_but_cross),
    "rfa_cross_sigma_init": (_cross,),
    "rfa_fixed_sigma": (_features,),
    "rfa_unnormalized": (_features, _unit_length),
    "rfa_local_window": (_causal, _kernel),
    "rfa_denominator_floor": (_denominator_without_gate, _floor),
    "rfa_gate_denominator_floor": (_causal, _gate, _floor),
    "rfa_chunk_size": (_causal,),
    "rfa_monitor": (_features,),
    "decoding_precision": (),
}
"""What each option needs to be read."""
