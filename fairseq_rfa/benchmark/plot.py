"""Draw the report of benchmark."""

import textwrap

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from .drawing import FONT, draw_sizes, draw_with_band, label_of, set_scales, short_label_of, sizes_of
from .report import has_memory

COLOURS = {"rfa": "#0072b2", "baseline": "#d55e00"}
WINDOW_STYLES = {
    "softmax": dict(color=COLOURS["baseline"]),
    "rfa": dict(color=COLOURS["rfa"]),
    "softmax_encoder_rfa": dict(color="#e69f00", linestyle="--"),
    "rfa_encoder_rfa": dict(color="#56b4e9", linestyle="--"),
}
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
TITLE_WIDTH = 90


def comparable_with_paper(sign):
    return sign["command"] == "decode" and sign["source_length"] == "as target"


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


def draw_windows(axes, report, quantity):
    for name in report["signature"]["models"]:
        draw_with_band(axes, report, name, quantity, label=label_of(report["signature"], name), **WINDOW_STYLES[name])


def draw_sentence(axes, report):
    draw_windows(axes, report, "seconds_per_sentence")
    axes.set_ylabel("seconds per sentence", fontsize=FONT)


def draw_sentence_ratio(axes, report):
    draw_windows(axes, report, "ratio")
    axes.set_ylabel("ratio of seconds per sentence\nmodel / softmax", fontsize=FONT)


def draw_generation(axes, report, quantity):
    draw_models(axes, report, quantity)
    style = dict(color=WITHOUT_COLOUR, linestyle=":", label="RFA without attention")
    draw_with_band(axes, report, "without_attention", quantity, **style)


def draw_token(axes, report):
    draw_generation(axes, report, "seconds_per_token")
    axes.set_ylabel("seconds per token", fontsize=FONT)


def draw_growth(axes, report):
    draw_generation(axes, report, "growth")
    axes.set_ylabel("seconds per token\nto those of the shortest text", fontsize=FONT)


def draw_generation_state(axes, report):
    for name, colour in COLOURS.items():
        label = short_label_of(report["signature"], name)
        draw_sizes(axes, report, (name, "state_bytes", "total"), color=colour, label=label, marker="o", markersize=4)
    axes.set_ylabel("decoding state (MB)", fontsize=FONT)


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


def draw_window_peak(axes, report):
    for name in report["signature"]["models"]:
        label = label_of(report["signature"], name)
        style = dict(marker="o", markersize=4, label=label, **WINDOW_STYLES[name])
        draw_sizes(axes, report, (name, "peak_memory", "total"), **style)
    axes.set_ylabel("peak memory (MB)", fontsize=FONT)


PANELS = {
    "sentence": draw_sentence,
    "sentence_ratio": draw_sentence_ratio,
    "window_peak": draw_window_peak,
    "token": draw_token,
    "growth": draw_growth,
    "generation_state": draw_generation_state,
    "speed": draw_speed,
    "step": draw_step,
    "ratio": draw_ratio,
    "state": draw_state,
    "peak": draw_peak,
}


def layout(report):
    """Names of panels in rows: time on the left, memory on the right."""
    command = report["signature"]["command"]
    measured = has_memory(report)
    if command == "decode":
        return [["speed", "state"], ["ratio", "peak" if measured else "state"]]
    if command == "lm":
        return [["token", "generation_state"], ["growth", "peak" if measured else "generation_state"]]
    times = {"train": ["step", "ratio"], "documents": ["sentence", "sentence_ratio"]}[command]
    peak = {"train": "peak", "documents": "window_peak"}[command]
    return [[time, peak] if measured else [time] for time in times]


def title(sign):
    sizes = f"batch {sign['batch_size']}, beam {sign['beam']}" if "beam" in sign else f"{sign['tokens']} tokens"
    what = {
        "decode": "Decoding",
        "lm": "Generating a text",
        "train": "A training step",
        "documents": f"A sentence of {sign.get('sentence_length')} tokens after others of its window",
    }[sign["command"]]
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


def size_label(sign):
    """What the horizontal axes show."""
    if sign["command"] == "documents":
        return "sentences of a window"
    if sign["command"] == "lm":
        return "length of the text (tokens)"
    if sign["source_length"] != "as target":
        return f"length of target (tokens), sources of {sign['source_length']}"
    return "length of source and target (tokens)"


def plot(report, path):
    """Write a PNG 1600 pixels wide, of which half is enough to read it."""
    sign = report["signature"]
    figure, panels = pyplot.subplot_mosaic(layout(report), figsize=(10, 8), layout="constrained")
    for name, axes in panels.items():
        PANELS[name](axes, report)
        shown = sizes_of(report)
        if name == "ratio" and comparable_with_paper(sign):
            shown = sorted({*shown, *PAPER})
        set_scales(axes, shown, size_label(sign))
    figure.suptitle(title(sign), fontsize=FONT, fontweight="bold")
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
