"""The models of zero_shot: one trained with softmax, and others with its parameters and features."""

from argparse import Namespace
from typing import Any, NamedTuple

from fairseq.models.transformer import TransformerModelBase
from omegaconf import OmegaConf

from ..attention.base import RandomFeatureAttention
from ..functional.encoding import FEATURE_MAPS
from ..model.parameters import PLACES
from ..model.transformer import TransformerRFAModel
from ..programs.trained_model import load_trained
from ..transfer.constants import set_constants
from ..transfer.temperature import set_sigma
from .cases import SITES
from .limit import to_the_limit

NEXT_TO_NOTHING = 1e-6
"""A σ with which the kernel of all pairs is the same."""


class Trained(NamedTuple):
    model: TransformerModelBase
    """in float32, in evaluation"""
    options: dict
    """of the model"""
    task: Any


def load(checkpoint, data, subsets, device):
    """A Transformer with softmax in all places; the task has the subsets.

    Raises:
        ValueError: the checkpoint or the data cannot be read, or this is another model.
    """
    model, cfg, task = load_trained(checkpoint, data, subsets)
    if not isinstance(model, TransformerModelBase):
        raise ValueError(f"'{checkpoint}' is a {type(model).__name__}; use a Transformer")
    if any(isinstance(module, RandomFeatureAttention) for module in model.modules()):
        raise ValueError(
            f"'{checkpoint}' has random feature attention already; "
            "use one trained with --causal-attention softmax --cross-attention softmax --encoder-attention softmax"
        )
    options = cfg.model
    if OmegaConf.is_config(options):
        options = OmegaConf.to_container(options, resolve=True)
    else:
        options = vars(options)
    return Trained(model.float().to(device).eval(), options, task)


def converted(trained, case, fitted=None, moments=None):
    """The model of a case: the same parameters, in memory.

    Args:
        fitted: what `fit_sigma` found, for the way unit-length.
        moments: what `measure_moments` found for this way, for a map with constants.

    Raises:
        ValueError: the options of the model go with softmax alone.
    """
    if case.kind == "softmax":
        return trained.model
    model = TransformerRFAModel.build_model(Namespace(**trained.options | _options(case)), trained.task)
    model.load_state_dict(dict(trained.model.state_dict()), strict=True)
    if case.imitate == "unit-length":
        set_sigma(model, {place: fitted[place] for place in SITES[case.sites]})
    if moments is not None:
        set_constants(model, {place: moments[place] for place in SITES[case.sites]})
    if case.kind != "features":
        to_the_limit(model)
    return model.to(_device(trained.model)).eval()


def _options(case):
    """Options of transformer_rfa that differ from those of the trained model."""
    options = {
        "arch": "transformer_rfa",
        **{f"{place}_attention": "rfa" if place in SITES[case.sites] else "softmax" for place in PLACES},
        "rfa_feature_map": case.map or "positive",
        "rfa_seed": case.seed or 1,
        "rfa_unnormalized": case.imitate == "softmax",
        "rfa_sigma_init": NEXT_TO_NOTHING if case.kind == "equal" else 1.0,
        "rfa_cross_sigma_init": None,
        "rfa_gate": False,
        "rfa_local_window": 0,
        "rfa_exact_updates": 0,
        "rfa_orthogonal": False,
        "rfa_monitor": False,
    }
    if FEATURE_MAPS[options["rfa_feature_map"]].source is not None:
        options |= {f"rfa_{place}_dim": case.directions or 1 for place in SITES[case.sites]}
    if case.floor is not None:
        options["rfa_denominator_floor"] = case.floor
    return options


def _device(model):
    return next(model.parameters()).device
