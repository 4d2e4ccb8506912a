"""Lines, labels and axes of the figures of benchmark."""

from matplotlib import ticker

NAMES = {
    "rfa": "RFA",
    "softmax_encoder_rfa": "softmax, encoder RFA",
    "rfa_encoder_rfa": "RFA, encoder too",
}
"""Of models; those that are missing here are the baseline."""
FONT = 12
MEGABYTE = 1e6


def label_of(sign, name):
    if name in NAMES:
        return NAMES[name]
    return {
        "transformer": "softmax (fairseq's transformer)",
        "transformer_lm": "softmax (fairseq's transformer_lm)",
        "twin": "softmax (twin)",
        "ctranslate2": "softmax (CTranslate2)",
    }[sign["baseline"]]


def short_label_of(sign, name):
    return label_of(sign, name).partition(" (")[0]


def sizes_of(report):
    """What each measurement is of: a length, or the number of sentences of a window."""
    return [size_of(entry) for entry in report["measurements"]]


def size_of(entry):
    return entry.get("window", entry["length"])


def entries_of(report, name):
    """The measurements that have something of this name."""
    return [entry for entry in report["measurements"] if entry[name] is not None]


def values_of(report, name, *keys):
    """One number of each measurement that has it, reached through keys."""
    values = []
    for entry in entries_of(report, name):
        value = entry[name]
        for key in keys:
            value = value[key]
        values.append(value)
    return values


def draw_with_band(axes, report, name, quantity, **style):
    """The median, with a band from the least to the greatest measurement."""
    keys = () if quantity is None else (quantity,)
    median, low, high = (values_of(report, name, *keys, key) for key in ("median", "minimum", "maximum"))
    sizes = [size_of(entry) for entry in entries_of(report, name)]
    axes.plot(sizes, median, marker="o", markersize=4, linewidth=1.8, **style)
    axes.fill_between(sizes, low, high, color=style["color"], alpha=0.2, linewidth=0)


def draw_sizes(axes, report, keys, **style):
    sizes = [size_of(entry) for entry in entries_of(report, keys[0])]
    axes.plot(sizes, [size / MEGABYTE for size in values_of(report, *keys)], **style)


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
