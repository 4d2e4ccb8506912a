"""Named architectures of the language model: a parent and a few numbers. Explicit flags win."""

from fairseq.models.transformer_lm import base_lm_architecture, transformer_lm_baevski_wiki103
from omegaconf import OmegaConf

from .architectures import register, set_defaults, with_variants
from .devices import settle_devices
from .directions import settle_directions
from .language_model import TransformerRFALanguageModel  # noqa: F401 registers the model that the names belong to
from .language_model_config import options_from_elsewhere, set_defaults_of_language_model
from .monitoring import refuse_monitor_without_tensorboard


def transformer_lm_rfa(args, of_fairseq=base_lm_architecture):
    """6 layers of 512, feed-forward 2048, 8 heads."""
    # fairseq's architectures always set this, but a converted checkpoint of its plain transformer_lm has it off.
    normalize_before = getattr(args, "decoder_normalize_before", True)
    set_options_from_elsewhere(args)
    of_fairseq(args)
    args.decoder_normalize_before = normalize_before
    set_defaults_of_language_model(args)
    settle_directions(args)
    settle_devices(args)
    refuse_monitor_without_tensorboard(args)


def transformer_lm_rfa_tiny(args):
    """3 layers of 128, feed-forward 256, 4 heads of 32: for CPUs."""
    set_defaults(
        args, decoder_embed_dim=128, decoder_ffn_embed_dim=256, decoder_layers=3, decoder_attention_heads=4
    )
    transformer_lm_rfa(args)


def transformer_lm_rfa_wiki103(args):
    """That of Baevski and Auli for WikiText-103: 16 layers of 1024, feed-forward 4096, 8 heads, adaptive embeddings."""
    transformer_lm_rfa(args, of_fairseq=transformer_lm_baevski_wiki103)


def transformer_lm_rfa_wiki103_small(args):
    """The same in small: 12 layers of 512, feed-forward 2048, 8 heads, 38 million parameters beside the embeddings."""
    set_defaults(args, decoder_embed_dim=512, decoder_ffn_embed_dim=2048, decoder_layers=12)
    transformer_lm_rfa_wiki103(args)


def set_options_from_elsewhere(args):
    """In a configuration file the task says the number of positions; what has them already keeps them.

    Args:
        args: what fairseq gives to an architecture. A command line and a checkpoint hold them.
    """
    if not OmegaConf.is_config(args):
        return
    for name, place in options_from_elsewhere().items():
        try:
            set_defaults(args, **{name: OmegaConf.select(args, f"..{place}")})
        except KeyError:
            return  # a configuration of the model alone


LANGUAGE_MODEL_ARCHITECTURES = with_variants(
    {
        "transformer_lm_rfa": transformer_lm_rfa,
        "transformer_lm_rfa_tiny": transformer_lm_rfa_tiny,
        "transformer_lm_rfa_wiki103": transformer_lm_rfa_wiki103,
        "transformer_lm_rfa_wiki103_small": transformer_lm_rfa_wiki103_small,
    }
)
register("transformer_lm_rfa", LANGUAGE_MODEL_ARCHITECTURES)
