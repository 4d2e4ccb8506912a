"""What a conversion did, by the names of the parameters."""

import re
from dataclasses import asdict, dataclass, field

import torch

from ..functional.encoding import FEATURE_MAPS
from ..model.parameters import OF_DECODER, attentions_of
from ..programs.program import write_json
from ..programs.signature import commit, version
from .kinds import KINDS

MEANINGS = {
    "kept": "as they were",
    "outdated": "of an older release of fairseq, left out or under other names now",
    "upgraded": "under the names of this release of fairseq",
    "added": "that the new attention needs",
    "dropped": "that the new attention does not have",
    "reset": "drawn anew",
}
NOT_CONVERTED = "state of optimizer, learning rate, iterator and meters"


@dataclass
class Report:
    """Names of parameters with their sizes in `kept`, …, `reset`; each parameter stands in one of them."""

    kept: dict = field(default_factory=dict)
    outdated: dict = field(default_factory=dict)
    upgraded: dict = field(default_factory=dict)
    added: dict = field(default_factory=dict)
    dropped: dict = field(default_factory=dict)
    reset: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)
    """Sentences about sigma and what else is not a name."""
    distillation: dict = field(default_factory=dict)
    """With the errors before and after it; empty without one."""
    training: tuple | None = None
    """After how many updates the training goes on, and for how many parameters the optimizer's state is kept."""
    signature: dict = field(default_factory=dict)

    def text(self):
        lines = []
        for name, meaning in MEANINGS.items():
            sizes = getattr(self, name)
            if not sizes and name in ("outdated", "upgraded"):
                continue
            lines.append(f"{name} {len(sizes)} parameters {meaning}" + (":" if sizes else ""))
            lines += [f"  {line}" for line in _by_layer(sizes)]
        if self.training is None:
            lines.append(f"left out: {NOT_CONVERTED}")
        else:
            updates, number = self.training
            lines.append(f"training goes on after {updates} updates, the optimizer knows {number} parameters")
        return "\n".join([*lines, *self.notes, self.signature_line()])

    def write(self, path):
        """As JSON. Raises OSError."""
        write_json(asdict(self), path)

    def signature_line(self):
        return "|".join(f"{name}:{value}" for name, value in self.signature.items())


def _by_layer(sizes):
    """One line for the same parameter of several layers: encoder.layers.0,1,2.fc1.weight (256, 128)"""
    layers = {}
    for name, size in sizes.items():
        found = re.fullmatch(r"(.*\.layers\.)(\d+)(\..*)", name)
        parts = (found[1], found[3]) if found else (name, "")
        layers.setdefault((parts, size), []).append(found[2] if found else "")
    return [
        f"{begin}{','.join(numbers)}{end} {size}" for ((begin, end), size), numbers in layers.items()
    ]


def describe_sigma(fitted, feature_map):
    """Lines about what `fit_sigma` found, and about what the map makes of it."""
    lines = ["sigma of each head, fitted to softmax:"]
    for place, sigmas in fitted.items():
        for layer, sigma in enumerate(sigmas):
            values = " ".join(f"{value:.3f}" for value in sigma.tolist())
            lines.append(f"  {place} attention of layer {layer}: {values}")
    if not FEATURE_MAPS[feature_map].exponential:
        lines.append(
            f"sharp weights, of a great sigma, need very many directions of the map {feature_map}; "
            "without further training positive, or no --fit-data, may be nearer to softmax"
        )
    return lines


def describe_constants(model, fitted):
    """Lines about the constants that fit the queries and keys of softmax, by place."""
    lines = []
    for place in fitted:
        for layer, attention in enumerate(attentions_of(model, place)):
            for name in attention.feature_map.parameters.values():
                value = getattr(attention, name).detach()
                values = " ".join(f"{of_head:.3f}" for of_head in value.reshape(len(value), -1).mean(-1).tolist())
                lines.append(f"  {name} in {place} attention of layer {layer}: {values}")
    return ["constants of each head, fitted to its queries and keys, ψ as its mean:", *lines] if lines else []


def describe_distillation(distillation):
    """Lines about how near the attentions came to softmax."""
    lines = [
        f"distilled by {distillation['updates']:,} updates; relative error of the outputs of attention, "
        "‖student − teacher‖² / ‖teacher‖², before and after:"
    ]
    for place, errors in distillation["relative_errors"].items():
        for layer, (before, after) in enumerate(zip(errors["before"], errors["after"])):
            lines.append(f"  {place} attention of layer {layer}: {before:.4f} {after:.4f}")
    return lines


def signature(source, target, state, details):
    """All that a conversion depends on.

    Args:
        source, target: options of both models.
        state: parameters of the result.
        details: by name, how it was converted.
    """
    sign = {"from": describe_model(source), "to": describe_model(target), **details}
    kinds = sorted({str(value.dtype).removeprefix("torch.") for name, value in state.items() if "_proj." in name})
    return {
        **sign,
        "precision": ",".join(kinds),
        "device": "cpu",
        "torch": torch.__version__,
        "fairseq": version("fairseq"),
        "fairseq_rfa": version("fairseq_rfa"),
        "commit": commit(),
    }


def describe_model(options):
    """Model, sizes, attentions and features in a few words."""
    kind = KINDS[options.arch]
    layers = "+".join(str(getattr(options, f"{side}_layers")) for side in kind.sides)
    words = [options.arch, f"{layers} layers of {options.decoder_embed_dim}"]
    places = [place for place in OF_DECODER if place in kind.places]
    places += ["encoder"] * (getattr(options, "encoder_attention", "softmax") == "rfa")
    attentions = [getattr(options, f"{place}_attention", "softmax") for place in places]
    words.append("/".join(attentions))
    if "rfa" in attentions:
        words += [
            str(options.rfa_feature_map),
            "/".join(str(getattr(options, f"rfa_{place}_dim")) for place in places),
            f"seed {options.rfa_seed}",
        ]
        words += ["gate"] * bool(options.rfa_gate) + ["unnormalized"] * bool(options.rfa_unnormalized)
    return " ".join(words)
