"""Random feature attention of an encoder as a fairseq module: cross attention of a sentence with itself."""

from typing import Optional, Tuple

from torch import Tensor

from .base import IncrementalState, blank_padding
from .bidirectional import BidirectionalRFA
from .exact import exact_attention


class EncoderRFA(BidirectionalRFA):
    """Self-attention in both directions (eq. 5, whose queries and keys are of one sentence), without padding.

    Args: those of `RandomFeatureAttention`.
    """

    place = "encoder"

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, self_attention=True, **options)

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor] = None,
        value: Optional[Tensor] = None,
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        need_weights: bool = False,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, None]:
        """Attend from each position of query (N, B, embed_dim) to all of them.

        key and value are query, and an encoder reads its sentence at once, so the arguments key, value, static_kv
        and incremental_state of fairseq's interface change nothing. No weights are returned.

        Args:
            key_padding_mask: (B, N), True at padding. What stands there changes nothing; the output there is that of
                an input of zeros.

        Raises:
            ValueError: attn_mask is given.
        """
        if attn_mask is not None:
            raise ValueError(
                f"attn_mask of {tuple(attn_mask.shape)} hides keys from single positions, which sums over all keys "
                "cannot; use --encoder-attention softmax"
            )
        if self.training and self.is_exact_in_training:
            return exact_attention(self, query, query, key_padding_mask, causal=False), None
        query, padding = blank_padding(query, key_padding_mask)
        return self.attend(query, query, padding, query_padding=padding), None
