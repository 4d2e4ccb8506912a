"""What cross attention and that of an encoder share: every query reads all keys, before and after it (eq. 5)."""

from typing import Optional, Tuple

import torch
from torch import Tensor

from ..functional import linear_attention
from ..functional.encoding import Directions
from .base import RandomFeatureAttention, in_groups


class BidirectionalRFA(RandomFeatureAttention):
    """out_t = Σ_j φ(q_t)·φ(k_j) v_j / max(Σ_j φ(q_t)·φ(k_j), floor), in the cheaper order of multiplication.

    Through the sums over keys its time and memory are linear in the lengths.

    Args: those of `RandomFeatureAttention`.
    """

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        padding: Optional[Tensor] = None,
        query_padding: Optional[Tensor] = None,
    ) -> Tensor:
        """All queries at once, (N, B, embed_dim).

        Args:
            query: (N, B, embed_dim)
            key: (M, B, kdim), blank at padding.
            padding: (B, M) bool, of the keys.
            query_padding: (B, N) bool, of the queries; observers count them all where it is None.
        """
        directions, dtype = self.directions(), query.dtype
        query, key, value = self.q_proj(query), self.k_proj(key), self.v_proj(key)
        size = self.group_size(query.size(1), query.size(0) + key.size(0), directions)
        groups = in_groups(size, (query, 1), (key, 1), (value, 1), (padding, 0), (query_padding, 0))
        return self.join_heads(*(self._attend_rows(*group, directions) for group in groups), dtype=dtype)

    def _attend_rows(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding: Optional[Tensor],
        query_padding: Optional[Tensor],
        directions: Directions,
    ) -> Tensor:
        """out (B, H, N, d) of projected queries, keys and values: segments of long rows meet the same sums."""
        segments = list(in_groups(self.segment_length(directions), (query, 0), (query_padding, 1)))
        if len(segments) == 1:
            phi_q, phi_k = self.encode(query, directions, "query").phi, self.key_features(key, padding, directions)
            options = dict(floor=self.floor, observe=self.observer(padding=query_padding))
            return linear_attention.cross(phi_q, phi_k, self.split_heads(value), **options)
        sums = self._sums(key, value, padding, directions)
        outputs = [
            linear_attention.read(
                self.encode(q, directions, "query").phi, sums, self.floor, self.observer(padding=blank)
            )
            for q, blank in segments
        ]
        return torch.cat(outputs, dim=2).to(value.dtype)

    def _sums(
        self, key: Tensor, value: Tensor, padding: Optional[Tensor], directions: Directions
    ) -> linear_attention.State:
        """Over all projected keys and values, segment by segment."""
        states, log_scales = [], []
        length = self.segment_length(directions)
        for k, v, blank in in_groups(length, (key, 0), (value, 0), (padding, 1)):
            phi_k, log_factor = self._key_features(k, blank, directions)
            if log_factor is not None:
                log_scales.append(log_factor.amax(-1))
            states.append(linear_attention.summarize(phi_k, self.split_heads(v)))
        return linear_attention.joined(states, log_scales)

    def key_features(self, key: Tensor, padding: Optional[Tensor], directions: Directions) -> Tensor:
        """phi_k (B, H, M, F) of projected keys (M, B, embed_dim)."""
        return self._key_features(key, padding, directions)[0]

    def _key_features(
        self, key: Tensor, padding: Optional[Tensor], directions: Directions
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """phi_k relative to the greatest factor of its row, and the logarithms of the factors, None without factors."""
        phi_k, log_factor, _ = self.encode(key, directions, "key", padding)
        return phi_k if log_factor is None else linear_attention.with_factors(phi_k, log_factor), log_factor
