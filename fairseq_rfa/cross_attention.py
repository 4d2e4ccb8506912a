"""Cross random feature attention as a fairseq module: the source is read once, whatever the beam.

The module sees (positions, B, embed_dim), the algebra of `linear_attention` sees (B, H, positions, width).
"""

from typing import Optional, Tuple

from torch import Tensor

from . import linear_attention
from .attention_base import IncrementalState, RandomFeatureAttention, blank_padding, reordered
from .encoding import Directions
from .linear_attention import State


class CrossRFA(RandomFeatureAttention):
    """Cross attention (eq. 5, algorithm 2).

    When decoding, the sums over the source are made once and stored once for each sentence: the hypotheses of a
    sentence are further rows of queries to the same sums.

    Args: those of `RandomFeatureAttention`.
    """

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
        need_weights = need_weights or need_head_weights
        directions = self.directions()
        phi_q = self.encode(self.q_proj(query), directions).phi
        if incremental_state is None or need_weights:
            phi_k, v = self._source_features(key, key_padding_mask, directions)
        if incremental_state is None:
            out = linear_attention.cross(phi_q, phi_k, v, floor=self.floor)
        else:
            state = self._source_state(key, key_padding_mask, directions, incremental_state)
            out = self._read_with_beams(phi_q, state)

        weights = None
        if need_weights:
            weights = linear_attention.cross_weights(phi_q, phi_k, floor=self.floor)
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(1)
        return self.join_heads(out), weights

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Hypothesis i becomes the former hypothesis new_order[i]; the identity copies nothing.

        Hypotheses move within their sentence, so the sums move only where sentences leave the batch. An order
        that mixes sentences is honoured by giving each hypothesis sums of its own.
        """
        buffer = self._get_input_buffer(incremental_state)
        if not buffer:
            return incremental_state
        beams, state = getattr(buffer, "beams", 1), State(**buffer)
        if beams > 1:
            parents = new_order.div(beams, rounding_mode="floor")
            if new_order.numel() % beams == 0 and _equal_in_groups(parents, beams, dim=0):
                new_order = parents[::beams]
            else:
                state = State(*(x.repeat_interleave(beams, dim=0) for x in state))
                beams = 1
        self._set_input_buffer(
            incremental_state, _SourceBuffer(reordered(state, new_order), beams)
        )
        return incremental_state

    def _source_features(
        self, key: Tensor, padding: Optional[Tensor], directions: Directions
    ) -> Tuple[Tensor, Tensor]:
        """phi_k (B, H, M, F) and v (B, H, M, d) of key (M, B, kdim)."""
        key, padding = blank_padding(key, padding)
        phi_k, log_factor, _ = self.encode(self.k_proj(key), directions, padding)
        if log_factor is not None:
            phi_k = linear_attention.with_factors(phi_k, log_factor)
        return phi_k, self.split_heads(self.v_proj(key))

    def _source_state(
        self,
        key: Tensor,
        padding: Optional[Tensor],
        directions: Directions,
        incremental_state: IncrementalState,
    ) -> State:
        """The sums over the source, one row for each sentence."""
        buffer = self._get_input_buffer(incremental_state)
        if not buffer:
            # The beam size is a wish of the last generator that had one; the rows themselves decide.
            beams = self.beam_size
            if not _equal_in_groups(key, beams, dim=1) or (
                padding is not None and not _equal_in_groups(padding, beams, dim=0)
            ):
                beams = 1
            key, padding = key[:, ::beams], None if padding is None else padding[::beams]
            phi_k, v = self._source_features(key, padding, directions)
            buffer = _SourceBuffer(linear_attention.summarize(phi_k, v), beams)
            self._set_input_buffer(incremental_state, buffer)
        return State(**buffer)

    def _read_with_beams(self, phi_q: Tensor, state: State) -> Tensor:
        """phi_q (sentences · beams, H, N, F), state of sentences → (sentences · beams, H, N, d)"""
        beams = phi_q.size(0) // state.ksum.size(0)
        if beams == 1:
            return linear_attention.read(phi_q, state, floor=self.floor)
        length = phi_q.size(2)
        rows = phi_q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)
        out = linear_attention.read(rows, state, floor=self.floor)
        return out.unflatten(2, (beams, length)).transpose(1, 2).flatten(0, 1)


class _SourceBuffer(dict):
    """The entries of a State, each row of which serves `beams` neighbouring hypotheses."""

    def __init__(self, state: State, beams: int):
        super().__init__(state._asdict())
        self.beams = beams


def _equal_in_groups(x: Tensor, size: int, dim: int) -> bool:
    """Whether each run of `size` neighbours along `dim` holds one value."""
    if size == 1:
        return True
    if x.size(dim) % size:
        return False
    groups = x.unflatten(dim, (-1, size))
    return bool(groups.eq(groups.narrow(dim + 1, 0, 1)).all())
