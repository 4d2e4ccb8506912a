"""How the report of benchmark reaches its reader: signature and table."""

import platform

import torch

from ..programs.signature import commit, version
from .ctranslate import CTRANSLATE2
from .generate import NAMES
from .models import MODELS, is_language_model, model_options

UNKNOWN = "–"
"""Of what a library does not tell."""


def signature(options, device):
    """All that the numbers depend on. Raises ValueError for flags that a model does not have."""
    args = model_options(options, "rfa", max(options.lengths))
    searched = ("batch_size", "beam", "decoding_precision")
    sizes = {
        "decode": searched,
        "train": ("tokens",),
        "documents": ("models", "sentence_length", *searched),
        "lm": ("softmax_most", *searched),
    }
    language = is_language_model(options.arch)
    places = _places(args, getattr(options, "models", ()))
    return {
        "command": options.command,
        "arch": options.arch,
        "baseline": options.baseline,
        "map": str(args.rfa_feature_map),
        "directions": "/".join(str(getattr(args, f"rfa_{place}_dim")) for place in places),
        "gate": "yes" if args.rfa_gate else "no",
        "flags": " ".join(options.flags) or "none",
        "seed": options.seed,
        **{name: getattr(options, name) for name in sizes[options.command]},
        **({} if language else {"source_length": options.source_length or "as target"}),
        "vocabulary": options.vocabulary,
        "precision": options.precision,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "repeats": options.repeats,
        "versions": {
            "torch": torch.__version__,
            "fairseq": version("fairseq"),
            "fairseq_rfa": version("fairseq_rfa"),
            "python": platform.python_version(),
            **({CTRANSLATE2: version(CTRANSLATE2)} if options.baseline == CTRANSLATE2 else {}),
        },
        "commit": commit(),
    }


def _places(args, models):
    """Where the models have random features."""
    if is_language_model(args.arch):
        return ["causal"]
    in_encoder = args.encoder_attention == "rfa" or any(name.endswith("encoder_rfa") for name in models)
    return ["causal", "cross"] + ["encoder"] * in_encoder


def signature_line(sign):
    named = {key: value for key, value in sign.items() if key not in ("versions", "commit")}
    named |= {**sign["versions"], "commit": sign["commit"]}
    if "models" in named:
        named["models"] = ",".join(named["models"])
    return "|".join(f"{key}:{value}" for key, value in named.items())


def device_name(device):
    """The kind of device with the name of the processor."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({processor_name()})"


def processor_name():
    """As Linux names it, or as Python does."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def has_memory(report):
    return any("peak_memory" in found for found in report["measurements"][0].values() if isinstance(found, dict))


def table(report):
    """Lines for a terminal, the signature last."""
    sign, entries = report["signature"], report["measurements"]
    columns, pairs, peak_memory = COLUMNS[sign["command"]], "each pair: RFA / baseline; ", PEAK_MEMORY
    if sign["command"] == "documents":
        entries = [
            {"window": entry["window"], "model": name, **entry[name]} for entry in entries for name in sign["models"]
        ]
        pairs, peak_memory = "", {"peak memory": _peak_memory}
    if sign["command"] == "lm":
        entries = [
            {
                "length": entry["length"],
                "model": name.replace("_", " "),
                "ratio": entry["ratio"] if name == "rfa" else None,
                **entry[name],
            }
            for entry in entries
            for name in NAMES
            if entry[name] is not None
        ]
        pairs, peak_memory = "", {"peak memory": _peak_memory_if_known}
    if has_memory(report):
        columns = {**columns, **peak_memory}
    lines = [report["checked"], f"{pairs}ratio (min–max): {report['ratio_is']}"]
    if sign["command"] == "lm" and report["measurements"][-1]["baseline"] is None:
        lines.append(
            f"softmax is measured up to length {sign['softmax_most']} (--softmax-most): its time for a text grows with "
            "the square of the length"
        )
    rows = [list(columns), *([shown(entry) for shown in columns.values()] for entry in entries)]
    widths = [max(map(len, cells)) for cells in zip(*rows)]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    return "\n".join([*lines, report["signature_line"]])


def _pair(shown):
    """A column of both models: how an entry is shown, from how a model of it is."""
    return lambda entry: " / ".join(shown(entry[name]) for name in MODELS)


def _length(entry):
    return str(entry["length"])


def _ratio(entry, name="ratio"):
    if entry[name] is None:
        return UNKNOWN
    return "{median:.2f} ({minimum:.2f}–{maximum:.2f})".format(**entry[name])


def _share(model):
    return UNKNOWN if model["not_attention_share"] is None else f"{model['not_attention_share']:.0%}"


def _state(model):
    return UNKNOWN if model.get("state_bytes") is None else amount(model["state_bytes"]["total"])


def amount(size):
    """Bytes in the unit that leaves a number from 1 to 1000, with three digits."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def _peak_memory(model):
    return amount(model["peak_memory"]["total"])


def _peak_memory_if_known(model):
    return _peak_memory(model) if "peak_memory" in model else UNKNOWN


COLUMNS = {
    "decode": {
        "length": _length,
        "tokens/s": _pair(lambda model: f"{model['tokens_per_second']['median']:,.0f}"),
        "ratio": _ratio,
        "not attention": _pair(_share),
        "state": _pair(_state),
    },
    "documents": {
        "window": lambda model: str(model["window"]),
        "model": lambda model: model["model"],
        "s/sentence": lambda model: f"{model['seconds_per_sentence']['median']:.3g}",
        "ratio": _ratio,
        "to the smallest window": lambda model: _ratio(model, "growth"),
    },
    "lm": {
        "length": _length,
        "model": lambda model: model["model"],
        "ms/token": lambda model: f"{1000 * model['seconds_per_token']['median']:.3g}",
        "to the shortest length": lambda model: _ratio(model, "growth"),
        "tokens/s": lambda model: f"{model['tokens_per_second']['median']:,.0f}",
        "ratio": _ratio,
        "state": _state,
    },
    "train": {
        "length": _length,
        "s/step": _pair(lambda model: f"{model['seconds']['median']:.3g}"),
        "tokens/s": _pair(lambda model: f"{model['tokens_per_second']['median']:,.0f}"),
        "ratio": _ratio,
    },
}
PEAK_MEMORY = {"peak memory": _pair(_peak_memory)}
