"""The kinds of models that can be converted: each of fairseq's with its counterpart of this package."""

from typing import NamedTuple, Sequence

from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel

from ..model.config import RFA_OPTIONS
from ..model.language_model import TransformerRFALanguageModel
from ..model.language_model_config import LANGUAGE_MODEL_OPTIONS
from ..model.parameters import PLACES
from ..model.transformer import TransformerRFAModel


class Kind(NamedTuple):
    """Two models with the same parameters beside the attention."""

    plain: str
    """What fairseq calls its own"""
    ours: str
    models: dict[str, type[BaseFairseqModel]]
    """Of both names"""
    sides: Sequence[str]
    places: Sequence[str]
    """Some of `PLACES`"""
    options: Sequence
    """Fields of the options that ours has more"""


def _kind(plain, plain_model, ours, our_model, **more):
    return Kind(plain, ours, {plain: plain_model, ours: our_model}, **more)


TRANSLATION = _kind(
    "transformer",
    TransformerModel,
    "transformer_rfa",
    TransformerRFAModel,
    sides=("encoder", "decoder"),
    places=tuple(PLACES),
    options=RFA_OPTIONS,
)
LANGUAGE_MODEL = _kind(
    "transformer_lm",
    TransformerLanguageModel,
    "transformer_lm_rfa",
    TransformerRFALanguageModel,
    sides=("decoder",),
    places=("causal",),
    options=LANGUAGE_MODEL_OPTIONS,
)
KINDS = {name: kind for kind in (TRANSLATION, LANGUAGE_MODEL) for name in (kind.plain, kind.ours)}
"""By the name of each model."""
