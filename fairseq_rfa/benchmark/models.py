"""What benchmark runs: two models with random weights, built as fairseq builds them, and random sentences."""

import argparse
from contextlib import contextmanager

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import nn

from ..model.config import RFA_OPTIONS
from ..model.language_model import TransformerRFALanguageModel
from ..programs.made_up_words import made_up_dictionary

MODELS = ("rfa", "baseline")
"""What decode, train and lm compare."""
PLAIN, PLAIN_LANGUAGE_MODEL, TWIN = "transformer", "transformer_lm", "twin"
BASELINES = (PLAIN, TWIN)
LANGUAGE_MODEL_BASELINES = (PLAIN_LANGUAGE_MODEL, TWIN)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def architectures(model="transformer_rfa"):
    """Names of all architectures of a model of the plugin."""
    return list(ARCH_MODEL_INV_REGISTRY[model])


def compared(options, length):
    """Names of the models that are measured at a length: of lm softmax up to --softmax-most alone."""
    names = getattr(options, "models", MODELS)
    return names if length <= getattr(options, "softmax_most", length) else ("rfa",)


def make_task(vocabulary):
    """fairseq's translation task with one made-up dictionary for both sides."""
    dictionary = made_up_dictionary(vocabulary)
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def make_language_model_task(vocabulary):
    """fairseq's language modeling task with a made-up dictionary."""
    return LanguageModelingTask(argparse.Namespace(), made_up_dictionary(vocabulary))


class _FlagParser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(f"--flags: {message}; use flags of fairseq-train for this model, without dashes")


def model_options(options, name, positions):
    """All options of a model, as fairseq-train would give them.

    Args:
        name: "rfa" or "baseline".
        positions: the longest sentence.

    Raises:
        ValueError: a flag that the model does not have, or a value that it does not take.
    """
    parser = _FlagParser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    ARCH_MODEL_REGISTRY[options.arch].add_args(parser)
    args = parser.parse_args([_with_dashes(flag) for flag in options.flags])
    if hasattr(args, "decoding_precision"):
        raise ValueError("--flags decoding_precision is for one model; use --decoding-precision of benchmark decode")
    args.arch = options.arch
    args.max_target_positions = positions
    if not is_language_model(options.arch):
        args.max_source_positions = positions
        if not hasattr(args, "share_all_embeddings"):
            args.share_all_embeddings = True
    ARCH_CONFIG_REGISTRY[options.arch](args)
    args.decoding_precision = getattr(options, "decoding_precision", "float32")  # train has none
    if name == "baseline":
        _replace_attention(args, options.baseline)
    return args


def is_language_model(arch):
    return ARCH_MODEL_REGISTRY[arch] is TransformerRFALanguageModel


def _with_dashes(flag):
    name, equals, value = flag.partition("=")
    return f"--{name.replace('_', '-')}{equals}{value}"


def _replace_attention(args, baseline):
    own = [option for option in RFA_OPTIONS if hasattr(args, option.name)]  # a language model has not all of them
    if baseline != TWIN:
        for option in own:
            delattr(args, option.name)
        args.arch = baseline
        return
    for option in own:
        if option.name != "decoding_precision":
            setattr(args, option.name, option.default)
    for place in ("causal_attention", "cross_attention"):
        if hasattr(args, place):
            setattr(args, place, "softmax")


def build_model(options, name, positions, task, device):
    """A float32 model on the device; the same seed gives the same weights.

    Raises ValueError for options that the model refuses.
    """
    torch.manual_seed(options.seed)
    return task.build_model(model_options(options, name, positions)).to(device)


def source_length(options, length):
    """The tokens of the sources of targets of `length` tokens."""
    return options.source_length or length


def most_positions(options, *lengths):
    """What the longest sentence needs, also where `lengths` are decoded."""
    return max(*options.lengths, source_length(options, 0), *lengths) + 2


def random_tokens(task, rows, length, seed, device):
    """(rows, length): words, of which the last is the end of the sentence."""
    dictionary = task.target_dictionary
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(dictionary.nspecial, len(dictionary), (rows, length), generator=generator)
    tokens[:, -1] = dictionary.eos()
    return tokens.to(device)


def source_batch(task, rows, length, seed, device):
    """What an encoder of fairseq reads, without padding."""
    tokens = random_tokens(task, rows, length, seed, device)
    return {"src_tokens": tokens, "src_lengths": torch.full((rows,), length, device=device)}


class _NoAttention(nn.Module):
    """In the place of an attention: zeros, at once."""

    def forward(self, query, **unused):
        return torch.zeros_like(query), None

    def _get_input_buffer(self, incremental_state):
        return {}


@contextmanager
def without_attention(model):
    """Within it the layers of the model's decoder have no attention, but all else."""
    places = [
        (layer, name, getattr(layer, name))
        for layer in model.decoder.layers
        for name in ("self_attn", "encoder_attn")
        if getattr(layer, name) is not None
    ]
    try:
        for layer, name, _ in places:
            setattr(layer, name, _NoAttention())
        yield
    finally:
        for layer, name, attention in places:
            setattr(layer, name, attention)
