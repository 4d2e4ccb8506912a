"""The options of transformer_rfa and what they may be."""

import argparse
import math
from dataclasses import dataclass, field, fields
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.models.transformer import TransformerConfig

from ..attention.decoding_precision import PRECISIONS
from ..functional.encoding import FEATURE_MAPS
from ..functional.linear_attention import DENOMINATOR_FLOOR
from ..functional.random_matrices import LARGEST_SEED
from .directions import NUMBERS
from .refusals import flag_of, refusal_of
from .sides import validate_side

ATTENTIONS = ("rfa", "softmax")


@dataclass
class TransformerRFAConfig(TransformerConfig):
    causal_attention: ChoiceEnum(ATTENTIONS) = field(
        default="rfa", metadata={"help": "attention of the decoder to its own prefix"}
    )
    cross_attention: ChoiceEnum(ATTENTIONS) = field(
        default="rfa", metadata={"help": "attention of the decoder to the encoder's output"}
    )
    encoder_attention: ChoiceEnum(ATTENTIONS) = field(
        default="softmax", metadata={"help": "attention of the encoder to its sentence"}
    )
    rfa_feature_map: ChoiceEnum(tuple(FEATURE_MAPS)) = field(
        default="gaussian",
        metadata={
            "help": "feature map: gaussian is the paper's; hedgehog, with fewer entries, is for models that begin with "
            "softmax and are distilled"
        },
    )
    rfa_causal_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "number of directions of a head in causal attention (default: 64, with hedgehog a head's width)"
        },
    )
    rfa_cross_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "number of directions of a head in cross attention (default: 128, with hedgehog a head's width)"
        },
    )
    rfa_encoder_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "number of directions of a head in the encoder (default: 128, with hedgehog a head's width)"
        },
    )
    rfa_gate: bool = field(default=False, metadata={"help": "gate the causal state"})
    rfa_gate_bias: float = field(
        default=2.0, metadata={"help": "where the gate's bias starts; the gate is its sigmoid"}
    )
    rfa_sentence_gate: bool = field(
        default=False,
        metadata={"help": "gate the causal state at the ends of sentences alone, with --task document_translation"},
    )
    rfa_sentence_gate_bias: float = field(
        default=2.0, metadata={"help": "where the bias of the sentence gate starts; the gate is its sigmoid"}
    )
    rfa_num_matrices: int = field(
        default=200, metadata={"help": "number of random matrices in the pool of each attention"}
    )
    rfa_seed: int = field(
        default=1, metadata={"help": "seed of the pools, whatever the seed of the training"}
    )
    rfa_orthogonal: bool = field(
        default=False, metadata={"help": "orthogonal rows in blocks of a head's width"}
    )
    rfa_fixed_matrices: bool = field(
        default=True,
        metadata={"help": "train with the matrices of evaluation instead of draws from the pool"},
    )
    rfa_exact_updates: int = field(
        default=0,
        metadata={
            "help": "so many first updates of a training meet the exact kernel in place of features, in time that "
            "grows with the square of the length; validation and decoding always meet features"
        },
    )
    rfa_sigma_init: float = field(default=1.0, metadata={"help": "where sigma starts"})
    rfa_cross_sigma_init: Optional[float] = field(
        default=None,
        metadata={"help": "where sigma starts in cross attention, if not where --rfa-sigma-init says"},
    )
    rfa_fixed_sigma: bool = field(default=False, metadata={"help": "do not train sigma"})
    rfa_unnormalized: bool = field(
        default=False,
        metadata={
            "help": "queries and keys keep their lengths (appendix A.4); sigma then starts at "
            "--rfa-sigma-init times head_dim^-1/4, where 1 is the scale of softmax"
        },
    )
    rfa_local_window: int = field(
        default=0,
        metadata={
            "help": "number of newest keys in causal attention that meet the exact kernel in place of features"
        },
    )
    rfa_denominator_floor: float = field(
        default=DENOMINATOR_FLOOR,
        metadata={"help": "smallest denominator of attention without a gate"},
    )
    rfa_gate_denominator_floor: float = field(
        default=0.01,
        metadata={"help": "smallest denominator of gated causal attention"},
    )
    rfa_chunk_size: int = field(
        default=64,
        metadata={"help": "positions of a chunk in causal attention: a speed, not a result"},
    )
    rfa_monitor: Optional[bool] = field(
        default=None,
        metadata={
            "help": "write for TensorBoard how often each layer meets the smallest denominator, and the means of "
            "sigma and of the gate; without this flag done where --tensorboard-logdir is given and --tpu is not"
        },
    )
    decoding_precision: ChoiceEnum(tuple(PRECISIONS)) = field(
        default="float32",
        metadata={
            "help": "of the products of large dense layers while a model decodes on a CPU; training does not read it"
        },
    )

    def __setattr__(self, name, value):
        if name == "encoder_attention":  # which fairseq would take for an option of its part encoder
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def validate(self):
        """Refuse values and combinations that make no sense, in one line that names the remedy.

        Raises:
            ValueError
        """
        for option in RFA_OPTIONS:
            _check_type(option, getattr(self, option.name))
        for name, allowed in (
            ("causal_attention", ATTENTIONS),
            ("cross_attention", ATTENTIONS),
            ("encoder_attention", ATTENTIONS),
            ("rfa_feature_map", tuple(FEATURE_MAPS)),
            ("decoding_precision", tuple(PRECISIONS)),
        ):
            if getattr(self, name) not in allowed:
                raise refusal_of(self, name, f"one of {', '.join(allowed)}")
        for name in (*NUMBERS, "rfa_num_matrices", "rfa_chunk_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise refusal_of(self, name, "at least 1")
        for name in (
            "rfa_sigma_init",
            "rfa_cross_sigma_init",
            "rfa_denominator_floor",
            "rfa_gate_denominator_floor",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise refusal_of(self, name, "a finite number greater than 0")
        if self.rfa_local_window < 0:
            raise refusal_of(self, "rfa_local_window", "0 (no window) or more")
        if self.rfa_exact_updates < 0:
            raise refusal_of(self, "rfa_exact_updates", "0 (features from the start) or more")
        for name in ("rfa_gate_bias", "rfa_sentence_gate_bias"):
            if not math.isfinite(getattr(self, name)):
                raise refusal_of(self, name, "a finite number")
        if not 0 <= self.rfa_seed <= LARGEST_SEED:
            raise refusal_of(self, "rfa_seed", f"a number from 0 to {LARGEST_SEED}")
        sides = {"decoder": (self.causal_attention, self.cross_attention), "encoder": (self.encoder_attention,)}
        with_features = [side for side, attentions in sides.items() if "rfa" in attentions]
        if with_features:
            self._validate_feature_map()
        for side in with_features:
            validate_side(self, side)

    def _validate_feature_map(self):
        name = self.rfa_feature_map
        feature_map = FEATURE_MAPS[name]
        for option in ("rfa_local_window", "rfa_exact_updates"):
            if getattr(self, option) and feature_map.kernel is None:
                raise ValueError(
                    f"{flag_of(option)} is {getattr(self, option)}, but the map {name} is its own kernel and "
                    "estimates no other; use 0, or one of the maps "
                    + ", ".join(other for other in FEATURE_MAPS if FEATURE_MAPS[other].kernel)
                )
        gates = [flag_of(name) for name in ("rfa_gate", "rfa_sentence_gate") if getattr(self, name)]
        if self.causal_attention == "rfa" and gates:
            if len(gates) == 2:
                raise ValueError(f"{' and '.join(gates)} gate the same sums; leave one of them out")
            if self.rfa_exact_updates:
                raise ValueError(
                    f"--rfa-exact-updates is {self.rfa_exact_updates}, but the exact kernel has no gate; use 0, or "
                    f"leave {gates[0]} out"
                )
        if self.rfa_orthogonal and feature_map.source != "pool":
            raise ValueError(f"--rfa-orthogonal: the map {name} has no random directions; drop the flag")
        if self.rfa_unnormalized and not feature_map.unit_length:
            raise ValueError(
                f"--rfa-unnormalized: the map {name} never scales queries and keys; drop the flag"
            )


RFA_OPTIONS = [
    option
    for option in fields(TransformerRFAConfig)
    if option.name not in TransformerConfig.__dataclass_fields__
]


def add_switches(parser, options):
    """--name and --no-name for each of the options that is on or off, so that a flag wins over any preset."""
    for option in options:
        if _type_of(option) is bool:
            parser.add_argument(
                flag_of(option.name),
                action=argparse.BooleanOptionalAction,
                help=option.metadata["help"],
            )


def _check_type(option, value):
    kind = _type_of(option)
    expected = {int: (int,), float: (int, float), bool: (bool,)}.get(kind)
    if expected is None or (value is None and kind is not option.type):
        return
    if not isinstance(value, expected) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{flag_of(option.name)} is {value!r}; use a value of type {kind.__name__}")


def _type_of(option):
    """Without the None of an option that may be left open."""
    return {Optional[float]: float, Optional[bool]: bool, Optional[int]: int}.get(option.type, option.type)
