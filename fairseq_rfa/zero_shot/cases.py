"""What zero_shot measures: the cases, in their order."""

from typing import NamedTuple, Optional

from ..functional.encoding import FEATURE_MAPS
from ..functional.kernels import gaussian_kernel

SITES = {
    "both": ("causal", "cross"),
    "causal": ("causal",),
    "cross": ("cross",),
    "encoder": ("encoder",),
    "all": ("causal", "cross", "encoder"),
}
WAYS = ("softmax", "unit-length")
OWN = "own"
"""The way of maps whose kernel has not the form of softmax: queries and keys as the map takes them, σ = 1."""


class Case(NamedTuple):
    measure: str
    """"logits" or "bleu" """
    kind: str
    """"features", "limit" (endlessly many directions), "equal" (equal weights), or "softmax" (the model itself)"""
    sites: Optional[str] = None
    map: Optional[str] = None
    imitate: Optional[str] = None
    floor: Optional[float] = None
    """None for a map that has none"""
    directions: Optional[int] = None
    seed: Optional[int] = None
    updates: Optional[int] = None
    """of distillation; None for none"""

    def __str__(self):
        directions = None if self.directions is None else f"{self.directions} directions"
        seed = None if self.seed is None else f"seed {self.seed}"
        distilled = None if self.updates is None else "distilled"
        words = (self.measure, self.kind, self.map, self.imitate, self.sites, directions, seed, distilled)
        return " ".join(word for word in words if word)


def imitates_softmax(name):
    """Whether the kernel of a map is exp(x·y), or that but for factors of x and of y."""
    feature_map = FEATURE_MAPS[name]
    return feature_map.exponential or feature_map.kernel is gaussian_kernel


def ways_of(name, imitate):
    return imitate if imitates_softmax(name) else [OWN]


def cases(options):
    """All that the options ask for: the model itself first, translations last."""
    yield Case("logits", "softmax")
    for sites in options.sites:
        yield Case("logits", "equal", sites)
        yield from _cases_with_features(options, sites)
    if options.bleu_directions:
        yield Case("bleu", "softmax")
        for case in _cases_with_features(options, options.sites[0]):
            if _is_translated(options, case):
                yield case._replace(measure="bleu")


def _is_translated(options, case):
    is_first = case.floor in (None, options.floors[0]) and case.seed in (None, options.seeds[0])
    return case.kind == "features" and is_first and case.directions in (None, *options.bleu_directions)


def _cases_with_features(options, sites):
    for name in options.maps:
        for way in ways_of(name, options.imitate):
            for case in _cases_of_map(options, Case("logits", "features", sites, name, way)):
                yield case
                if options.distill_updates and case.kind == "features" and case.floor in (None, options.floors[0]):
                    yield case._replace(updates=options.distill_updates)


def _cases_of_map(options, case):
    feature_map = FEATURE_MAPS[case.map]
    floors = options.floors if imitates_softmax(case.map) else options.floors[:1]
    if not feature_map.has_floor:
        floors = [None]
    for floor in floors:
        case = case._replace(floor=floor)
        if feature_map.kernel is not None:
            yield case._replace(kind="limit")
        if feature_map.source is None:
            yield case
            continue
        for directions in options.directions if floor == floors[0] else options.directions[-1:]:
            for seed in options.seeds:
                yield case._replace(directions=directions, seed=seed)
