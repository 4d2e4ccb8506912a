"""A checkpoint with the other attention, and what was done to its parameters."""

from argparse import Namespace
from itertools import chain

from ..model.directions import settle_directions
from ..model.parameters import PLACES, RFA_PARAMETERS, exchange, names_to_reset
from . import checkpoint as checkpoints
from .constants import measure_moments, set_constants
from .distillation import distill, relative_errors
from .kinds import KINDS
from .options import NAME, attention_options
from .report import Report, describe_constants, describe_distillation, describe_sigma, signature
from .temperature import fit_sigma, set_sigma
from .training_state import keep_training as keep_state


def convert(
    checkpoint,
    to,
    imitate=None,
    reset_attention="none",
    seed=1,
    batches=None,
    distillation=None,
    keep_training=False,
    **given,
):
    """A checkpoint with the other attention.

    Args:
        checkpoint: as fairseq's load_checkpoint_to_cpu returns it; it is not changed, but shares tensors with the
            result.
        to: "rfa" or "softmax".
        imitate: with "rfa", "unit-length" or "softmax"; None for what the other options say.
        reset_attention: "none", "projections" or "all", of the attentions that change.
        seed: of what is drawn anew.
        batches: samples of fairseq to fit σ to; None to leave it as the options say.
        distillation: a `Distillation` of the attentions that change, with "rfa" only; None for none.
        keep_training: the result goes on with the training of the checkpoint.
        given: options of transformer_rfa or transformer_lm_rfa, with "rfa" only.

    Returns:
        the checkpoint and a `Report`.

    Raises:
        ValueError: another model, a checkpoint that does not fit its own options, options that contradict each
            other, or nothing to convert or to distil.
        FloatingPointError: distillation led to an error that is not finite.
    """
    source = checkpoints.model_options(checkpoint)
    kind = KINDS[source.arch]
    if to == "rfa":
        _refuse_options_of_other_kinds(given, kind)
        options, imitate = attention_options(_stored_options(source), given, imitate, batches is not None)
        options = {option.name: options[option.name] for option in kind.options}
    else:
        _refuse_options(given, imitate, batches, distillation)
        options = {f"{place}_attention": "softmax" for place in kind.places}
    for flag, asked in (("--fit-data fits sigma to", batches), ("--distill-data distils", distillation)):
        if asked is not None and reset_attention != "none":
            raise ValueError(f"--reset-attention {reset_attention} throws away what {flag}; leave one of them out")
    changed = _places_that_change(source, to, options)

    before = checkpoint["model"]
    state = checkpoints.parameters(checkpoint, kind)
    old = checkpoints.build(source, state, seed)
    checkpoints.check(state, old)
    target = Namespace(**{**vars(source), **options})
    target.arch = target._name = kind.ours if to == "rfa" else kind.plain
    if to == "rfa":
        settle_directions(target)
    new = checkpoints.build(target, state, seed)

    report = Report()
    report.outdated = _sizes(before, before.keys() - state.keys())
    report.upgraded = _sizes(state, state.keys() - before.keys())
    old.load_state_dict(dict(state))
    if batches is not None:
        if imitate == "unit-length":
            fitted = fit_sigma(old, batches, changed)
            set_sigma(new, fitted)
            report.notes += describe_sigma(fitted, options["rfa_feature_map"])
        else:
            report.notes.append(_describe_start(options, imitate, changed))
        moments = measure_moments(old, new, batches, changed)
        set_constants(new, moments)
        report.notes += describe_constants(new, moments)
    elif to == "rfa":
        report.notes.append(_describe_start(options, imitate, changed))
    if distillation is not None:
        new.load_state_dict(dict(state))
        report.distillation = _distill(old, new, changed, distillation)
        report.notes += describe_distillation(report.distillation)
    _exchange(state, new, kind.sides, report)
    checkpoints.check(state, new)
    _reset(state, new, names_to_reset(state, reset_attention, changed), report)
    told = {*report.upgraded, *report.added, *report.reset}
    report.kept = _sizes(state, [name for name in state if name not in told])
    details = {"imitate": imitate} if to == "rfa" else {}
    details |= {"reset": reset_attention} | ({"seed": seed} if report.reset or report.distillation else {})
    report.signature = signature(source, target, state, details)
    converted = checkpoints.renewed(checkpoint, state, target)
    if keep_training:
        report.training = keep_state(converted, checkpoint, old, new, {*report.added, *report.reset})
    return converted, report


def _stored_options(source):
    """By name, what the model says of its random features; where it has softmax, its number of directions is only the
    default of a map that it never used, and another map may have another."""
    kind = KINDS[source.arch]
    if source.arch != kind.ours:
        return {}
    unused = [f"rfa_{place}_dim" for place in kind.places if getattr(source, f"{place}_attention") == "softmax"]
    return {name: value for name, value in vars(source).items() if name not in unused}


def _refuse_options(given, imitate, batches, distillation):
    flags = [f"--{name.replace('_', '-')}" for name in given]
    others = {"--imitate": imitate, "--fit-data": batches, "--distill-data": distillation}
    flags += [flag for flag, value in others.items() if value is not None]
    if flags:
        raise ValueError(f"{flags[0]} says how random features imitate softmax; leave it out with --to softmax")


def _refuse_options_of_other_kinds(given, kind):
    known = [option.name for option in kind.options]
    for name in given:
        if name not in known:
            raise ValueError(f"--{name.replace('_', '-')}: {kind.ours} has no such option; leave it out")


def _places_that_change(source, to, options):
    """Raises ValueError where there is none, or where an attention that stays would mean something else."""
    kind = KINDS[source.arch]
    places = [place for place in kind.places if place != "cross" or not source.no_cross_attention]
    before = {place: getattr(source, f"{place}_attention", "softmax") for place in places}
    after = {place: options[f"{place}_attention"] for place in places}
    if to == "rfa" and "rfa" not in after.values():
        raise ValueError("the options of attention leave no random features; use --to softmax")
    changed = [place for place in places if before[place] != after[place]]
    if not changed and (to == "rfa" or source.arch == kind.plain):
        stays = ", and the encoder is to stay as it is" if "encoder" in kind.sides else ""
        raise ValueError(f"the decoder of the checkpoint has {to} already{stays}; there is nothing to convert")
    stays = [place for place in places if before[place] == after[place] == "rfa"]
    if stays and bool(source.rfa_unnormalized) != options["rfa_unnormalized"]:
        raise ValueError(
            f"the {stays[0]} attention stays as it is, and its sigma would mean something else; "
            f"use --imitate {'softmax' if source.rfa_unnormalized else 'unit-length'} as in the checkpoint"
        )
    return changed


def _distill(old, new, places, distillation):
    """What the report says of it; the new model has the parameters of the old one."""
    before = relative_errors(old, new, places, distillation.held_out)
    distill(old, new, places, distillation.batches, distillation.updates, distillation.lr, NAME)
    after = relative_errors(old, new, places, distillation.held_out)
    return {
        "updates": distillation.updates,
        "lr": distillation.lr,
        "relative_errors": {place: {"before": before[place], "after": after[place]} for place in places},
    }


def _exchange(state, new, sides, report):
    """Parameters that start anew have the precision of the others."""
    precision = next(value.dtype for name, value in state.items() if name.startswith("decoder.embed_tokens."))
    own = {
        name: value.to(precision) for name, value in new.state_dict().items() if name.endswith(RFA_PARAMETERS)
    }
    before = dict(state)
    exchanged = [exchange(state, own, side, f"{side}.") for side in sides]
    report.dropped = _sizes(before, chain(*(dropped for dropped, _ in exchanged)))
    report.added = _sizes(state, chain(*(added for _, added in exchanged)))


def _reset(state, new, names, report):
    fresh = new.state_dict()
    names = [name for name in names if name not in report.added]
    for name in names:
        state[name] = fresh[name].to(state[name].dtype)
        report.upgraded.pop(name, None)
    report.reset = _sizes(state, names)


def _sizes(state, names):
    names = set(names)
    return {name: tuple(value.shape) for name, value in state.items() if name in names}


def _describe_start(options, imitate, changed):
    if imitate == "softmax":
        return "sigma of the new attentions is head_dim^-1/4, that of softmax"
    start = options["rfa_sigma_init"]
    starts = {**dict.fromkeys(PLACES, start), "cross": options.get("rfa_cross_sigma_init") or start}
    values = ", ".join(f"{starts[place]:g} in {place} attention" for place in changed)
    return f"sigma starts at {values}, fitted to nothing; --fit-data would fit it"
