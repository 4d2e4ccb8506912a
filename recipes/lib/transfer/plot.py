"""Draw the report of report.py."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker

from .runs import SHOWN

# By what an arm starts from: the colour-blind palette of Okabe and Ito.
STYLES = {
    (None, None, None): ("from scratch", "#999999"),
    ("kept", "unit-length", False): ("projections kept", "#0072b2"),
    ("kept", "unit-length", True): ("projections kept, σ fitted", "#56b4e9"),
    ("reset", "unit-length", False): ("projections reset", "#d55e00"),
    ("kept", "softmax", False): ("projections kept, unnormalised", "#009e73"),
    ("reset", "softmax", False): ("projections reset, unnormalised", "#cc79a7"),
    ("kept", None, None): ("projections kept", "#0072b2"),
    ("reset", None, None): ("projections reset", "#d55e00"),
}
CONTINUED = ("continued", "#009e73")
SOURCES = {"softmax": "#444444", "rfa": "#b8860b"}


def points(rows, arm):
    """Steps and smoothed losses of an arm."""
    found = [(row["step"], row["smoothed_loss"]) for row in rows if row["arm"] == arm]
    return [point for point in found if point[1] is not None]


def style(arm):
    """Label and colour of an arm."""
    if arm["from"] == arm["model"]:
        return CONTINUED
    return STYLES[arm["projections"], arm["imitate"], arm["sigma_fitted"]]


def draw_model(axes, model, found, rows):
    """The arms that end as one model, and the losses of both trained models."""
    for name, arm in found["arms"].items():
        curve = points(rows, name)
        if arm["model"] != model or not curve:
            continue
        label, colour = style(arm)
        axes.plot(*zip(*curve), color=colour, linewidth=1.5, label=label, gid=name)
        for source in SOURCES:
            step = arm["reached"][source]
            if step is not None:
                gid = f"{name} reaches {source}"
                axes.plot(step, dict(curve)[step], "o", color=colour, markersize=7, markeredgecolor="white", gid=gid)
    for source, colour in SOURCES.items():
        result = found["sources"][source]
        if result and result["training_loss"] is not None:
            loss = result["training_loss"]
            label = f"{SHOWN[source]}, trained ({loss:.3f})"
            axes.axhline(loss, color=colour, linestyle="--", linewidth=1.2, label=label, gid=source)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("updates (log scale)")
    axes.grid(alpha=0.3)
    axes.set_title(f"training {SHOWN[model]}", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def plot(found, rows, path):
    """Write a PNG of 1600 by 800 pixels.

    Args:
        rows: of the CSV file, as dicts.
    """
    sign = found["signature"]
    figure, places = pyplot.subplots(1, 2, figsize=(10, 5), layout="constrained", sharex=True, sharey=True)
    for axes, model in zip(places, ("rfa", "softmax")):
        draw_model(axes, model, found, rows)
    places[0].set_ylabel(f"training loss, label-smoothed, in bits\n(mean of {sign['smooth']} updates)")
    recipe = f"{sign['arch']}, learning rate {sign['arm_lr']} after {sign['arm_warmup']} updates, seed {sign['seed']}"
    figure.suptitle(f"{recipe}; a mark is where an arm reaches a dashed line", fontsize=11)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
