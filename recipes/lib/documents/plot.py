"""Draw the report of report.py."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker

import study

# The colour-blind palette of Okabe and Ito; softmax comes first in the arms that the script has.
COLOURS = ["#444444", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
MARKERS = "osD^vPX"


def points(arm, value):
    """Windows, means and standard deviations of what `value` takes from the results of an arm, where there are any."""
    spreads = {int(window): value(result) for window, result in arm["windows"].items()}
    found = [(window, mean["mean"], mean["sd"] or 0) for window, mean in spreads.items() if mean]
    return list(zip(*(point for point in found if point[1] is not None))) or [(), (), ()]


def draw(axes, found, value, named=True, **style):
    """A line for each arm, which the legend has where it is named."""
    for number, (name, arm) in enumerate(found["arms"].items()):
        windows, means, deviations = points(arm, value)
        if windows:
            axes.errorbar(
                *(windows, means, deviations),
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                capsize=3,
                label=name if named else None,
                **style,
            )


def draw_bleu(axes, found, subset):
    draw(axes, found, lambda result: result["bleu"].get(subset))
    draw(axes, found, lambda result: result["document_bleu"].get(subset), named=False, linestyle="--", alpha=0.5)
    axes.set_ylabel(f"BLEU, {subset}")
    axes.set_title("sentences, and whole documents (dashed)", fontsize=10)


def draw_seconds(axes, found):
    draw(axes, found, lambda result: result["seconds_per_sentence"])
    axes.set_ylabel("seconds a sentence")
    jobs = found["signature"]["jobs"]
    timed = axes.get_legend_handles_labels()[0]
    axes.set_title(f"decoding in batches of {found['signature']['batch_size']}", fontsize=10)
    if timed:
        axes.set_ylim(bottom=0)
    elif jobs is not None:
        text = f"nothing was timed; runs at a time: {study.shown(jobs)}"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")


def plot(found, path):
    """Write 1600 by 800 pixels, or what has no pixels, of which half is enough to read it."""
    sign = found["signature"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 5), layout="constrained")
    draw_bleu(left, found, found["subsets"][min(1, len(found["subsets"]) - 1)])
    draw_seconds(right, found)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sign["windows"])
        axes.xaxis.set_major_formatter(ticker.ScalarFormatter())
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_xlabel("sentences of a window")
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    budget = f"{sign['updates']} updates" if isinstance(sign["updates"], int) else "trained"
    seeds = f"seed{'s' * (len(sign['seeds']) > 1)} {study.shown(sign['seeds'])}"
    figure.suptitle(f"{study.shown(sign['architecture'])}, {budget}, {seeds}, beam {sign['beam']}", fontsize=11)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
