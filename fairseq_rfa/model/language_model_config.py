"""The options of transformer_lm_rfa: those of fairseq's language model, and of attention what a decoder alone has."""

from dataclasses import field, fields, make_dataclass

from fairseq.models.transformer_lm import TransformerLanguageModelConfig

from .config import RFA_OPTIONS, TransformerRFAConfig

OF_TRANSLATION = {"cross", "encoder", "sentence"}
"""Words in the names of options of attentions, and of separators of sentences, that a decoder alone has not."""
LANGUAGE_MODEL_OPTIONS = [option for option in RFA_OPTIONS if OF_TRANSLATION.isdisjoint(option.name.split("_"))]
TransformerRFALanguageModelConfig = make_dataclass(
    "TransformerRFALanguageModelConfig",
    [
        (option.name, option.type, field(default=option.default, metadata=option.metadata))
        for option in LANGUAGE_MODEL_OPTIONS
    ],
    bases=(TransformerLanguageModelConfig,),
)
"""What may be said on the command line and in a configuration file."""


class DecoderAloneConfig(TransformerRFAConfig):
    """What fairseq's decoder and the attention read of these options: those of a Transformer without an encoder."""

    @classmethod
    def from_namespace(cls, args):
        config = super().from_namespace(args)
        config.cross_attention, config.no_cross_attention = "softmax", True
        return config

    def validate(self):
        """As `TransformerRFAConfig.validate`."""
        if self.causal_attention == "rfa" and self.decoder.xformers_att_config:
            raise ValueError(
                "xFormers replaces softmax attention, which this decoder lacks; drop --decoder-xformers-att-config or "
                "use --causal-attention softmax"
            )
        super().validate()


def set_defaults_of_language_model(args):
    """Give the options that are missing their defaults.

    Args:
        args: what fairseq gives to an architecture; changed in place. Of a command line it holds all that the default
            of another option is taken from.
    """
    for option in fields(TransformerRFALanguageModelConfig):
        if option.name != "_name" and not hasattr(args, option.name) and not is_taken_from_elsewhere(option):
            setattr(args, option.name, option.default)


def is_taken_from_elsewhere(option):
    """Whether another part of the configuration says the default, such as that of the task."""
    return isinstance(option.default, str) and option.default.startswith("${")


def options_from_elsewhere():
    """Where the configuration says such defaults, by the name of the option: task.tokens_per_sample."""
    return {
        option.name: option.default[2:-1]
        for option in fields(TransformerRFALanguageModelConfig)
        if is_taken_from_elsewhere(option)
    }
