"""Draw the report of zero_shot."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker
from matplotlib.lines import Line2D

from ..kernel_study.plot import COLOURS as COLOURS_OF_KERNELS
from ..kernel_study.plot import write_figure
from .cases import OWN

COLOURS = {**COLOURS_OF_KERNELS, "elu": "#cc79a7", "learned": "#e69f00", "hedgehog": "#999933"}
STYLES = {"softmax": "-", "unit-length": "--", OWN: "-."}
MARKERS = {"softmax": "o", "unit-length": "s", OWN: "^"}
WAYS = {
    "softmax": "imitates softmax itself",
    "unit-length": "unit length, σ fitted",
    OWN: "a kernel of its own",
}
PANELS = {"distance": "distance of the logits", "divergence": "KL(softmax ‖ model), nats a word"}
THICKER = 2
"""Times, the line of a distilled model."""
LEAST_SHOWN = 0.01
"""Limits that are less, such as 0 but for rounding, do not stretch the axis."""
SITES = {
    "both": "causal and cross",
    "causal": "causal alone",
    "cross": "cross alone",
    "encoder": "the encoder alone",
    "all": "encoder and decoder",
}


def draw_curve(axes, curve, measure):
    """Median over directions, with a band from the least to the greatest seed."""
    colour, style = COLOURS[curve["map"]], STYLES[curve["imitate"]]
    points, times = curve["points"], THICKER if curve["updates"] else 1
    if points[0]["directions"] is None:
        axes.axhline(points[0][measure]["median"], color=colour, linestyle=style, linewidth=1.2 * times)
        return
    x = [point["directions"] for point in points]
    middle, low, high = ([point[measure][name] for point in points] for name in ("median", "least", "greatest"))
    look = {"marker": MARKERS[curve["imitate"]], "markersize": 3.5}
    axes.plot(x, middle, style, color=colour, linewidth=1.6 * times, **look)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def draw_limit(axes, curve, measure, place, lowest):
    """The value with endlessly many directions; what lies below the axis becomes an arrow."""
    value = curve["limit"][measure]
    look = {"marker": MARKERS[curve["imitate"]], "fillstyle": "none", "markersize": 6}
    if value <= lowest:
        value, look = lowest, {"marker": "v", "markersize": 8, "clip_on": False}
    axes.plot(place, value, color=COLOURS[curve["map"]], linestyle="", zorder=3, **look)


def draw_guide(axes, numbers, first):
    """A line of slope −1/2 from the height `first`."""
    ends = [min(numbers), max(numbers)]
    axes.plot(ends, [first * (end / ends[0]) ** -0.5 for end in ends], color="#888888", linewidth=0.8, zorder=1)


def draw_panel(axes, report, sites, measure):
    sign = report["signature"]
    numbers, floors = sign["directions"], (None, sign["floors"][0])
    main = [curve for curve in report["curves"] if curve["sites"] == sites and curve["floor"] in floors]
    for curve in main:
        draw_curve(axes, curve, measure)
    equal = next(row for row in report["rows"] if row["case"]["kind"] == "equal" and row["case"]["sites"] == sites)
    axes.axhline(equal[measure], color="#000000", linestyle=":", linewidth=1.4)
    heights = [point[measure]["median"] for curve in main for point in curve["points"]] + [equal[measure]]
    limits = [curve["limit"][measure] for curve in main if curve["limit"]]
    lowest = min(heights + [limit for limit in limits if limit > LEAST_SHOWN]) / 1.4
    draw_guide(axes, numbers, min(curve["points"][0][measure]["median"] for curve in main))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(lowest, 1.3 * max(heights))
    place = 2 * max(numbers)
    for curve in main:
        if curve["limit"]:
            draw_limit(axes, curve, measure, place, lowest)
    axes.set_xticks([*numbers, place], [*(f"{number:,}" for number in numbers), "∞"])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.tick_params(labelsize=9.5)
    axes.tick_params(axis="x", rotation=45)
    axes.grid(alpha=0.3)


def legend_handles(report):
    found = report["curves"]
    maps, ways = ({curve[name] for curve in found} for name in ("map", "imitate"))
    lines = [Line2D([], [], color=COLOURS[name], linewidth=3, label=name) for name in COLOURS if name in maps]
    lines += [
        Line2D([], [], color="#000000", linestyle=STYLES[way], marker=MARKERS[way], markersize=4, label=WAYS[way])
        for way in STYLES
        if way in ways
    ]
    return [
        *lines,
        *[Line2D([], [], color="#000000", linewidth=1.6 * THICKER, label="distilled")]
        * any(curve["updates"] for curve in found),
        Line2D([], [], color="#000000", linestyle=":", label="equal weights"),
        Line2D([], [], color="#000000", linestyle="", marker="v", label="limit below the axis"),
        Line2D([], [], color="#888888", linewidth=0.8, label="slope −1/2"),
    ]


def title(sign):
    return (
        "Trained with softmax, now with features, no fine-tuning\n"
        f"{sign['arch']}, d = {sign['head_dim']}, {sign['sentences']} sentences of {sign['subset']}\n"
        f"floor {sign['floors'][0]:g}; median, least and greatest of {len(sign['seeds'])} seeds"
    )


def plot(report, path):
    """Write a PNG: a column for each choice of sites."""
    sign = report["signature"]
    figure, grid = pyplot.subplots(
        len(PANELS),
        len(sign["sites"]),
        figsize=(max(8, 4.6 * len(sign["sites"])), 8.6),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for row, (measure, name) in zip(grid, PANELS.items()):
        for axes, sites in zip(row, sign["sites"]):
            draw_panel(axes, report, sites, measure)
            axes.set_title(f"features in {SITES[sites]}", fontsize=10.5)
        row[0].set_ylabel(name, fontsize=10.5)
    for axes in grid[-1]:
        axes.set_xlabel("random directions D per head", fontsize=10.5)
    write_figure(figure, legend_handles(report), title(sign), path, title_size=11, columns=4)
