"""Random feature attention as fairseq modules."""

from .causal import CausalRFA
from .cross import CrossRFA

__all__ = ["CausalRFA", "CrossRFA"]
