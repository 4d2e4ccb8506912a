"""Draw the report of report.py."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker

COLOURS = {
    "softmax": "#444444",
    "cross": "#0072b2",
    "causal": "#d55e00",
    "baselines": "#999999",
    "maps": "#009e73",
    "variants": "#cc79a7",
}


def ready(runs, studies):
    """Name and result of the runs of these studies that have a perplexity."""
    return [
        (name, run)
        for name, run in runs.items()
        if (name == "rfa" or run["study"] in studies) and run["perplexity"] is not None
    ]


def draw_softmax(runs, line):
    perplexity = runs.get("softmax", {}).get("perplexity")
    if perplexity is not None:
        line(perplexity, color=COLOURS["softmax"], linestyle="--", label=f"softmax ({perplexity:.2f})")


def draw_directions(axes, runs):
    """Perplexity against the number of directions, one line for each place of attention."""
    numbers = set()
    for place, other, marker in (("cross", "causal", "o"), ("causal", "cross", "s")):
        points = sorted(
            (run["directions"][place], run["perplexity"], run["directions"][other])
            for _, run in ready(runs, [place])
            if place in run["directions"]
        )
        if points:
            x, y, fixed = zip(*points)
            label = f"{place} attention ({other}: {fixed[0]})"
            axes.plot(x, y, marker=marker, color=COLOURS[place], label=label)
            numbers.update(x)
    draw_softmax(runs, axes.axhline)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(numbers))
    axes.xaxis.set_major_formatter(ticker.ScalarFormatter())
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("random directions of a head (number, log scale)")
    axes.set_ylabel("validation perplexity (per BPE piece, log scale)")
    axes.grid(alpha=0.3)
    axes.set_title("number of directions", fontsize=10)


def draw_bars(axes, runs):
    """Perplexity of maps and variants, the best on top; those that did not train have no bar."""
    bars = sorted(ready(runs, ["maps", "variants"]), key=lambda bar: bar[1]["perplexity"])
    trained = [run["perplexity"] for _, run in bars if run["status"] == "complete"]
    names = {"rfa": "rfa (gaussian)"}
    for row, (_, run) in enumerate(bars):
        perplexity, study = run["perplexity"], run["study"]
        complete = run["status"] == "complete"
        axes.barh(row, perplexity if complete else 0, color=COLOURS[study])
        text = f" {perplexity:.2f}" if complete else f" {run['status']} ({perplexity:.0f})"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        position = perplexity if complete else 0
        axes.annotate(text, (position, row), (4, 0), textcoords="offset points", va="center", fontsize=9, bbox=box)
    draw_softmax(runs, axes.axvline)
    for study in dict.fromkeys(run["study"] for _, run in bars):
        label = "default" if study == "baselines" else study
        axes.barh(0, 0, color=COLOURS[study], label=label)
    axes.set_yticks(range(len(bars)), [names.get(name, name) for name, _ in bars])
    axes.set_ylim(max(len(bars), 5) - 0.5, -0.5)
    axes.set_xlim(0, 1.2 * max([*trained, runs.get("softmax", {}).get("perplexity") or 0]) or 1)
    axes.set_xlabel("validation perplexity (per BPE piece)")
    axes.set_title("feature maps and variants", fontsize=10)


def plot(report, path):
    """Write a PNG of 1600 by 800 pixels, of which half is enough to read it."""
    sign, runs = report["signature"], report["runs"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 5), layout="constrained")
    draw_directions(left, runs)
    draw_bars(right, runs)
    if left.get_legend_handles_labels()[0]:
        left.legend(fontsize=9)
    if right.get_legend_handles_labels()[0]:
        right.legend(fontsize=9, ncols=4, loc="upper center", bbox_to_anchor=(0.45, -0.12))
    updates = f" ({sign['updates']} updates)" if isinstance(sign["updates"], int) else ""
    recipe = f"{sign['architecture']}, {sign['epochs']} epochs{updates}, seed {sign['seed']}"
    figure.suptitle(f"{recipe}, best validation perplexity", fontsize=11)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
