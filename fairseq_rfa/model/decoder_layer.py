"""The decoder layer with random feature attention."""

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

from ..attention import CausalRFA, CrossRFA
from .random_features import shared_options
from .scripting import in_classes_of_fairseq


class TransformerRFADecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with random feature attention in the places that the options name.

    Args:
        pools: the random matrices of "causal" and "cross" attention.
        layer_index: number of the layer from 0.
    """

    def __init__(self, cfg, no_encoder_attn=False, *, pools, layer_index):
        self.pools = pools
        self.layer_index = layer_index
        super().__init__(cfg, no_encoder_attn)
        self.gives_weights = True
        if isinstance(self.encoder_attn, CrossRFA):
            self.need_attn = False  # or every layer would make weights in evaluation, and drop them

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        if cfg.causal_attention == "softmax":
            return super().build_self_attention(embed_dim, cfg, add_bias_kv, add_zero_attn)
        return CausalRFA(
            embed_dim,
            cfg.decoder.attention_heads,
            self.pools["causal"],
            self.layer_index,
            gate=cfg.rfa_gate,
            sentence_gate=cfg.rfa_sentence_gate,
            gate_bias=cfg.rfa_sentence_gate_bias if cfg.rfa_sentence_gate else cfg.rfa_gate_bias,
            chunk_size=cfg.rfa_chunk_size,
            local_window=cfg.rfa_local_window,
            sigma_init=cfg.rfa_sigma_init,
            floor=cfg.rfa_gate_denominator_floor if cfg.rfa_gate else cfg.rfa_denominator_floor,
            **shared_options(cfg),
        )

    def build_encoder_attention(self, embed_dim, cfg):
        if cfg.cross_attention == "softmax":
            return super().build_encoder_attention(embed_dim, cfg)
        return CrossRFA(
            embed_dim,
            cfg.decoder.attention_heads,
            self.pools["cross"],
            self.layer_index,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            sigma_init=cfg.rfa_cross_sigma_init or cfg.rfa_sigma_init,
            floor=cfg.rfa_denominator_floor,
            **shared_options(cfg),
        )

    def forward(self, *arguments, need_attn=False, need_head_weights=False, **options):
        # fairseq asks its last layer for weights at every step, in training and decoding as well.
        if isinstance(self.encoder_attn, CrossRFA) and (self.training or not self.gives_weights):
            need_attn = need_head_weights = False
        return super().forward(
            *arguments, need_attn=need_attn, need_head_weights=need_head_weights, **options
        )

    def make_generation_fast_(self, need_attn=False, **options):
        self.gives_weights = need_attn
        if not isinstance(self.encoder_attn, CrossRFA):
            super().make_generation_fast_(need_attn=need_attn, **options)

    def __prepare_scriptable__(self):
        return in_classes_of_fairseq(self)
