"""The options of benchmark."""

import argparse
from pathlib import Path

from ..attention.decoding_precision import PRECISIONS
from ..functional.random_matrices import LARGEST_SEED
from ..programs.program import Parser, add_machine_options, positive_number
from .ctranslate import CTRANSLATE2
from .models import BASELINES, DTYPES, LANGUAGE_MODEL_BASELINES, TWIN, architectures
from .windows import MODELS as WINDOW_MODELS
from .windows import SOFTMAX

NAME = "benchmark"
SHORTEST = 2
DECODED = (32, 128, 256, 512, 1024, 2048)
TRAINED = (32, 1024)
WINDOWS = (1, 2, 4, 8, 16)
GENERATED = (256, 1024, 4096, 16384)
SOFTMAX_MOST = 4096
SPECIAL_SYMBOLS = 4


def sentence_length(text):
    """A number of tokens. Raises ArgumentTypeError where it is no whole number from 2."""
    if not text.isdecimal() or int(text) < SHORTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {SHORTEST}")
    return int(text)


def parse_arguments(arguments, description):
    """Exits with one line about an option that makes no sense."""
    settings = {
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    parser = Parser(prog=f"python -m fairseq_rfa.{NAME}", description=description, **settings)
    commands = parser.add_subparsers(dest="command", required=True, metavar="decode|train|documents|lm")
    count = positive_number(int)

    decode = commands.add_parser("decode", help="speed, state and memory of decoding by length", **settings)
    _add_lengths(decode, DECODED)
    _add_shared(decode, "decode", (*BASELINES, CTRANSLATE2))
    _add_search(decode)

    train = commands.add_parser("train", help="time and memory of a training step by length", **settings)
    _add_lengths(train, TRAINED)
    _add_shared(train, "train", BASELINES)
    train.add_argument(
        "--tokens",
        type=count,
        default=4096,
        metavar="N",
        help="target tokens of a step, of which at least one sentence is made (default: 4096)",
    )

    documents = commands.add_parser(
        "documents", help="time of a sentence after those before it in its document, by window", **settings
    )
    _add_windows(documents)
    _add_shared(documents, "documents", BASELINES)
    _add_search(documents)

    lm = commands.add_parser("lm", help="time, state and memory of generating a text by its length", **settings)
    _add_generation(lm)
    _add_shared(lm, "lm", LANGUAGE_MODEL_BASELINES, model="transformer_lm_rfa")
    _add_search(lm, batch_size=1, rows="texts")

    options = parser.parse_args(arguments)
    if options.command == "documents":
        _set_windows(parser, options)
    options.lengths = sorted(set(options.lengths))
    if options.command == "lm":
        _check_generation(parser, options)
    least = SPECIAL_SYMBOLS + 2 * getattr(options, "beam", 1) + (options.command == "documents")
    if options.vocabulary < least:
        parser.error(f"--vocabulary {options.vocabulary}: use at least {least}")
    _check_decoding_precision(parser, options)
    if options.seed > LARGEST_SEED:
        parser.error(f"--seed {options.seed}: use at most {LARGEST_SEED}")
    return options


def _check_decoding_precision(parser, options):
    """It is for float32 on a CPU; elsewhere a model would compute as without it, and a number would mislead."""
    wanted = getattr(options, "decoding_precision", "float32")
    if wanted == "float32":
        return
    if (options.precision, options.device) != ("float32", "cpu"):
        parser.error(f"--decoding-precision {wanted} needs --precision float32 and --device cpu")
    lack = PRECISIONS[wanted].lack()
    if lack:
        parser.error(f"--decoding-precision {wanted}: {lack}; use float32")


def _set_windows(parser, options):
    """What the other commands have: lengths are those of whole windows, source and target alike."""
    if SOFTMAX not in options.models:
        parser.error(f"--models {' '.join(options.models)}: add {SOFTMAX}, which the others are compared with")
    places = [flag for flag in options.flags if flag.partition("=")[0].endswith("_attention")]
    if places:
        parser.error(f"--flags {' '.join(places)}: --models says where there is softmax; leave it out")
    options.models = [name for name in WINDOW_MODELS if name in options.models]
    options.windows = sorted(set(options.windows))
    options.lengths = [window * options.sentence_length for window in options.windows]
    options.source_length = None


def _check_generation(parser, options):
    """RFA and softmax must have a length in common, and the twin differs from the model that is compared with it."""
    options.source_length = None
    if options.softmax_most < options.lengths[0]:
        parser.error(
            f"--softmax-most {options.softmax_most}: use at least {options.lengths[0]}, the shortest of --lengths, at "
            "which RFA is compared with softmax"
        )
    places = [flag for flag in options.flags if flag.partition("=")[0].replace("-", "_") == "causal_attention"]
    if places:
        parser.error(f"--flags {' '.join(places)}: RFA is compared with softmax, which --baseline is; leave it out")


def _add_search(parser, batch_size=16, rows="sentences"):
    count = positive_number(int)
    parser.add_argument(
        "--batch-size", type=count, default=batch_size, metavar="N", help=f"{rows} at a time (default: {batch_size})"
    )
    parser.add_argument(
        "--decoding-precision",
        choices=tuple(PRECISIONS),
        default="float32",
        help="of the dense layers of RFA, twin and ctranslate2; fairseq's own models have float32 (default: float32)",
    )
    parser.add_argument("--beam", type=count, default=1, metavar="N", help="default: 1, which is greedy")


def _add_windows(parser):
    meaning = "sentences of a window, the translated one included"
    _add_sizes(parser, "--windows", positive_number(int), WINDOWS, meaning)
    parser.add_argument(
        "--sentence-length",
        type=sentence_length,
        default=25,
        metavar="N",
        help="tokens of each sentence of source and target, with the symbol that ends it (default: 25)",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=tuple(WINDOW_MODELS),
        default=tuple(WINDOW_MODELS),
        metavar="NAME",
        help=f"which of {', '.join(WINDOW_MODELS)} are compared; softmax is --baseline (default: all)",
    )


def _add_generation(parser):
    _add_sizes(parser, "--lengths", sentence_length, GENERATED, "tokens of a generated text")
    parser.add_argument(
        "--softmax-most",
        type=sentence_length,
        default=SOFTMAX_MOST,
        metavar="N",
        help="lengths up to which softmax is measured, too, whose time for a text grows with the square of the length "
        f"(default: {SOFTMAX_MOST})",
    )


def _add_sizes(parser, flag, kind, default, meaning):
    """An option with one or more numbers, at each of which everything is measured."""
    parser.add_argument(
        flag,
        type=kind,
        nargs="+",
        default=default,
        metavar="N",
        help=f"{meaning} (default: {' '.join(map(str, default))})",
    )


def _add_lengths(parser, lengths):
    _add_sizes(parser, "--lengths", sentence_length, lengths, "tokens of a target, and of its source")
    parser.add_argument(
        "--source-length", type=sentence_length, metavar="N", help="tokens of each source, whatever the target's"
    )


def _add_shared(parser, command, baselines, model="transformer_rfa"):
    count = positive_number(int)
    parser.add_argument(
        "--arch",
        choices=architectures(model),
        default=model,
        metavar="NAME",
        help=f"a named architecture of the plugin (default: {model})",
    )
    parser.add_argument(
        "--baseline",
        choices=baselines,
        default=baselines[0],
        help=f"{baselines[0]}: fairseq's own, of the same sizes; {TWIN}: --arch with softmax in place of RFA; "
        f"{CTRANSLATE2} (decode only): the same weights with softmax, converted by CTranslate2 "
        f"(default: {baselines[0]})",
    )
    parser.add_argument(
        "--flags",
        nargs="+",
        default=[],
        metavar="FLAG",
        help="flags of the model without dashes: rfa_feature_map=arccos rfa_gate no_rfa_fixed_matrices",
    )
    add_machine_options(parser)
    parser.add_argument("--precision", choices=tuple(DTYPES), default="float32", help="default: float32")
    parser.add_argument(
        "--repeats", type=count, default=3, metavar="N", help="measurements of each model (default: 3)"
    )
    parser.add_argument(
        "--vocabulary", type=count, default=10000, metavar="N", help="words of the dictionary (default: 10000)"
    )
    parser.add_argument(
        "--seed", type=count, default=1, metavar="N", help="of weights and sentences (default: 1)"
    )
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(f"{NAME}_{command}"),
        metavar="DIR",
        help=f"where the results go (default: {NAME}_{command})",
    )
