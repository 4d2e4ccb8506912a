"""Draw the report of kernel_study."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker
from matplotlib.lines import Line2D

from .verdict import CLAIM_ERROR, curves

COLOURS = {
    "gaussian": "#0072b2",
    "cosine": "#56b4e9",
    "arccos": "#009e73",
    "positive": "#d55e00",
    "oprf": "#7f3f98",
}
STYLES = {"independent": "-", "orthogonal": "--"}
PANELS = {"kernel": "kernel matrix", "attention": "attention matrix", "output": "attention output"}
SHARED = "#000000"


def percent(error):
    return 100 * error


def draw_curve(axes, curve, quantity, colour, style):
    """Mean error over directions, with a band of one standard deviation on both sides."""
    x = [entry["directions"] for entry in curve]
    means = [percent(entry[quantity]["mean"]) for entry in curve]
    axes.plot(x, means, style, color=colour, linewidth=1.5)
    deviations = [percent(entry[quantity]["deviation"] or 0) for entry in curve]
    # A logarithmic axis has no place for a mean less than its deviation.
    low = [max(mean - deviation, mean / 10) for mean, deviation in zip(means, deviations)]
    high = [mean + deviation for mean, deviation in zip(means, deviations)]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def draw_guide(axes, numbers, last):
    """A line of slope −1/2 that ends at the error `last`."""
    ends = [min(numbers), max(numbers)]
    heights = [percent(last) * (end / ends[1]) ** -0.5 for end in ends]
    axes.plot(ends, heights, color="#888888", linewidth=0.8, zorder=1)


def draw_uniform(axes, entries, quantity):
    """The error of uniform attention: black where maps share it, as those of one exact attention do."""
    errors = {entry["map"]: round(percent(entry[quantity]["mean"]), 3) for entry in entries}
    for name, error in errors.items():
        shared = list(errors.values()).count(error) > 1
        colour = SHARED if shared or len(errors) == 1 else COLOURS[name]
        axes.axhline(error, color=colour, linestyle=":", linewidth=1.4)


def draw_panel(axes, cases, uniform, quantity):
    """One quantity of one kind of input.

    Args:
        cases: (map, rows) and the curve of each.
        uniform: the entries of uniform attention.
    """
    for (name, rows), curve in cases.items():
        draw_curve(axes, curve, quantity, COLOURS[name], STYLES[rows])
    numbers = [entry["directions"] for curve in cases.values() for entry in curve]
    draw_guide(axes, numbers, 1.25 * max(curve[-1][quantity]["mean"] for curve in cases.values()))
    if quantity != "kernel":
        draw_uniform(axes, uniform, quantity)
    axes.axhline(percent(CLAIM_ERROR), color="#cc0000", linewidth=1)
    axes.grid(alpha=0.3)


def set_scales(axes, numbers):
    """Logarithmic axes with plain numbers, as many as are readable."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(numbers[:: -(-len(numbers) // 8)])
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.tick_params(labelsize=9.5)
    axes.tick_params(axis="x", rotation=45)


def legend_handles(maps, rows):
    lines = [Line2D([], [], color=COLOURS[name], linewidth=3, label=name) for name in maps]
    lines += [
        Line2D([], [], color=SHARED, linestyle=STYLES[kind], label=f"{kind} rows") for kind in rows
    ]
    return [
        *lines,
        Line2D([], [], color=SHARED, linestyle=":", label="uniform attention"),
        Line2D([], [], color="#cc0000", linewidth=1, label=f"{percent(CLAIM_ERROR):g} % (the claim)"),
        Line2D([], [], color="#888888", linewidth=0.8, label="slope −1/2"),
    ]


def title(sign):
    seeds = f"{sign['seeds']} seeds" if sign["seeds"] > 1 else "1 seed"
    sigma = ", ".join(f"{value:g}" for value in sign["sigma"])
    band = "; mean ± one standard deviation" if sign["seeds"] > 1 else ""
    return (
        "Random features: error relative to each map's own kernel\n"
        f"d = {sign['head_dim']}, σ = {sigma}, {seeds}{band}"
    )


def plot(report, path):
    """Write a PNG 1600 pixels wide, of which half is enough to read it: a row for each input and σ."""
    grouped = {}
    for (kind, sigma, *case), curve in curves(report["measurements"]).items():
        grouped.setdefault((kind, sigma), {})[tuple(case)] = curve
    numbers = sorted({entry["directions"] for entry in report["measurements"]})
    figure, grid = pyplot.subplots(
        len(grouped),
        len(PANELS),
        figsize=(10, 3.4 * len(grouped) + 1.5),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for row, ((kind, sigma), cases) in zip(grid, grouped.items()):
        uniform = [entry for entry in report["uniform"] if (entry["input"], entry["sigma"]) == (kind, sigma)]
        for axes, (quantity, name) in zip(row, PANELS.items()):
            draw_panel(axes, cases, uniform, quantity)
            set_scales(axes, numbers)
            axes.set_title(f"{kind}, σ = {sigma:g}\n{name}", fontsize=10.5)
        row[0].set_ylabel("relative error (%)", fontsize=10.5)
    for axes in grid[-1]:
        axes.set_xlabel("random directions D per head", fontsize=10.5)
    sign = report["signature"]
    write_figure(figure, legend_handles(sign["maps"], STYLES), title(sign), path, title_size=12, columns=5)


def write_figure(figure, handles, title, path, title_size, columns):
    """Write a figure with one legend for all panels, in so many columns below the title."""
    # A legend with a title: the layout keeps no space for both a title and a legend at the top.
    figure.legend(
        handles=handles,
        title=title,
        title_fontproperties={"size": title_size, "weight": "bold"},
        loc="outside upper center",
        ncols=columns,
        fontsize=10,
        frameon=False,
    ).get_title().set_multialignment("center")
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
