"""Causal random feature attention as a fairseq module: gate, local window, decoding step by step.

The module sees (positions, B, embed_dim), the algebra of `linear_attention` sees (B, H, positions, width).
"""

from typing import Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional import linear_attention, local_window
from ..functional.encoding import Directions
from ..functional.linear_attention import ScaledState, State
from ..functional.local_window import WindowState
from ..functional.precision import full_precision, wide
from ..functional.recurrence import kept_at_padding, recurrence
from .base import IncrementalState, RandomFeatureAttention, blank_padding, in_groups
from .decoding_state import DecodingState, empty_state, state_of
from .order import reordered
from .packed_linear import join_layers


class CausalRFA(RandomFeatureAttention):
    """Causal self-attention over the prefix (eq. 6, algorithm 1), with the gate of eq. 7 if wanted.

    Args:
        gate: g_t = sigmoid(w_g·x_t + b_g), one scalar for each head.
        gate_bias: where b_g starts.
        chunk_size: C of `linear_attention.causal`.
        local_window: W of `local_window`, the number of newest keys that meet the exact kernel; 0 for none.
        options: those of `RandomFeatureAttention`.
    """

    def __init__(
        self,
        *arguments,
        gate: bool = False,
        gate_bias: float = 0.0,
        chunk_size: int = 64,
        local_window: int = 0,
        **options,
    ):
        super().__init__(*arguments, self_attention=True, **options)
        self.chunk_size = chunk_size
        self.local_window = local_window
        self.gate_proj = None
        if gate:
            self.gate_proj = nn.Linear(self.embed_dim, self.num_heads)
            nn.init.xavier_uniform_(self.gate_proj.weight)
            nn.init.constant_(self.gate_proj.bias, gate_bias)

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
        """Attend from each position of query (N, B, embed_dim) to itself and those before it.

        key and value are query, and the mask is always causal, so the arguments key, value, static_kv and
        attn_mask of fairseq's interface change nothing. No weights are returned.

        Args:
            key_padding_mask: (B, N), True at padding.
            incremental_state: the positions follow those of earlier calls.
        """
        query, padding = blank_padding(query, key_padding_mask)
        gate_logits = None
        if self.gate_proj is not None:
            gate_logits = self.gate_proj(query).permute(1, 2, 0)
            if padding is not None:
                gate_logits = kept_at_padding(gate_logits, padding)

        if incremental_state is None and not self.local_window:
            return self._attend_in_groups(query, gate_logits, padding), None
        attend = self._attend_with_window if self.local_window else self._attend
        out, state = attend(query, gate_logits, padding, incremental_state)
        if incremental_state is not None:
            self._set_input_buffer(incremental_state, state)
        return self.join_heads(out), None

    def _attend(
        self,
        query: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        incremental_state: IncrementalState,
    ) -> Tuple[Tensor, DecodingState]:
        state = self._get_state(incremental_state)
        if query.size(0) == 1 and not torch.is_grad_enabled():
            return self._step(query.squeeze(0), gate_logits, padding, state)
        directions = self.directions() if state is None else state.directions
        projected = self.q_proj(query), self.k_proj(query), self.v_proj(query)
        totals = None if state is None else state.totals()
        out, sums = self._read_prefix(*projected, gate_logits, padding, directions, totals, need_state=True)
        has_weights = gate_logits is not None or isinstance(sums, ScaledState)
        return out, state_of(sums, directions, has_weights)

    def _attend_in_groups(
        self, query: Tensor, gate_logits: Optional[Tensor], padding: Optional[Tensor]
    ) -> Tensor:
        """All positions at once, (N, B, embed_dim)."""
        directions = self.directions()
        size = self.group_size(query.size(1), 2 * query.size(0), directions)
        projected = ((layer(query), 1) for layer in (self.q_proj, self.k_proj, self.v_proj))
        groups = in_groups(size, *projected, (gate_logits, 0), (padding, 0))
        return self.join_heads(*(self._read_segments(group, directions) for group in groups))

    def _read_segments(self, group: Tuple[Optional[Tensor], ...], directions: Directions) -> Tensor:
        """out (B, H, N, d) of what `_read_prefix` takes: segments of long rows follow each other."""
        query, key, value, gate_logits, padding = group
        positions = ((query, 0), (key, 0), (value, 0), (gate_logits, 2), (padding, 1))
        length = self.segment_length(directions)
        outputs, totals = [], None
        for first, segment in zip(range(0, query.size(0), length), in_groups(length, *positions)):
            is_last = first + length >= query.size(0)
            out, totals = self._read_prefix(*segment, directions, totals, need_state=not is_last)
            outputs.append(out)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def _read_prefix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        directions: Directions,
        totals: Union[State, ScaledState, None] = None,
        need_state: bool = False,
    ) -> Tuple[Tensor, Union[State, ScaledState, None]]:
        """out (B, H, N, d) and what `linear_attention.causal` leaves, of projected (N, B, embed_dim)."""
        phi_q = self.encode(query, directions).phi
        phi_k, log_factor, _ = self.encode(key, directions, padding)
        return linear_attention.causal(
            phi_q,
            phi_k,
            self.split_heads(value),
            gate_logits,
            state=totals,
            chunk_size=self.chunk_size,
            floor=self.floor,
            need_state=need_state,
            log_factor=log_factor,
            observe=self.observer(gate_logits, padding),
        )

    def _step(
        self,
        query: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        state: Optional[DecodingState],
    ) -> Tuple[Tensor, DecodingState]:
        """One position (B, embed_dim): query and key are encoded as if they were two positions."""
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
        if padding is not None:
            padding = F.pad(padding, (1, 0))
        phi, log_factor, _ = self.encode_heads(x[:, :, :2], directions, padding)
        log_factor = None if log_factor is None else log_factor[:, :, 1:]
        out, state = self._advance(phi, x[:, :, 2:], gate_logits, log_factor, directions, state)
        state.projection = projection
        return out, state

    @full_precision
    def _advance(
        self,
        phi: Tensor,
        v: Tensor,
        gate_logits: Optional[Tensor],
        log_factor: Optional[Tensor],
        directions: Directions,
        state: Optional[DecodingState],
    ) -> Tuple[Tensor, DecodingState]:
        phi_q, phi_k = phi.split(1, dim=2)
        gate_logits, log_factor = wide(gate_logits), wide(log_factor)
        if state is None:
            has_factors = log_factor is not None
            has_weights = has_factors or gate_logits is not None
            state = empty_state(phi_k, v, directions, has_weights, has_factors)
        flow = recurrence(gate_logits, log_factor, None, state.get("log_scale"))
        state.append(phi_k, v, flow)
        return state.read(phi_q, self.floor), state

    def _attend_with_window(
        self,
        query: Tensor,
        gate_logits: Optional[Tensor],
        padding: Optional[Tensor],
        incremental_state: IncrementalState,
    ) -> Tuple[Tensor, dict]:
        directions = self.directions()
        state = self._get_state(incremental_state)
        out, state = local_window.causal(
            self.encode(self.q_proj(query), directions, role="query"),
            self.encode(self.k_proj(query), directions, padding, role="key"),
            self.split_heads(self.v_proj(query)),
            self.feature_map.kernel,
            self.local_window,
            exponential=self.feature_map.exponential,
            gate_logits=gate_logits,
            padding=padding,
            state=None if state is None else WindowState(**state),
            chunk_size=self.chunk_size,
            floor=self.floor,
            observe=self.observer(gate_logits, padding),
        )
        return out, state._asdict()

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Row i of the state becomes the former row new_order[i]; the identity copies nothing."""
        state = self._get_state(incremental_state)
        if isinstance(state, DecodingState):
            state.reorder(new_order)
        elif state is not None:
            self._set_input_buffer(incremental_state, reordered(state, new_order))
        return incremental_state

    def _get_state(self, incremental_state: IncrementalState) -> Optional[dict]:
        return self._get_input_buffer(incremental_state) or None
