"""Random feature attention as fairseq modules."""

from .causal_attention import CausalRFA
from .cross_attention import CrossRFA

__all__ = ["CausalRFA", "CrossRFA"]
