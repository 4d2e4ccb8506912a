"""Named architectures: a parent and a few numbers. Explicit flags win."""

from fairseq.models import ARCH_MODEL_REGISTRY, register_model_architecture
from fairseq.models.transformer import base_architecture

from .alignments import refuse_alignments
from .config import RFA_OPTIONS
from .devices import settle_devices
from .directions import settle_directions
from .monitoring import refuse_monitor_without_tensorboard
from .transformer import TransformerRFAModel  # noqa: F401 registers the model that the names belong to


def set_defaults(args, **defaults):
    for name, value in defaults.items():
        if not hasattr(args, name):
            setattr(args, name, value)


def transformer_rfa(args):
    """6 layers of 512, feed-forward 2048, 8 heads."""
    base_architecture(args)
    set_defaults(args, **{option.name: option.default for option in RFA_OPTIONS})
    settle_directions(args)
    settle_devices(args)
    refuse_alignments(args)
    refuse_monitor_without_tensorboard(args)


def transformer_rfa_iwslt_de_en(args):
    """6 layers of 512, feed-forward 1024, 8 heads of 64."""
    set_defaults(args, encoder_ffn_embed_dim=1024, decoder_ffn_embed_dim=1024)
    transformer_rfa(args)


def transformer_rfa_tiny(args):
    """3 layers of 128, feed-forward 256, 4 heads of 32: for CPUs."""
    for side in ("encoder", "decoder"):
        set_defaults(
            args,
            **{
                f"{side}_embed_dim": 128,
                f"{side}_ffn_embed_dim": 256,
                f"{side}_layers": 3,
                f"{side}_attention_heads": 4,
            },
        )
    transformer_rfa(args)


def variant(architecture, words, **options):
    """The architecture with other values of options."""

    def with_options(args):
        set_defaults(args, **options)
        architecture(args)

    with_options.__doc__ = f"{architecture.__doc__[:-1]}, {words}."
    return with_options


SIZES = {
    "transformer_rfa": transformer_rfa,
    "transformer_rfa_wmt_en_de": transformer_rfa,
    "transformer_rfa_iwslt_de_en": transformer_rfa_iwslt_de_en,
    "transformer_rfa_tiny": transformer_rfa_tiny,
}
VARIANTS = {
    "_gate": ("with the gate", {"rfa_gate": True}),
    "_arccos": ("with the arc-cosine map", {"rfa_feature_map": "arccos"}),
    "_gate_arccos": (
        "with the gate and the arc-cosine map",
        {"rfa_gate": True, "rfa_feature_map": "arccos"},
    ),
}


def with_variants(sizes):
    """Architectures by their names, each also with the gate, with the arc-cosine map, and with both."""
    architectures = dict(sizes)
    for name, architecture in sizes.items():
        for ending, (words, options) in VARIANTS.items():
            architectures[name + ending] = variant(architecture, words, **options)
    return architectures


def register(model, architectures):
    """Tell fairseq of named architectures of a model, once."""
    for name, architecture in architectures.items():
        if name not in ARCH_MODEL_REGISTRY:
            register_model_architecture(model, name)(architecture)


ARCHITECTURES = with_variants(SIZES)
register("transformer_rfa", ARCHITECTURES)
