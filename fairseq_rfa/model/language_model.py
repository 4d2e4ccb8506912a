"""fairseq's language model with causal random feature attention."""

from argparse import Namespace

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.tasks.translation import TranslationTask

from .adaptive_embeddings import validate_embeddings
from .config import add_switches
from .hooks import FairseqHooks
from .language_model_config import LANGUAGE_MODEL_OPTIONS, DecoderAloneConfig, TransformerRFALanguageModelConfig
from .monitoring import monitor_of
from .settled import known_options, settled
from .transformer import TransformerRFADecoder


@register_model("transformer_lm_rfa")
class TransformerRFALanguageModel(FairseqHooks, TransformerLanguageModel):
    """A decoder alone, which attends to its prefix through random features (Peng et al., ICLR 2021)."""

    @classmethod
    def hub_models(cls):
        """None of fairseq's models to download has random features."""
        return {}

    @classmethod
    def add_args(cls, parser):
        add_switches(parser, LANGUAGE_MODEL_OPTIONS)
        # Without defaults here, those of the named architecture reach the model.
        gen_parser_from_dataclass(parser, TransformerRFALanguageModelConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg, task):
        """Build from the options of the command line, of a checkpoint or of a configuration file.

        What fairseq's own model has beside the attention is drawn as there, so that the same seed gives both the same
        weights: with --causal-attention softmax they are one model.
        """
        if isinstance(task, TranslationTask):
            raise ValueError(
                "transformer_lm_rfa is a model of one language, and the task has pairs of two; use "
                "--task language_modeling"
            )
        everything = cfg
        # fairseq's model changes what it is given.
        args = Namespace(**vars(known_options(cfg, task, TransformerRFALanguageModelConfig)))
        validate_embeddings(args, len(task.source_dictionary))
        cfg = settled(DecoderAloneConfig.from_namespace(args), task)
        plain = super().build_model(args, task)
        cfg.max_target_positions = args.max_target_positions  # which fairseq may take from the task
        model = cls(_with_features(plain.decoder, cfg))
        model.monitor = monitor_of(everything, cfg.rfa_monitor, model.decoder)
        return model


def _with_features(decoder, cfg):
    """A decoder with these options that begins with the weights of fairseq's decoder.

    fairseq's model names the class of its decoder, so its decoder is built first, and left to be freed.
    """
    with torch.random.fork_rng(devices=[]):  # a training draws its dropout as that of fairseq's model
        ours = TransformerRFADecoder(cfg, decoder.dictionary, decoder.embed_tokens, no_encoder_attn=True)
    ours.load_state_dict({**ours.state_dict(), **decoder.state_dict()})
    return ours
