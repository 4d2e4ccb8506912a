"""How many words a model of a checkpoint knows, and tasks with so many."""

from argparse import Namespace

from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ..programs.made_up_words import made_up_dictionary
from .kinds import LANGUAGE_MODEL

ADAPTIVE = "embed_tokens.embeddings."
"""How the names of adaptive embeddings begin: each cluster of words has a table, and a projection after it."""
NO_SYMBOL = -1
"""In place of the separator of sentences: what is converted here reads each sentence alone."""


def number_of_words(state, side):
    """That encoder or decoder reads.

    Raises:
        ValueError: no embeddings, or those of characters, which know no words.
    """
    if f"{side}.embed_tokens.weight" in state:
        return state[f"{side}.embed_tokens.weight"].size(0)
    clusters = [name for name in state if name.startswith(f"{side}.{ADAPTIVE}") and name.endswith(".0.weight")]
    if clusters:
        return sum(state[name].size(0) for name in clusters)
    if f"{side}.embed_tokens.char_embeddings.weight" in state:
        raise ValueError(f"the {side} of the checkpoint reads characters; use one with embeddings of words")
    raise ValueError(f"the checkpoint lacks {side}.embed_tokens.weight; use one of a whole model")


def task_with(state, kind):
    """A task whose vocabularies, of made-up words, are as large as those of a state dict."""
    sizes = [number_of_words(state, side) for side in kind.sides]
    source = made_up_dictionary(sizes[0])
    if kind is LANGUAGE_MODEL:
        size = len(state.get("decoder.output_projection.weight", source))  # adaptive ones are as large as the input
        return LanguageModelingTask(Namespace(), source, _same_or_other(source, size))
    task = TranslationTask(TranslationConfig(), source, _same_or_other(source, sizes[1]))
    task.target_separator = NO_SYMBOL
    return task


def _same_or_other(dictionary, size):
    return dictionary if len(dictionary) == size else made_up_dictionary(size)
