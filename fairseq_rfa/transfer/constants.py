"""The constants of a feature map that fit the queries and keys of a trained softmax attention best."""

import torch

from ..attention.base import RandomFeatureAttention
from ..functional.oprf_constants import Observed
from ..model.parameters import OF_DECODER, attentions_of
from .watch import softmax_attentions, watch


def measure_moments(model, student, batches, places=OF_DECODER):
    """What the constants depend on, in one teacher-forced pass over the batches.

    Args:
        model: with softmax, as `fit_sigma` takes it.
        student: a model of this package that gets its parameters; its σ and whether it scales to unit length count.
        batches, places: as `fit_sigma` takes them.

    Returns:
        by place, the `Moments` of each layer, where the student's map has constants.

    Raises:
        ValueError: no batch.
    """
    attentions = {
        place: modules
        for place, modules in softmax_attentions(model, places).items()
        if with_constants(student, place)
    }
    seen = {place: [Observed() for _ in modules] for place, modules in attentions.items()}

    def see(place, layer, q, k, hidden, counts):
        attention = with_constants(student, place)[layer]
        sigma = attention.sigma.detach().to(q)
        q, k = (attention.feature_map.scale(x, sigma, attention.unnormalized) for x in (q, k))
        seen[place][layer].add(q, k, ~hidden & counts.unsqueeze(-1))

    watch(model, attentions, batches, see)
    return {place: [observed.moments() for observed in layers] for place, layers in seen.items()}


@torch.no_grad()
def set_constants(student, moments):
    """Fill the constants of a model's maps with those that fit the moments best."""
    for place, layers in moments.items():
        for attention, of_layer in zip(with_constants(student, place), layers):
            for kind, value in attention.feature_map.constants(of_layer)._asdict().items():
                getattr(attention, attention.feature_map.parameters[kind]).copy_(value)


def with_constants(model, place):
    """The attentions of a place in all layers, if their map has constants."""
    attentions = attentions_of(model, place)
    has = all(isinstance(x, RandomFeatureAttention) and x.feature_map.constants for x in attentions)
    return attentions if has else []
