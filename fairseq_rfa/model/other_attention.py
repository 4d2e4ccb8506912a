"""A checkpoint of the other attention loads: what this one lacks is dropped, and what that one lacks starts anew."""

import logging

from .layers_to_keep import names_before
from .parameters import RFA_PARAMETERS, exchange

logger = logging.getLogger(__name__)


def let_other_attention_load(part, side, state_dict, name):
    """Called as the part's `upgrade_state_dict_named`; one line of the log names what changes.

    Args:
        part: encoder or decoder.
        side: which of them it is.
        state_dict: of a checkpoint; it is changed in place, and returned.
        name: how its names of the part begin.
    """
    prefix = f"{name}." if name else ""
    own = {f"{prefix}{key}": value for key, value in part.state_dict().items() if key.endswith(RFA_PARAMETERS)}
    layers_to_keep = getattr(part.cfg, side).layers_to_keep
    if layers_to_keep:
        own = names_before(own, side, prefix, layers_to_keep)
    dropped, added = exchange(state_dict, own, side, prefix)
    if dropped or added:
        logger.info(
            f"checkpoint of another attention: dropped {', '.join(dropped) or 'nothing'}; "
            f"started from initial values {', '.join(added) or 'nothing'}"
        )
    return state_dict
