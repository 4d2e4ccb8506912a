"""The options of kernel_study."""

from pathlib import Path

from ..functional.linear_attention import DENOMINATOR_FLOOR
from ..functional.random_matrices import LARGEST_SEED
from ..programs.program import add_machine_options, parser_of, positive_number

NAME = "kernel_study"
DIRECTIONS = (16, 32, 64, 128, 256, 512, 1024)
HEAD_DIM = 64
NUM_SENTENCES = 16


def parse_arguments(arguments, description):
    """Exits with one line about an option that makes no sense."""
    count, size = positive_number(int), positive_number(float)
    parser = parser_of(NAME, description)
    parser.add_argument(
        "--out", type=Path, default=Path(NAME), metavar="DIR", help=f"where the results go (default: {NAME})"
    )
    parser.add_argument(
        "--directions",
        type=count,
        nargs="+",
        default=DIRECTIONS,
        metavar="D",
        help="numbers of random directions of a head (default: 16 to 1024)",
    )
    parser.add_argument(
        "--sigma",
        type=size,
        nargs="+",
        default=[1.0],
        metavar="SIGMA",
        help="the width σ, with a checkpoint a factor of its own σ (default: 1)",
    )
    parser.add_argument(
        "--seeds", type=count, default=10, metavar="N", help="repetitions, with the seeds 1 to N (default: 10)"
    )
    parser.add_argument(
        "--head-dim",
        type=count,
        metavar="D",
        help=f"width d of a head (default: {HEAD_DIM}, or that of the checkpoint)",
    )
    parser.add_argument(
        "--positions", type=count, default=128, metavar="N", help="drawn queries, and drawn keys (default: 128)"
    )
    parser.add_argument(
        "--floor",
        type=size,
        default=DENOMINATOR_FLOOR,
        help=f"smallest denominator, which positive and oprf do not have (default: {DENOMINATOR_FLOOR})",
    )
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="also queries and keys of this model")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of fairseq-preprocess, with --checkpoint"
    )
    parser.add_argument("--subset", default="valid", help="of the data (default: valid)")
    parser.add_argument(
        "--sentences",
        type=count,
        default=NUM_SENTENCES,
        metavar="N",
        help=f"the first N of the subset (default: {NUM_SENTENCES})",
    )
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    if (options.checkpoint is None) != (options.data is None):
        parser.error("--checkpoint and --data belong together; give both or neither")
    if options.checkpoint and options.head_dim:
        parser.error("--head-dim is that of the checkpoint; leave it out")
    if options.seeds > LARGEST_SEED:
        parser.error(f"--seeds {options.seeds}: there are {LARGEST_SEED} of them")
    return options
