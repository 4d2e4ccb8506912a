"""fairseq's Transformer encoder with softmax or random feature attention, whose output no step of a search copies."""

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from ..attention import EncoderRFA
from ..attention.projected import ProjectedAttention
from .other_attention import let_other_attention_load
from .random_features import build_pool, shared_options
from .scripting import in_classes_of_fairseq


class TransformerRFAEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer, all of whose dense layers can multiply in another precision.

    Args:
        pools: the random matrices of "encoder" attention; empty with softmax.
        layer_index: number of the layer from 0.
    """

    def __init__(self, cfg, return_fc=False, *, pools, layer_index):
        self.pools = pools
        self.layer_index = layer_index
        super().__init__(cfg, return_fc)

    def build_self_attention(self, embed_dim, cfg):
        if cfg.encoder_attention == "rfa":
            return EncoderRFA(
                embed_dim,
                cfg.encoder.attention_heads,
                self.pools["encoder"],
                self.layer_index,
                sigma_init=cfg.rfa_sigma_init,
                floor=cfg.rfa_denominator_floor,
                **shared_options(cfg),
            )
        return ProjectedAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )


class TransformerRFAEncoder(TransformerEncoderBase):
    def build_encoder_layer(self, cfg):
        if not hasattr(self, "pools"):
            has_features = cfg.encoder_attention == "rfa"
            self.pools = {"encoder": build_pool(cfg, "encoder", cfg.rfa_encoder_dim)} if has_features else {}
            self.num_built_layers = 0
        layer = TransformerRFAEncoderLayer(
            cfg, self.return_fc, pools=self.pools, layer_index=self.num_built_layers
        )
        self.num_built_layers += 1
        return wrapped(layer, cfg)

    def upgrade_state_dict_named(self, state_dict, name):
        """Let a checkpoint of the other attention load."""
        super().upgrade_state_dict_named(state_dict, name)
        return let_other_attention_load(self, "encoder", state_dict, name)

    def reorder_encoder_out(self, encoder_out, new_order):
        """Row i becomes the former row new_order[i]; nothing is copied where each row keeps its sentence.

        A beam search asks for an order at every step, but its hypotheses only move within their sentence.
        """
        if "sentences" in encoder_out:
            (sentences,) = encoder_out["sentences"]
        else:
            sentences = torch.arange(
                encoder_out["encoder_out"][0].size(1), device=new_order.device
            )
        reordered = sentences[new_order]
        if not torch.equal(reordered, sentences):
            encoder_out = super().reorder_encoder_out(encoder_out, new_order)
        return {**encoder_out, "sentences": [reordered]}

    def __prepare_scriptable__(self):
        return in_classes_of_fairseq(self)


def wrapped(layer, cfg):
    """A layer of encoder or decoder as the options on memory in training want it, which fairseq reads here."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)
