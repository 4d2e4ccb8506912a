"""The options of transfer, and what they mean for the model that it makes."""

import argparse
from dataclasses import field, make_dataclass

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from ..functional.encoding import FEATURE_MAPS
from ..functional.kernels import gaussian_kernel
from ..functional.random_matrices import LARGEST_SEED
from ..model.config import RFA_OPTIONS, add_switches
from ..model.parameters import NAMES_OF_RESET, OF_DECODER
from ..programs.program import parser_of, positive_number
from .kinds import KINDS

NAME = "transfer"
IMITATIONS = ("unit-length", "softmax")
NUM_SENTENCES = 200
DISTILL_TOKENS, DISTILL_LR = 4096, 0.03
START_OF_SIGMA = ("rfa_sigma_init", "rfa_cross_sigma_init")


def parse_arguments(arguments, description):
    """Exits with one line about an option that makes no sense.

    Returns:
        the options, and those of the attention that were given, by name.
    """
    parser = parser_of(NAME, description)
    parser.add_argument("input", metavar="IN", help=f"checkpoint of {', '.join(KINDS)}")
    parser.add_argument("output", metavar="OUT", help="where the converted one goes; an older file is replaced")
    parser.add_argument("--report", metavar="FILE", help="also write what is printed there, as JSON")
    parser.add_argument(
        "--to",
        choices=("rfa", "softmax"),
        required=True,
        help="rfa: a checkpoint of transformer_rfa or transformer_lm_rfa. softmax: one of fairseq's own transformer or "
        "transformer_lm, which needs no plugin",
    )
    parser.add_argument(
        "--reset-attention",
        choices=tuple(NAMES_OF_RESET),
        default="none",
        help="what of the attentions that change starts anew, as in a new model. none (default): nothing. "
        "projections: weights and biases of their query, key, value and output projections. all: those, sigma, the "
        "gate, a learned map, and the layer norms of these attentions",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of what starts anew and of the order of --distill-data (default: 1); the random matrices have --rfa-seed",
    )
    parser.add_argument(
        "--imitate",
        choices=IMITATIONS,
        help="unit-length (default, the paper's form): queries and keys of unit length, with the best sigma if "
        "--fit-data is given. softmax: they keep their lengths (--rfa-unnormalized) with sigma head_dim^-1/4, and "
        "the features estimate exp(q·k/√d) itself; needs many directions",
    )
    parser.add_argument(
        "--fit-data",
        metavar="BIN",
        help="folder of fairseq-preprocess; for unit length, sigma of each head becomes the one whose weights are "
        "nearest to those of softmax (least cross-entropy) on its sentences; the constants of oprf are fitted to "
        "its queries and keys as well, also with --imitate softmax",
    )
    parser.add_argument("--fit-subset", default="valid", help="of the data (default: valid)")
    parser.add_argument(
        "--fit-sentences",
        type=positive_number(int),
        default=NUM_SENTENCES,
        metavar="N",
        help=f"the first N of the subset (default: {NUM_SENTENCES})",
    )
    _add_distillation(parser)
    parser.add_argument(
        "--keep-training",
        action="store_true",
        help="OUT goes on with the training of IN, by --continue-once of fairseq-train: its updates, epoch and "
        "learning rate, and the optimizer's state of each parameter that is kept",
    )
    attention = parser.add_argument_group(
        "attention",
        "with --to rfa, those of transformer_rfa; by default those of a checkpoint of transformer_rfa, but rfa in "
        "both places of the decoder, and else the defaults of the model",
        argument_default=argparse.SUPPRESS,
    )
    add_switches(attention, RFA_OPTIONS)
    gen_parser_from_dataclass(attention, _RFAOptions(), delete_default=True, with_prefix="")
    options = parser.parse_args(arguments)
    given = {
        option.name: getattr(options, option.name) for option in RFA_OPTIONS if hasattr(options, option.name)
    }
    if not 0 <= options.seed <= LARGEST_SEED:
        parser.error(f"--seed is {options.seed}; use a number from 0 to {LARGEST_SEED}")
    _check_distillation(parser, options)
    return options, given


def _add_distillation(parser):
    group = parser.add_argument_group(
        "distillation",
        "the softmax attention of IN teaches the new attention: sigma, the gate, and what the feature map learns are "
        "trained until its outputs come near to those of softmax, each layer given the inputs of softmax "
        "(mean square error after the output projection); all else stays. It starts where --fit-data or the other "
        "options leave sigma",
    )
    group.add_argument("--distill-data", metavar="BIN", help="folder of fairseq-preprocess, of which train is read")
    add_learning_options(group, "steps of Adam")


def add_learning_options(group, about_updates):
    """How random features learn from softmax; `check_learning` fills in the defaults."""
    group.add_argument("--distill-updates", type=positive_number(int), metavar="K", help=about_updates)
    group.add_argument(
        "--distill-tokens",
        type=positive_number(int),
        metavar="N",
        help=f"most words of a batch on a side (default: {DISTILL_TOKENS})",
    )
    group.add_argument(
        "--distill-lr",
        type=positive_number(float),
        metavar="LR",
        help=f"learning rate, which falls to 0 along half a cosine (default: {DISTILL_LR:g})",
    )


def _check_distillation(parser, options):
    if (options.distill_data is None) != (options.distill_updates is None):
        given, missing = "--distill-data", "--distill-updates"
        if options.distill_data is None:
            given, missing = missing, given
        parser.error(f"{given} needs {missing}; give both or none")
    check_learning(parser, options)


def check_learning(parser, options):
    """Fill in the defaults."""
    for name, default in (("distill_tokens", DISTILL_TOKENS), ("distill_lr", DISTILL_LR)):
        if getattr(options, name) is None:
            setattr(options, name, default)
        elif options.distill_updates is None:
            parser.error(f"--{name.replace('_', '-')} needs --distill-updates; give both or none")


_RFAOptions = make_dataclass(
    "_RFAOptions",
    [
        (option.name, option.type, field(default=option.default, metadata=option.metadata))
        for option in RFA_OPTIONS
    ],
    bases=(FairseqDataclass,),
)


def attention_options(stored, given, imitate, fitted):
    """All options of random feature attention for a model, by name, and the way of imitation.

    Args:
        stored: by name, those of the checkpoint; some or none.
        given: by name, those that the user wants.
        imitate: one of `IMITATIONS`, or None for what the other options say.
        fitted: whether sigma is fitted to data.

    Raises:
        ValueError: they contradict each other.
    """
    options = {option.name: stored.get(option.name, option.default) for option in RFA_OPTIONS}
    options |= {f"{place}_attention": "rfa" for place in OF_DECODER} | given
    wanted = imitate
    if imitate is None:
        imitate = "softmax" if options["rfa_unnormalized"] else "unit-length"
    if given.get("rfa_unnormalized", imitate == "softmax") != (imitate == "softmax"):
        flag = "--rfa-unnormalized" if given["rfa_unnormalized"] else "--no-rfa-unnormalized"
        raise ValueError(f"{flag} contradicts --imitate {imitate}; leave one of them out")
    options["rfa_unnormalized"] = imitate == "softmax"
    name = options["rfa_feature_map"]
    estimates_softmax = name in FEATURE_MAPS and (
        FEATURE_MAPS[name].exponential or FEATURE_MAPS[name].kernel is gaussian_kernel
    )
    if imitate == "softmax":
        _check_softmax(options, given, name, estimates_softmax)
    elif wanted and name in FEATURE_MAPS and not FEATURE_MAPS[name].unit_length:
        raise ValueError(f"--imitate {wanted}: the map {name} never scales to unit length; leave the flag out")
    if fitted:
        _check_fit(given, imitate, name, estimates_softmax)
    return options, imitate


def _check_softmax(options, given, name, estimates_softmax):
    if not estimates_softmax:
        raise ValueError(f"--imitate softmax: the map {name} does not estimate exp(q·k); use {_suitable_maps()}")
    for start in START_OF_SIGMA:
        if given.get(start, 1.0) not in (1.0, None):
            raise ValueError(
                f"--{start.replace('_', '-')} {given[start]:g} contradicts --imitate softmax, whose sigma is "
                "head_dim^-1/4; leave it out"
            )
    options |= dict(zip(START_OF_SIGMA, (1.0, None)))


def _check_fit(given, imitate, name, estimates_softmax):
    if imitate == "softmax":
        if FEATURE_MAPS[name].constants is not None:
            return
        raise ValueError("--fit-data: with --imitate softmax there is nothing to fit; leave one of them out")
    if not estimates_softmax:
        raise ValueError(f"--fit-data: sigma is no temperature of the map {name}; use {_suitable_maps()}")
    for start in START_OF_SIGMA:
        if start in given:
            raise ValueError(f"--{start.replace('_', '-')} and --fit-data both say what sigma is; leave one out")


def _suitable_maps():
    return ", ".join(
        name for name, known in FEATURE_MAPS.items() if known.exponential or known.kernel is gaussian_kernel
    )
