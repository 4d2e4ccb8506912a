"""The options of perplexity."""

import argparse
from pathlib import Path

from ..programs.program import add_machine_options, parser_of, positive_number

NAME = "perplexity"
CARRIED = "carried"
RESETS = ("never", "documents", "empty-lines")
SUBWORDS = ("subword_nmt", "sentencepiece")


def context(text):
    """The state of attention, or a number of tokens."""
    if text == CARRIED:
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither {CARRIED} nor a number of tokens")
    return int(text)


def parse_arguments(arguments, description):
    """Exits with one line about an option that makes no sense."""
    parser = parser_of(NAME, description)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of fairseq-preprocess --only-source")
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="FILE", help="of a language model")
    parser.add_argument("--subset", default="test", help="of the data (default: test)")
    parser.add_argument(
        "--segment",
        type=positive_number(int),
        metavar="N",
        help="tokens that are scored at once (default: --tokens-per-sample of the training)",
    )
    parser.add_argument(
        "--context",
        type=context,
        default=CARRIED,
        metavar=f"{CARRIED}|N",
        help="what a segment follows: the state of causal random feature attention, which is carried from segment to "
        f"segment, or the N tokens before it, which are read once more (default: {CARRIED})",
    )
    parser.add_argument(
        "--continue-positions",
        action=argparse.BooleanOptionalAction,
        help="positions are counted from the start of the text, and not from that of each segment (default: as in the "
        "training)",
    )
    parser.add_argument(
        "--reset-at",
        choices=RESETS,
        default=RESETS[0],
        help="where a text ends and the next begins without context: at the ends of the documents of "
        "DATA/SUBSET.documents, which holds their numbers of lines, or after empty lines (default: the subset is one "
        "text)",
    )
    words = parser.add_mutually_exclusive_group()
    words.add_argument(
        "--remove-bpe",
        nargs="?",
        const=SUBWORDS[0],
        choices=SUBWORDS,
        help="tokens are parts of words; count words and the ends of lines, as fairseq-eval-lm does",
    )
    words.add_argument(
        "--raw",
        type=Path,
        metavar="FILE",
        help="count the words of this text, which the subset was made of, and the ends of its lines",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write all numbers there as JSON")
    add_machine_options(parser)
    return parser.parse_args(arguments)
