"""Modules of every feature map and option, by names such as "causal positive unnormalized gate window=3"."""

from functools import partial

import pytest

from helpers import make_causal, make_cross, make_encoder

WITH_KERNEL = ("gaussian", "arccos", "positive", "cosine", "oprf")
MAPS = (*WITH_KERNEL, "elu", "learned", "hedgehog")
NEVER_SCALED = ("elu", "hedgehog")
MAKERS = {"causal": make_causal, "cross": make_cross, "encoder": make_encoder}


def maker(text):
    """A function that makes the module; its keywords are the options."""
    place, feature_map, *words = text.split()
    options = dict(word.split("=") if "=" in word else (word, True) for word in words)
    if "window" in options:
        options["local_window"] = int(options.pop("window"))
    return partial(MAKERS[place], feature_map=feature_map, **options)


def each(texts):
    return pytest.mark.parametrize(
        "make", [pytest.param(maker(text), id=text.replace(" ", "-")) for text in texts]
    )


def every_causal_variant(windows):
    """Each map, scaled or not, with and without gate and window, but for what is refused."""
    for feature_map in MAPS:
        for unnormalized in ("", " unnormalized") if feature_map not in NEVER_SCALED else ("",):
            for gate in ("", " gate"):
                for window in windows if feature_map in WITH_KERNEL else (0,):
                    suffix = f" window={window}" if window else ""
                    yield f"causal {feature_map}{unnormalized}{gate}{suffix}"


CROSS = [f"cross {name}" for name in MAPS]
CROSS += [f"cross {name} unnormalized" for name in MAPS if name not in NEVER_SCALED]
ENCODER = [name.replace("cross", "encoder") for name in CROSS]
# Every map with every option, and every pair of options with some map.
CAUSAL = [
    "causal gaussian",
    "causal gaussian gate",
    "causal gaussian unnormalized",
    "causal gaussian unnormalized gate window=3",
    "causal gaussian window=3",
    "causal arccos",
    "causal arccos gate window=1",
    "causal arccos unnormalized gate",
    "causal arccos unnormalized window=3",
    "causal positive",
    "causal positive gate window=3",
    "causal positive unnormalized gate",
    "causal positive unnormalized window=1",
    "causal cosine gate",
    "causal cosine unnormalized",
    "causal cosine unnormalized gate window=3",
    "causal elu",
    "causal elu gate",
    "causal learned",
    "causal learned unnormalized gate",
    "causal oprf",
    "causal oprf gate window=3",
    "causal oprf unnormalized gate",
    "causal oprf unnormalized window=1",
    "causal hedgehog",
    "causal hedgehog gate",
]
# For whole models: each map with each option that it allows.
FLAGS = [
    "--rfa-feature-map gaussian --rfa-unnormalized",
    "--rfa-feature-map gaussian --rfa-local-window 3 --rfa-gate",
    "--rfa-feature-map gaussian --rfa-unnormalized --rfa-local-window 2 --rfa-gate --rfa-orthogonal",
    "--rfa-feature-map arccos",
    "--rfa-feature-map arccos --rfa-local-window 1",
    "--rfa-feature-map arccos --rfa-unnormalized --rfa-gate",
    "--rfa-feature-map elu",
    "--rfa-feature-map elu --rfa-gate",
    "--rfa-feature-map positive --rfa-orthogonal",
    "--rfa-feature-map positive --rfa-unnormalized --rfa-gate",
    "--rfa-feature-map positive --rfa-unnormalized --rfa-local-window 3",
    "--rfa-feature-map cosine --rfa-gate",
    "--rfa-feature-map cosine --rfa-unnormalized",
    "--rfa-feature-map cosine --rfa-local-window 20",
    "--rfa-feature-map learned --rfa-gate",
    "--rfa-feature-map learned --rfa-unnormalized",
    "--rfa-feature-map oprf --rfa-orthogonal --rfa-gate",
    "--rfa-feature-map oprf --rfa-unnormalized --rfa-local-window 3",
    "--rfa-feature-map hedgehog",
    "--rfa-feature-map hedgehog --rfa-gate",
]
each_causal_variant = each(CAUSAL)
each_variant = each(CAUSAL + CROSS)


def options_of(make):
    """What a definition needs to know of the module."""
    options = dict(make.keywords)
    if "local_window" in options:
        options["window"] = options.pop("local_window")
    options["name"] = options.pop("feature_map")
    return options
