"""Cross random feature attention as a fairseq module: the source is read once, whatever the beam.

The module sees (positions, B, embed_dim), the algebra of `linear_attention` sees (B, H, positions, width).
"""

from typing import Dict, Optional, Tuple

import torch
from torch import Tensor

from ..functional import linear_attention
from ..functional.decoding import divide, read_pairs, read_sums, with_one
from ..functional.encoding import Directions
from ..functional.precision import full_precision, wide
from .base import IncrementalState, blank_padding, in_groups
from .bidirectional import BidirectionalRFA
from .exact import exact_attention
from .order import reordered


class CrossRFA(BidirectionalRFA):
    """Cross attention (eq. 5, algorithm 2).

    When decoding, the sums over the source are made once and stored once for each sentence: the hypotheses of a
    sentence are further rows of queries to the same sums.

    What training reports counts the queries at padding as well, which nobody tells this attention of.

    Args: those of `RandomFeatureAttention`.
    """

    place = "cross"

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, encoder_decoder_attention=True, **options)

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor] = None,
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from query (N, B, embed_dim) to the encoder's output key (M, B, kdim).

        value is key, so the argument changes nothing; nor do static_kv, attn_mask and before_softmax.

        Args:
            key_padding_mask: (B, M), True at padding.
            incremental_state: the sums over key are taken from it, or made and kept there.
            need_weights: return weights (B, N, M) averaged over heads.
            need_head_weights: return weights of each head, (H, B, N, M).
        """
        if self.training and self.is_exact_in_training:
            return exact_attention(self, query, key, key_padding_mask, causal=False), None
        need_weights = need_weights or need_head_weights
        if incremental_state is None and not need_weights:
            return self.attend(query, *blank_padding(key, key_padding_mask)), None
        source = self.stored_state(incremental_state, Source)
        directions = source.directions if source else self.directions()
        phi_q = self.encode(self.q_proj(query), directions, "query").phi
        if incremental_state is None or need_weights:
            phi_k, v = self._source_features(key, key_padding_mask, directions)
        if incremental_state is None:
            out = linear_attention.cross(phi_q, phi_k, v, floor=self.floor, observe=self.observer())
        else:
            if source is None:
                source = self._new_source(key, key_padding_mask, directions)
                self._set_input_buffer(incremental_state, source)
            out = self._read(phi_q, source)

        weights = None
        if need_weights:
            weights = linear_attention.cross_weights(phi_q, phi_k, floor=self.floor)
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(1)
        return self.join_heads(out, dtype=query.dtype), weights

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Hypothesis i becomes the former hypothesis new_order[i]; the identity copies nothing.

        Hypotheses move within their sentence, so the sums move only where sentences leave the batch. An order
        that mixes sentences is honoured by giving each hypothesis sums of its own.
        """
        source = self.stored_state(incremental_state, Source)
        if source is not None:
            self._set_input_buffer(incremental_state, source.reordered(new_order))
        return incremental_state

    def _source_features(
        self, key: Tensor, padding: Optional[Tensor], directions: Directions
    ) -> Tuple[Tensor, Tensor]:
        """phi_k (B, H, M, F) and v (B, H, M, d) of key (M, B, kdim)."""
        key, padding = blank_padding(key, padding)
        phi_k = self.key_features(self.k_proj(key), padding, directions)
        return phi_k, self.split_heads(self.v_proj(key))

    def _new_source(
        self, key: Tensor, padding: Optional[Tensor], directions: Directions
    ) -> "Source":
        # The beam size is a wish of the last generator that had one; the rows themselves decide.
        beams = self.beam_size
        if not _equal_in_groups(key, beams, dim=1) or (
            padding is not None and not _equal_in_groups(padding, beams, dim=0)
        ):
            beams = 1
        key, padding = key[:, ::beams], None if padding is None else padding[::beams]
        size = self.group_size(key.size(1), key.size(0), directions)
        groups = [
            _pairs_or_sums(*self._source_features(*group, directions))
            for group in in_groups(size, (key, 1), (padding, 0))
        ]
        tensors = {name: torch.cat([group[name] for group in groups]) for name in groups[0]}
        return Source(tensors, beams, directions)

    @full_precision
    def _read(self, phi_q: Tensor, source: "Source") -> Tensor:
        """phi_q (sentences · beams, H, N, F) in float32 or wider, source of sentences → (sentences · beams, H, N, d)"""
        beams = phi_q.size(0) // max(1, source.num_rows)
        length = phi_q.size(2)
        if beams > 1:
            phi_q = phi_q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)
        if "phi" in source:
            result = read_pairs(phi_q, source["phi"], source["values"])
        else:
            result = read_sums(phi_q, source["sums"])
        out = divide(result, self.floor)
        if beams > 1:
            out = out.unflatten(2, (beams, length)).transpose(1, 2).flatten(0, 1)
        return out


class Source(dict):
    """What decoding keeps of the source, each row for `beams` neighbouring hypotheses.

    The sums (B, H, d + 1, F), which are Sᵀ and below it z or, where that is less to read, phi (B, H, M, F) and values
    (B, H, M, d + 1), which are v with a 1, themselves.
    """

    def __init__(self, tensors: Dict[str, Tensor], beams: int, directions: Directions):
        super().__init__(tensors)
        self.beams = beams
        self.directions = directions

    @property
    def num_rows(self) -> int:
        return next(iter(self.values())).size(0)

    def reordered(self, new_order: Tensor) -> "Source":
        tensors, beams = dict(self), self.beams
        if beams > 1:
            parents = new_order.div(beams, rounding_mode="floor")
            if new_order.numel() % beams == 0 and _equal_in_groups(parents, beams, dim=0):
                new_order = parents[::beams]
            else:
                tensors = {
                    name: x.repeat_interleave(beams, dim=0) for name, x in tensors.items()
                }
                beams = 1
        return Source(reordered(tensors, new_order), beams, self.directions)


@full_precision
def _pairs_or_sums(phi_k: Tensor, v: Tensor) -> Dict[str, Tensor]:
    """What a `Source` holds, in float32 or wider."""
    phi_k, values = wide(phi_k), with_one(wide(v))
    (source_length, width), features = v.shape[-2:], phi_k.size(-1)
    if source_length * (features + width) <= features * width:
        return {"phi": phi_k.contiguous(), "values": values}
    return {"sums": values.transpose(-1, -2) @ phi_k}


def _equal_in_groups(x: Tensor, size: int, dim: int) -> bool:
    """Whether each run of `size` neighbours along `dim` holds one value."""
    if size == 1:
        return True
    if x.size(dim) % size:
        return False
    groups = x.unflatten(dim, (-1, size))
    return bool(groups.eq(groups.narrow(dim + 1, 0, 1)).all())
