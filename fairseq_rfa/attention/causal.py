"""Causal random feature attention as a fairseq module: gate, local window, decoding step by step.

The module sees (positions, B, embed_dim), the algebra of `linear_attention` sees (B, H, positions, width).
"""

import copy
from itertools import repeat
from typing import Optional, Tuple

import torch
from torch import Tensor

from ..functional import linear_attention, local_window
from ..functional.encoding import Directions
from ..functional.precision import wide
from ..functional.window_state import Window
from .base import IncrementalState, RandomFeatureAttention, blank_padding, in_groups
from .carried_state import CarriedState
from .decoding_state import DecodingState, Totals, empty_state, state_after
from .exact import exact_attention
from .gate import gate_projection, logits_of
from .packed_linear import join_layers
from .separators import Separators


class CausalRFA(RandomFeatureAttention):
    """Causal self-attention over the prefix (eq. 6, algorithm 1), with the gate of eq. 7 or one of sentences if wanted.

    Args:
        gate: g_t = sigmoid(w_g·x_t + b_g), one scalar for each head.
        sentence_gate: in its place: once a separator has been read, the sums are multiplied by the g_t of its input;
            `separators` says where they stand.
        gate_bias: where b_g starts.
        chunk_size: C of `linear_attention.causal`.
        local_window: W of `local_window`, the number of newest keys that meet the exact kernel; 0 for none.
        options: those of `RandomFeatureAttention`.
    """

    place = "causal"
    separators: Optional[Separators] = None
    """Where separators stand in the current call; a sentence gate needs it."""

    __jit_unused_properties__ = ("local_window",)
    """What torch.jit.trace would compile otherwise."""

    def __init__(
        self,
        *arguments,
        gate: bool = False,
        sentence_gate: bool = False,
        gate_bias: float = 0.0,
        chunk_size: int = 64,
        local_window: int = 0,
        **options,
    ):
        super().__init__(*arguments, self_attention=True, **options)
        self.chunk_size = chunk_size
        self.window: Optional[Window] = None
        if local_window:
            self.window = Window(local_window, self.feature_map.kernel, self.feature_map.exponential)
        self.sentence_gate = sentence_gate
        self.gate_proj = self.sentence_gate_proj = None
        if sentence_gate:
            self.sentence_gate_proj = gate_projection(self.embed_dim, self.num_heads, gate_bias)
        elif gate:
            self.gate_proj = gate_projection(self.embed_dim, self.num_heads, gate_bias)

    @property
    def local_window(self) -> int:
        return self.window.size if self.window else 0

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
        carried: Optional[CarriedState] = None,
    ) -> Tuple[Tensor, None]:
        """Attend from each position of query (N, B, embed_dim) to itself and those before it.

        key and value are query, and the mask is always causal, so the arguments key, value, static_kv and
        attn_mask of fairseq's interface change nothing. No weights are returned.

        Args:
            key_padding_mask: (B, N), True at padding.
            incremental_state: the positions follow those of earlier calls.
            carried: the positions follow those before them in a text, and leave what the next segment needs.
        """
        if self.training and self.is_exact_in_training:
            return exact_attention(self, query, query, key_padding_mask, causal=True), None
        query, padding = blank_padding(query, key_padding_mask)
        gate_logits = self._gate_logits(query, padding)
        if incremental_state is None:
            return self._attend_in_groups(query, gate_logits, padding, carried), None
        state = self._get_state(incremental_state)
        if self._is_step(query, padding):
            out, state = self._step(query.squeeze(0), gate_logits, padding, state)
        else:
            out, state = self._attend_after(query, gate_logits, padding, state)
        self._set_input_buffer(incremental_state, state)
        return self.join_heads(out, dtype=query.dtype), None

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Row i of the state becomes the former row new_order[i]; the identity copies nothing."""
        state = self._get_state(incremental_state)
        if state is not None:
            state.reorder(new_order)
        return incremental_state

    def _gate_logits(self, query: Tensor, padding: Optional[Tensor]) -> Optional[Tensor]:
        """(B, H, N), so great that the gate is 1 at padding, and with a sentence gate wherever no separator stands."""
        if self.sentence_gate:
            return logits_of(self.sentence_gate_proj, query, ~self.separators.places(query.size(1), query.size(0)))
        return None if self.gate_proj is None else logits_of(self.gate_proj, query, padding)

    def _get_state(self, incremental_state: IncrementalState) -> Optional[DecodingState]:
        state = self.stored_state(incremental_state, DecodingState)
        if state is not None and state.is_frozen():
            state = copy.deepcopy(state)
            self._set_input_buffer(incremental_state, state)
        return state

    def _is_step(self, query: Tensor, padding: Optional[Tensor]) -> bool:
        """Whether this is one position, which the state takes as it is; a window counts keys without padding."""
        return query.size(0) == 1 and not torch.is_grad_enabled() and (self.window is None or padding is None)

    def _attend_in_groups(
        self,
        query: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        carried: Optional[CarriedState] = None,
    ) -> Tensor:
        """All positions at once, (N, B, embed_dim)."""
        directions = self.directions()
        size = self.group_size(query.size(1), 2 * query.size(0), directions)
        projected = ((layer(query), 1) for layer in (self.q_proj, self.k_proj, self.v_proj))
        groups = in_groups(size, *projected, (gate_logits, 0), (padding, 0))
        befores = repeat(None) if carried is None else carried.before_groups(size)
        read = (self._read_segments(*pair, directions, carried is not None) for pair in zip(groups, befores))
        outputs, totals = zip(*read)
        if carried is not None:
            carried.leave(totals)
        return self.join_heads(*outputs, dtype=query.dtype)

    def _read_segments(
        self, group: Tuple[Optional[Tensor], ...], totals: Optional[Totals], directions: Directions, need_state: bool
    ) -> Tuple[Tensor, Optional[Totals]]:
        """out (B, H, N, d) of what `_read_prefix` takes and gives: segments of long rows follow each other."""
        query, key, value, gate_logits, padding = group
        positions = ((query, 0), (key, 0), (value, 0), (gate_logits, 2), (padding, 1))
        length = self.segment_length(directions)
        outputs = []
        for first, segment in zip(range(0, max(1, query.size(0)), length), in_groups(length, *positions)):
            is_last = first + length >= query.size(0)
            out, totals = self._read_prefix(*segment, directions, totals, need_state or not is_last)
            outputs.append(out)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2), totals

    def _read_prefix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        directions: Directions,
        totals: Optional[Totals] = None,
        need_state: bool = False,
    ) -> Tuple[Tensor, Optional[Totals]]:
        """out (B, H, N, d) and what is left for the positions that follow, of projected (N, B, embed_dim)."""
        options = dict(
            gate_logits=gate_logits,
            state=totals,
            chunk_size=self.chunk_size,
            floor=self.floor,
            need_state=need_state,
            observe=self.observer(gate_logits, padding),
            sentence_gate=self.sentence_gate,
        )
        v = self.split_heads(value)
        if self.window is not None:
            query = self.encode(query, directions, "query", with_point=True)
            key = self.encode(key, directions, "key", padding, with_point=True)
            size, kernel, exponential = self.window
            return local_window.causal(query, key, v, kernel, size, exponential, padding=padding, **options)
        phi_q = self.encode(query, directions, "query").phi
        phi_k, log_factor, _ = self.encode(key, directions, "key", padding)
        return linear_attention.causal(phi_q, phi_k, v, log_factor=log_factor, **options)

    def _attend_after(
        self,
        query: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        state: Optional[DecodingState],
    ) -> Tuple[Tensor, DecodingState]:
        """Several positions (N, B, embed_dim) that follow those of the state."""
        directions, totals = (self.directions(), None) if state is None else (state.directions, state.totals())
        projected = self.q_proj(query), self.k_proj(query), self.v_proj(query)
        out, totals = self._read_prefix(*projected, gate_logits, padding, directions, totals, need_state=True)
        after = state_after(totals, directions, self.floor, gate_logits is not None, self.window)
        if not torch.is_grad_enabled():
            # What the steps that follow multiply with; they never see an empty state.
            layers = (self.q_proj, self.k_proj, self.v_proj)
            after.projection = join_layers(*layers) if state is None else state.projection
        return out, after

    def _step(
        self,
        query: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        state: Optional[DecodingState],
    ) -> Tuple[Tensor, DecodingState]:
        """One position (B, embed_dim)."""
        layers = (self.q_proj, self.k_proj, self.v_proj)
        if state is None:
            directions, projection = self.directions(), join_layers(*layers)
        else:
            directions, projection = state.directions, state.projection
        if projection is None:
            x = torch.cat([layer(query) for layer in layers], dim=1)
        else:
            x = projection(query)
        x = wide(x.unflatten(1, (3, self.num_heads, self.head_dim)).transpose(1, 2))
        x, v = x.split((2, 1), dim=2)
        query, key = self.encode_both(x, directions, padding, with_point=self.window is not None)
        if state is None:
            state = empty_state(key, v, directions, self.floor, gate_logits is not None, self.window)
            state.projection = projection
        return state.advance(query, key, v, gate_logits, self.sentence_gate), state
