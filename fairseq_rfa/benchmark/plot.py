"""Draw the report of benchmark."""

import textwrap

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker

COLOURS = {"rfa": "#0072b2", "baseline": "#d55e00"}
WITHOUT_COLOUR, PAPER_COLOUR = "#888888", "#009e73"
# Figure 2 of the paper, read off: tokens per second of softmax and of Gaussian RFA on one TPU v2, greedy, batch 16.
PAPER = {
    8: (6950, 6850),
    32: (7130, 8130),
    64: (6340, 8370),
    128: (5020, 8490),
    256: (3570, 8450),
    512: (2200, 8290),
    1024: (1280, 8110),
    2048: (680, 7770),
}
FONT = 12
TITLE_WIDTH = 90
MEGABYTE = 1e6


def label_of(sign, name):
    if name == "rfa":
        return "RFA"
    return {
        "transformer": "softmax (fairseq's transformer)",
        "twin": "softmax (twin)",
        "ctranslate2": "softmax (CTranslate2)",
    }[sign["baseline"]]


def short_label_of(sign, name):
    return label_of(sign, name).partition(" (")[0]


def lengths_of(report):
    return [entry["length"] for entry in report["measurements"]]


def values_of(report, name, *keys):
    """One number of each length, reached through keys."""
    values = []
    for entry in report["measurements"]:
        value = entry[name]
        for key in keys:
            value = value[key]
        values.append(value)
    return values


def comparable_with_paper(sign):
    return sign["command"] == "decode" and sign["source_length"] == "as target"


def draw_with_band(axes, report, name, quantity, **style):
    """The median, with a band from the least to the greatest measurement."""
    keys = () if quantity is None else (quantity,)
    median, low, high = (values_of(report, name, *keys, key) for key in ("median", "minimum", "maximum"))
    axes.plot(lengths_of(report), median, marker="o", markersize=4, linewidth=1.8, **style)
    axes.fill_between(lengths_of(report), low, high, color=style["color"], alpha=0.2, linewidth=0)


def draw_sizes(axes, report, keys, **style):
    sizes = [size / MEGABYTE for size in values_of(report, *keys)]
    axes.plot(lengths_of(report), sizes, **style)


def draw_models(axes, report, quantity):
    for name, colour in COLOURS.items():
        draw_with_band(
            axes, report, name, quantity, color=colour, label=label_of(report["signature"], name)
        )


def draw_speed(axes, report):
    draw_models(axes, report, "tokens_per_second")
    draw_with_band(
        axes,
        report,
        "without_attention",
        "tokens_per_second",
        color=WITHOUT_COLOUR,
        linestyle=":",
        label="without decoder attention",
    )
    axes.set_ylabel("tokens per second", fontsize=FONT)


def draw_step(axes, report):
    draw_models(axes, report, "seconds")
    axes.set_ylabel("seconds per training step", fontsize=FONT)


def draw_ratio(axes, report):
    draw_with_band(axes, report, "ratio", None, color=COLOURS["rfa"], label="measured")
    if comparable_with_paper(report["signature"]):
        ratios = [gaussian / softmax for softmax, gaussian in PAPER.values()]
        axes.plot(
            list(PAPER),
            ratios,
            "--",
            color=PAPER_COLOUR,
            marker="s",
            markersize=4,
            label="paper's figure 2 (Gaussian, TPU v2)",
        )
    axes.axhline(1, color="#000000", linewidth=0.8)
    axes.set_ylabel(f"ratio of {report['ratio_is'].partition(',')[0]}\nRFA / baseline", fontsize=FONT)


def draw_state(axes, report):
    # Of softmax the two lie on each other: the dashes are seen on the broad line.
    styles = {
        "causal": dict(linewidth=4, alpha=0.4),
        "cross": dict(linestyle="--", marker="o", markersize=4),
    }
    for name, colour in COLOURS.items():
        if report["measurements"][0][name]["state_bytes"] is None:
            continue
        for place, style in styles.items():
            label = f"{short_label_of(report['signature'], name)}, {place}"
            draw_sizes(axes, report, (name, "state_bytes", place), color=colour, label=label, **style)
    axes.set_ylabel("decoding state (MB)", fontsize=FONT)


def draw_peak(axes, report):
    for name, colour in COLOURS.items():
        style = dict(color=colour, marker="o", markersize=4)
        label = short_label_of(report["signature"], name)
        draw_sizes(axes, report, (name, "peak_memory", "total"), label=label, **style)
        label = f"{label}, above the model"
        draw_sizes(axes, report, (name, "peak_memory", "increase"), label=label, linestyle="--", **style)
    axes.set_ylabel("peak memory (MB)", fontsize=FONT)


PANELS = {
    "speed": draw_speed,
    "step": draw_step,
    "ratio": draw_ratio,
    "state": draw_state,
    "peak": draw_peak,
}


def layout(report):
    """Names of panels in rows: time on the left, memory on the right."""
    measured = "peak_memory" in report["measurements"][0]["rfa"]
    if report["signature"]["command"] == "decode":
        return [["speed", "state"], ["ratio", "peak" if measured else "state"]]
    return [["step", "peak"], ["ratio", "peak"]] if measured else [["step"], ["ratio"]]


def set_scales(axes, lengths, label):
    """Logarithmic axes with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths[:: -(-len(lengths) // 8)])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    low, high = axes.get_ylim()
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low, middle / 2.5), max(1.5 * high, middle * 2.5))
    axes.tick_params(labelsize=FONT - 1)
    axes.set_xlabel(label, fontsize=FONT)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=FONT - 2)


def title(sign):
    sizes = f"batch {sign['batch_size']}, beam {sign['beam']}" if "beam" in sign else f"{sign['tokens']} tokens"
    what = {"decode": "Decoding", "train": "A training step"}[sign["command"]]
    runs = "1 run" if sign["repeats"] == 1 else f"median and range of {sign['repeats']} runs"
    threads = "1\u00a0thread" if sign["threads"] == 1 else f"{sign['threads']}\u00a0threads"
    gate = ", gate" if sign["gate"] == "yes" else ""
    precision = sign["precision"]
    if sign.get("decoding_precision", "float32") != "float32":
        precision += f", dense layers {sign['decoding_precision']}"
    recipe = (
        f"{sign['arch']}, {sign['map']}, D = {sign['directions']}{gate}, {sizes}, {precision}, "
        f"{sign['device']}, {threads}; {runs}"
    )
    return "\n".join([f"{what}: RFA and {label_of(sign, 'baseline')}", *textwrap.wrap(recipe, TITLE_WIDTH)])


def plot(report, path):
    """Write a PNG 1600 pixels wide, of which half is enough to read it."""
    sign = report["signature"]
    label = "length of source and target (tokens)"
    if sign["source_length"] != "as target":
        label = f"length of target (tokens), sources of {sign['source_length']}"
    figure, panels = pyplot.subplot_mosaic(layout(report), figsize=(10, 8), layout="constrained")
    for name, axes in panels.items():
        PANELS[name](axes, report)
        shown = lengths_of(report)
        if name == "ratio" and comparable_with_paper(sign):
            shown = sorted({*shown, *PAPER})
        set_scales(axes, shown, label)
    figure.suptitle(title(sign), fontsize=FONT, fontweight="bold")
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
