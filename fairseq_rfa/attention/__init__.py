"""Random feature attention as fairseq modules."""

from .causal import CausalRFA
from .cross import CrossRFA
from .encoder import EncoderRFA

__all__ = ["CausalRFA", "CrossRFA", "EncoderRFA"]
