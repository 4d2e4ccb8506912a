"""Which dropouts --retain-dropout-modules means. fairseq names a dropout after the class that made it."""

import logging
from typing import List, Sequence, Union

from fairseq.modules import FairseqDropout
from torch import nn

logger = logging.getLogger(__name__)

FAIRSEQ_NAMES = {
    "TransformerRFAEncoder": "TransformerEncoder",
    "TransformerRFADecoder": "TransformerDecoder",
    "TransformerRFAEncoderLayer": "TransformerEncoderLayerBase",
    "TransformerRFADecoderLayer": "TransformerDecoderLayerBase",
    "ProjectedAttention": "MultiheadAttention",
    "CausalRFA": "MultiheadAttention",
    "CrossRFA": "MultiheadAttention",
    "EncoderRFA": "MultiheadAttention",
}
"""What the dropouts of our classes are called in fairseq's transformer."""


def retained_names(model: nn.Module, wanted: Union[str, Sequence[str]]) -> List[str]:
    """The names of the model's dropouts that stay on: those that are wanted by this name or by that of fairseq.

    Args:
        wanted: --retain-dropout-modules. On the command line it is a text that names are looked for in.
    """
    names = {module.module_name for module in model.modules() if isinstance(module, FairseqDropout)}
    retained = [name for name in sorted(names) if name in wanted or _of_fairseq(name) in wanted]
    known = sorted(set(map(_of_fairseq, names)))
    if isinstance(wanted, str):
        unknown = [] if retained else [wanted]
    else:
        unknown = [name for name in wanted if name not in names and name not in known]
    if unknown:
        logger.warning(
            f"--retain-dropout-modules: this model has no dropout of {', '.join(map(repr, unknown))}; "
            f"use {', '.join(known)}"
        )
    return retained


def _of_fairseq(name: str) -> str:
    return FAIRSEQ_NAMES.get(name, name)
