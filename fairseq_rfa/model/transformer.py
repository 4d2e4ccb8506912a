"""The Transformer that attends through random features: decoder and model."""

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase

from ..attention import CausalRFA, CrossRFA
from ..attention.order import is_identity, rows_of
from ..attention.packed_linear import search
from ..attention.separators import Separators
from .config import RFA_OPTIONS, TransformerRFAConfig, add_switches
from .decoder_layer import TransformerRFADecoderLayer
from .encoder import TransformerRFAEncoder, wrapped
from .hooks import FairseqHooks
from .monitoring import monitor_of
from .other_attention import let_other_attention_load
from .random_features import build_pool
from .scripting import in_classes_of_fairseq
from .settled import known_options, settled


class TransformerRFADecoder(TransformerDecoderBase):
    separators = None
    """`Separators` for the sentence gates of the layers, if they have them. Without an annotation for torch.jit."""

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        if not hasattr(self, "pools"):
            self.pools = self._build_pools(cfg)
            self.num_built_layers = 0
        layer = TransformerRFADecoderLayer(
            cfg, no_encoder_attn, pools=self.pools, layer_index=self.num_built_layers
        )
        self.num_built_layers += 1
        return wrapped(layer, cfg)

    @staticmethod
    def _build_pools(cfg):
        places = {
            "causal": (cfg.causal_attention, cfg.rfa_causal_dim),
            "cross": (cfg.cross_attention, cfg.rfa_cross_dim),
        }
        return {
            place: build_pool(cfg, "decoder", num_directions)
            for place, (attention, num_directions) in places.items()
            if attention == "rfa"
        }

    def forward(self, prev_output_tokens, encoder_out=None, incremental_state=None, **options):
        # Weights that change count from the next search on.
        with search(goes_on=bool(incremental_state)):
            return super().forward(prev_output_tokens, encoder_out, incremental_state, **options)

    def buffered_future_mask(self, tensor):
        if self.cfg.causal_attention == "rfa":
            return None  # causal by itself, without a mask that is quadratic in the length
        return super().buffered_future_mask(tensor)

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        full_context_alignment=False,
        alignment_layer=None,
        alignment_heads=None,
    ):
        if full_context_alignment and self.cfg.causal_attention == "rfa":
            raise ValueError(
                "full_context_alignment looks at later target positions, which causal RFA cannot; "
                "use --causal-attention softmax"
            )
        if self.separators is not None:
            # The layers get the newest token alone where they have a state.
            self.separators.read(prev_output_tokens if incremental_state is None else prev_output_tokens[:, -1:])
        self._mask_padding_unasked_on_xla(prev_output_tokens)
        features, extra = super().extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )
        # fairseq's beam search turns NaN into "never choose", and so into bad text.
        if incremental_state is not None and not features.isfinite().all():
            raise FloatingPointError(
                f"the decoder's output is not finite in {features.dtype}; "
                "decode without --fp16, or check the checkpoint for NaN"
            )
        return features, extra

    def tell_separators(self, symbol):
        """From now on the sentence gates of the layers know where this symbol of the dictionary stands."""
        self.separators = Separators(symbol)
        for attention in self.modules():
            if isinstance(attention, CausalRFA):
                attention.separators = self.separators

    def _mask_padding_unasked_on_xla(self, tokens):
        """fairseq asks whether there is padding, which on XLA would wait for values; with this option it does not ask.

        Nothing else reads the option in a decoder that has no cross-self-attention.
        """
        self.cross_self_attention |= tokens.device.type == "xla"

    def reorder_incremental_state_scripting(self, incremental_state, new_order):
        """Once, before all layers: nothing moves where each hypothesis is its own parent."""
        state = self.layers[0].self_attn._get_input_buffer(incremental_state) if self.num_layers else None
        if state and is_identity(new_order, rows_of(state)):
            return
        super().reorder_incremental_state_scripting(incremental_state, new_order)

    def upgrade_state_dict_named(self, state_dict, name):
        """Let a checkpoint of the other attention load."""
        super().upgrade_state_dict_named(state_dict, name)
        return let_other_attention_load(self, "decoder", state_dict, name)

    def __prepare_scriptable__(self):
        return in_classes_of_fairseq(self)


def separator_of(task):
    """The symbol between the sentences of a target, in a task that makes windows of them.

    Raises:
        ValueError: the task makes none.
    """
    symbol = getattr(task, "target_separator", None)
    if symbol is None:
        raise ValueError(
            "--rfa-sentence-gate acts where a separator of sentences stands, and this task makes none; use --task "
            "document_translation, or leave the flag out"
        )
    return symbol


@register_model("transformer_rfa")
class TransformerRFAModel(FairseqHooks, TransformerModelBase):
    """Transformer with random feature attention (Peng et al., ICLR 2021), by default in the decoder alone."""

    @classmethod
    def add_args(cls, parser):
        add_switches(parser, RFA_OPTIONS)
        # Without defaults here, those of the named architecture reach the model.
        gen_parser_from_dataclass(
            parser, TransformerRFAConfig(), delete_default=True, with_prefix=""
        )

    @classmethod
    def build_model(cls, cfg, task):
        """Build from the options of the command line, of a checkpoint or of a configuration file."""
        everything = cfg
        options = known_options(cfg, task, TransformerRFAConfig)
        cfg = settled(TransformerRFAConfig.from_namespace(options), task)
        model = super().build_model(cfg, task)
        if cfg.causal_attention == "rfa" and cfg.rfa_sentence_gate:
            model.decoder.tell_separators(separator_of(task))
        model.monitor = monitor_of(everything, cfg.rfa_monitor, model)
        return model

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return TransformerRFAEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return TransformerRFADecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    def set_beam_size(self, beam_size):
        """Called by fairseq's SequenceGenerator: rows of a batch come in groups of beam_size hypotheses."""
        for module in self.decoder.modules():
            if isinstance(module, CrossRFA):
                module.set_beam_size(beam_size)
