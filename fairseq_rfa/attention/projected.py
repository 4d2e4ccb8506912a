"""Softmax attention of an encoder whose projections are called as layers, and so compute as these do."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from .packed_linear import join_layers, precision_of


class ProjectedAttention(MultiheadAttention):
    """fairseq's self-attention, through the layers of its projections where these multiply in another precision.

    fairseq hands the weights of these layers to torch, which knows no such precision.
    """

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state=None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        **options,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        projection = None
        if precision_of(self.q_proj) != "float32" and not (
            torch.is_grad_enabled()
            or need_weights
            or attn_mask is not None
            or self.use_xformers
            or self.dropout_module.apply_during_inference
        ):
            projection = join_layers(self.q_proj, self.k_proj, self.v_proj)
        if projection is None:
            options |= dict(need_weights=need_weights, static_kv=static_kv, attn_mask=attn_mask)
            return super().forward(query, key, value, key_padding_mask, incremental_state, **options)
        length, rows, _ = query.shape
        # (3, B, H, N, d)
        heads = projection(query).view(length, rows, 3, self.num_heads, self.head_dim).permute(2, 1, 3, 0, 4)
        mask = None if key_padding_mask is None else ~key_padding_mask.bool()[:, None, None]
        out = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.out_proj(out.permute(2, 0, 1, 3).flatten(2)), None
