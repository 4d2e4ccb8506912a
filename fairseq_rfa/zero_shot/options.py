"""The options of zero_shot."""

from pathlib import Path

from ..functional.encoding import FEATURE_MAPS
from ..functional.linear_attention import DENOMINATOR_FLOOR
from ..functional.random_matrices import LARGEST_SEED
from ..programs.program import add_machine_options, parser_of, positive_number
from ..transfer.options import add_learning_options, check_learning
from .cases import SITES, WAYS

NAME = "zero_shot"
DIRECTIONS = (16, 32, 64, 128, 256, 512, 1024, 2048)
FLOORS = (DENOMINATOR_FLOOR, 0.01, 0.001)
NUM_SENTENCES = 200


def parse_arguments(arguments, description):
    """Exits with one line about an option that makes no sense."""
    parser = parser_of(NAME, description)
    _add_model_options(parser)
    _add_case_options(parser)
    _add_score_options(parser)
    options = parser.parse_args(arguments)
    check_learning(parser, options)
    for name in ("maps", "directions", "seeds", "imitate", "sites", "floors", "bleu_directions"):
        setattr(options, name, list(dict.fromkeys(getattr(options, name))))
    options.directions.sort()
    if set(options.bleu_directions) - set(options.directions):
        parser.error(
            f"--bleu-directions {' '.join(map(str, options.bleu_directions))}: "
            f"use some of --directions {' '.join(map(str, options.directions))}"
        )
    if max(options.seeds) > LARGEST_SEED:
        parser.error(f"--seeds {max(options.seeds)}: use numbers from 1 to {LARGEST_SEED}")
    return options


def _add_model_options(parser):
    count = positive_number(int)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of fairseq-preprocess")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, metavar="FILE", help="a Transformer trained with softmax"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(NAME), metavar="DIR", help=f"where the results go (default: {NAME})"
    )
    parser.add_argument("--subset", default="valid", help="of the data, to measure on (default: valid)")
    parser.add_argument(
        "--sentences",
        type=count,
        default=NUM_SENTENCES,
        metavar="N",
        help=f"the first N of the subset (default: {NUM_SENTENCES})",
    )
    parser.add_argument("--fit-subset", default="train", help="of the data, to fit σ on (default: train)")
    parser.add_argument(
        "--fit-sentences",
        type=count,
        default=NUM_SENTENCES,
        metavar="N",
        help=f"the first N of that subset (default: {NUM_SENTENCES})",
    )
    add_machine_options(parser)


def _add_case_options(parser):
    count, size = positive_number(int), positive_number(float)
    parser.add_argument(
        "--maps", nargs="+", choices=tuple(FEATURE_MAPS), default=list(FEATURE_MAPS), help="default: all"
    )
    parser.add_argument(
        "--directions",
        type=count,
        nargs="+",
        default=DIRECTIONS,
        metavar="D",
        help="random directions of a head, in each attention that has features (default: 16 to 2048)",
    )
    parser.add_argument(
        "--seeds", type=count, nargs="+", default=[1, 2, 3], metavar="N", help="of the matrices (default: 1 2 3)"
    )
    parser.add_argument(
        "--imitate", nargs="+", choices=WAYS, default=list(WAYS), help="see above (default: both ways)"
    )
    parser.add_argument(
        "--sites",
        nargs="+",
        choices=tuple(SITES),
        default=["both"],
        help="which attention has features: causal or cross of the decoder, both of them, that of the encoder, or all "
        "three at once (default: both)",
    )
    parser.add_argument(
        "--floors",
        type=size,
        nargs="+",
        default=FLOORS,
        metavar="F",
        help="smallest denominators: the first everywhere, the others at the greatest number of directions and in "
        f"the limit, where a map imitates softmax; positive has none (default: {' '.join(map(str, FLOORS))})",
    )
    add_learning_options(
        parser,
        "also measure features that K updates on train have brought nearer to softmax (distillation), with the first "
        "of --floors (default: none)",
    )


def _add_score_options(parser):
    count = positive_number(int)
    parser.add_argument("--beam", type=count, default=1, metavar="N", help="of the translations (default: 1)")
    parser.add_argument(
        "--bleu-directions",
        type=count,
        nargs="*",
        default=[],
        metavar="D",
        help="also translate and score, with so many directions, the first of --sites and the first of --seeds "
        "(default: translate nothing)",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE",
        help="raw target text of the subset, with --bleu-directions (default: DATA/../raw/SUBSET.TARGET)",
    )
