"""Adaptive and character embeddings of a language model: what makes no sense is refused in one line.

fairseq refuses some of it without a word, and evaluates the texts of these options.
"""

import ast

from .refusals import flag_of, refusal

CUTOFFS = ("adaptive_input_cutoff", "adaptive_softmax_cutoff")
TIED = {
    "adaptive_softmax_cutoff": "adaptive_input_cutoff",
    "adaptive_softmax_factor": "adaptive_input_factor",
    "decoder_output_dim": "decoder_input_dim",
}
"""What must be the same on both sides where they share weights."""


def validate_embeddings(args, num_words):
    """Refuse options that make no sense; cutoffs become texts such as 20000,60000.

    Args:
        args: all options of a language model; changed in place.
        num_words: of the vocabulary.

    Raises:
        ValueError
    """
    for name in CUTOFFS:
        cutoff = getattr(args, name)
        if cutoff is not None:
            setattr(args, name, ",".join(map(str, _settled_cutoff(name, cutoff, num_words))))
    if args.character_embeddings:
        args.character_filters = str(_settled_filters(args.character_filters))
    if args.adaptive_input and args.adaptive_input_cutoff is None:
        raise ValueError("--adaptive-input needs --adaptive-input-cutoff; give both, such as 20000,60000")
    if args.tie_adaptive_weights:
        _refuse_different_sides(args)


def _settled_cutoff(name, cutoff, num_words):
    parts = cutoff.split(",") if isinstance(cutoff, str) else cutoff
    try:
        numbers = [int(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or numbers[0] < 1 or numbers != sorted(set(numbers)):
        raise refusal(name, cutoff, "growing numbers of words from 1, such as 20000,60000")
    if numbers[-1] > num_words:
        raise refusal(name, cutoff, f"numbers up to {num_words}, which the vocabulary has")
    return numbers


def _settled_filters(text):
    try:
        filters = [(width, size) for width, size in ast.literal_eval(str(text))]
    except (TypeError, ValueError, SyntaxError):
        filters = []
    if not filters or not all(type(number) is int and number > 0 for pair in filters for number in pair):
        raise refusal("character_filters", text, "pairs of width and number, such as [(1, 64), (2, 128)]")
    return filters


def _refuse_different_sides(args):
    if not args.adaptive_input:
        raise ValueError("--tie-adaptive-weights needs --adaptive-input; give both or none")
    for name, other in TIED.items():
        value, wanted = getattr(args, name), getattr(args, other)
        if value != wanted:
            raise refusal(name, value, f"that of {flag_of(other)}, {wanted}, or drop --tie-adaptive-weights")
