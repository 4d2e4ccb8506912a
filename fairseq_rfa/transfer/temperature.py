"""The σ with which queries and keys of unit length come nearest to a trained softmax attention.

Softmax weighs key k for query q by exp(q·k / √d), an attention of unit length by exp(σ² q̂·k̂). For each head the
best σ is the one with the least cross-entropy between the two, summed over all queries of some sentences. In σ² that
is a convex function whose slope, Σ (mean of q̂·k̂ under the second − mean under the first), is 0 at the best place; it
is found by halving an interval of log σ.
"""

import math

import torch
import torch.nn.functional as F

from ..attention.base import RandomFeatureAttention
from ..functional.unit_length import SMALLEST_NORM
from ..model.parameters import OF_DECODER, PLACES, attentions_of
from .watch import softmax_attentions, watch

SMALLEST, GREATEST = 0.05, 20.0
"""Bounds of a fitted σ. At the least all weights are nearly equal, at the greatest nearly all falls on one key."""
HALVINGS = 40


def fit_sigma(model, batches, places=OF_DECODER):
    """σ of each head of each softmax attention in some places, in one teacher-forced pass over the batches.

    Args:
        model: a Transformer of fairseq or of this package; it is left in the mode in which it was.
        batches: samples of fairseq with "net_input", on the model's device.
        places: some of `PLACES`.

    Returns:
        {"causal": [σ (H,) of each layer], "cross": the same} in float32 on the CPU, within `SMALLEST` and
        `GREATEST`; a place without softmax is missing.

    Raises:
        ValueError: no softmax attention in these places, or no batch.
    """
    attentions = softmax_attentions(model, places)
    if not attentions:
        raise ValueError(f"the model has no softmax attention to fit sigma to: {', '.join(places)}")
    seen = {place: [_Site() for _ in modules] for place, modules in attentions.items()}
    watch(model, attentions, batches, lambda place, layer, *found: seen[place][layer].add(*found))
    if not all(site.batches for sites in seen.values() for site in sites):
        raise ValueError("there are no sentences to fit sigma to")
    return {place: [_best_sigma(site) for site in sites] for place, sites in seen.items()}


@torch.no_grad()
def set_sigma(model, fitted):
    """Fill the parameters sigma (H, d) of a model with what `fit_sigma` returned, each head's entries all equal.

    Raises:
        ValueError: another number of layers or heads, or an attention without sigma.
    """
    for place, sigmas in fitted.items():
        attentions = attentions_of(model, place)
        if len(attentions) != len(sigmas):
            raise ValueError(
                f"sigma is fitted for {len(sigmas)} layers and the {PLACES[place].side} has {len(attentions)}; "
                "use one model"
            )
        for layer, (attention, sigma) in enumerate(zip(attentions, sigmas)):
            if not isinstance(attention, RandomFeatureAttention):
                raise ValueError(f"the {place} attention of layer {layer} has no sigma; use --{place}-attention rfa")
            if sigma.numel() != attention.num_heads:
                raise ValueError(
                    f"sigma is fitted for {sigma.numel()} heads and the {place} attention of layer {layer} has "
                    f"{attention.num_heads}; use one model"
                )
            attention.sigma.copy_(sigma.unsqueeze(1).expand_as(attention.sigma))


class _Site:
    """What one attention showed: cosines of its queries and keys, and their mean under softmax."""

    def __init__(self):
        self.batches = []
        """For each batch q̂·k̂ (B, H, N, M), what is hidden (B, 1, N, M), and which queries count (B, 1, N)"""
        self.under_softmax = 0.0
        """Σ over queries of the mean of q̂·k̂ under the weights of softmax, (H,) in float64"""

    def add(self, q, k, hidden, counts):
        """q (B, H, N, d), k (B, H, M, d) in float32"""
        cosine = F.normalize(q, dim=-1, eps=SMALLEST_NORM) @ F.normalize(k, dim=-1, eps=SMALLEST_NORM).mT
        counts = counts & ~hidden.all(-1)
        self.batches.append((cosine, hidden, counts))
        self.under_softmax = self.under_softmax + _mean_cosine(q @ k.mT * q.size(-1) ** -0.5, cosine, hidden, counts)

    def slope(self, sigma):
        """Of the cross-entropy in σ², (H,), for sigma (H,)."""
        square = sigma.square().float()[:, None, None]
        under_kernel = sum(_mean_cosine(square * cosine, cosine, *masks) for cosine, *masks in self.batches)
        return under_kernel - self.under_softmax


def _mean_cosine(logits, cosine, hidden, counts):
    """Σ over queries that count of the mean of the cosine under softmax of the logits, (H,)."""
    means = (logits.masked_fill(hidden, -math.inf).softmax(-1) * cosine).sum(-1)
    # NaN where all keys are hidden, which is a query that does not count.
    return means.masked_fill(~counts, 0.0).double().sum((0, 2))


def _best_sigma(site):
    """(H,)"""
    low = torch.full_like(site.under_softmax, math.log(SMALLEST))
    high = torch.full_like(low, math.log(GREATEST))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_great = site.slope(middle.exp()) > 0
        low, high = torch.where(too_great, low, middle), torch.where(too_great, middle, high)
    return ((low + high) / 2).exp().float().cpu()
