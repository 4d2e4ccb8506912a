"""How the report of zero_shot reaches its reader: signature, tables, files."""

import csv
import hashlib
import io
import os
import platform

import torch

from ..programs.program import write
from ..programs.signature import commit, version
from .options import NAME
from .verdict import curves, verdicts

NAMES = {
    "both": "causal and cross attention",
    "causal": "causal attention",
    "cross": "cross attention",
    "encoder": "the encoder",
    "all": "encoder, causal and cross attention",
}
MAX_COLUMNS = 4
"""Numbers of directions of which the table shows the distance."""


def settings(options, study):
    """All that each row depends on besides its case."""
    return {
        "checkpoint": hashlib.sha256(options.checkpoint.read_bytes()).hexdigest(),
        "subset": options.subset,
        "sentences": study.digest,
        "fit-subset": options.fit_subset,
        "fit-sentences": study.fit_digest,
        "device": options.device,
        "torch": torch.__version__,
    }


def make_report(options, study, rows):
    """Everything, ready for JSON."""
    model, decoder = study.trained.options, study.trained.model.decoder
    attention = decoder.layers[0].self_attn
    device_name = f"cpu ({platform.machine()})"
    if options.device.startswith("cuda"):
        device_name = torch.cuda.get_device_name(torch.device(options.device))
    modules = ("torch", "fairseq", "fairseq_rfa", "sacrebleu")
    report = {
        "signature": {
            "checkpoint": options.checkpoint.name,
            "arch": model.get("arch") or model.get("_name"),
            "layers": len(decoder.layers),
            "heads": attention.num_heads,
            "head_dim": attention.head_dim,
            "data": options.data.resolve().name,
            "subset": options.subset,
            "sentences": study.sentences,
            "fit_subset": options.fit_subset,
            "maps": options.maps,
            "directions": options.directions,
            "seeds": options.seeds,
            "imitate": options.imitate,
            "sites": options.sites,
            "floors": options.floors,
            "distillation": learning(options),
            "beam": options.beam,
            "precision": "float32",
            "device": device_name,
            "threads": torch.get_num_threads(),
            "versions": {module: version(module) for module in modules},
            "commit": commit(),
            "commits_of_rows": sorted({str(row["commit"]) for row in rows}),
        },
        "settings": settings(options, study),
        "rows": rows,
        "curves": curves(rows),
    }
    return {**report, "verdicts": verdicts(report)}


def learning(options):
    """How distillation is done; None where it is not asked for."""
    names = ("distill_updates", "distill_tokens", "distill_lr")
    return {name: getattr(options, name) for name in names} if options.distill_updates else None


def signature_line(sign):
    names = "checkpoint arch layers heads head_dim data subset sentences fit_subset seeds precision device threads"
    named = {name: sign[name] for name in names.split()}
    named["seeds"] = ",".join(map(str, sign["seeds"]))
    named |= sign["distillation"] or {}
    named |= {**sign["versions"], "commit": sign["commit"]}
    return "|".join(f"{name}:{value}" for name, value in named.items())


def table(report):
    """Markdown: the model itself, a table for each choice of sites, the verdicts, the signature."""
    sign, lines = report["signature"], []
    numbers = shown(sign["directions"])
    scored = any("bleu" in row for row in report["rows"])
    softmax = {name: value for row in _kind(report, "softmax") for name, value in row.items()}
    text = f"softmax itself: perplexity {softmax['perplexity']:.2f}"
    lines += [text + (f", BLEU {softmax['bleu']:.1f}" if scored else ""), ""]
    for sites in sign["sites"]:
        equal = next(row for row in _kind(report, "equal") if row["case"]["sites"] == sites)
        lines += [f"Features in {NAMES[sites]} (with equal weights the distance is {equal['distance']:.2f}):", ""]
        lines += _table_of(sites, report["curves"], numbers, scored)
        lines.append("")
    lines += [f"- {sentence}" for sentence in report["verdicts"]]
    lines += ["", f"`{signature_line(sign)}`"]
    if scored:
        lines.append(
            f"BLEU: `{softmax['signature']}` on {sign['sentences']} sentences of {sign['subset']}, detokenised, "
            f"against the raw text, beam {sign['beam']}"
        )
    return "\n".join(lines)


def shown(directions):
    """A few of many numbers, the least and the greatest among them."""
    if len(directions) <= MAX_COLUMNS:
        return directions
    places = [round(i * (len(directions) - 1) / (MAX_COLUMNS - 1)) for i in range(MAX_COLUMNS)]
    return [directions[place] for place in places]


def _table_of(sites, found, numbers, scored):
    greatest = numbers[-1]
    distilled = any(curve["updates"] for curve in found)
    heading = ["map", "imitates", "floor"] + ["distilled"] * distilled
    heading += [*(f"distance, D = {number:,}" for number in numbers), "limit", "slope"]
    heading += [f"KL, D = {greatest:,}", "same best", "perplexity"] + ["BLEU"] * scored
    lines = [f"| {' | '.join(heading)} |", "| " + " | ".join("---" for _ in heading) + " |"]
    for curve in found:
        if curve["sites"] != sites:
            continue
        points = {point["directions"]: point for point in curve["points"]}
        last = curve["points"][-1]
        cells = [curve["map"], curve["imitate"], "" if curve["floor"] is None else f"{curve['floor']:g}"]
        cells += [f"{curve['updates'] or 'no'}"] * distilled
        cells += [_cell(points.get(number), "distance", ".2f") for number in numbers[:-1]]
        cells += [_cell(last, "distance", ".2f")]
        cells += ["" if curve["limit"] is None else f"{curve['limit']['distance']:.2g}"]
        cells += ["" if curve["slope"] is None else f"{curve['slope']:.2f}"]
        cells += [_cell(last, "divergence", ".2f"), _cell(last, "agreement", ".0%"), _cell(last, "perplexity", ".4g")]
        cells += [_cell(last, "bleu", ".1f")] * scored
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(point, name, form):
    return "" if point is None or name not in point else format(point[name]["median"], form)


def _kind(report, kind):
    return [row for row in report["rows"] if row["case"]["kind"] == kind]


def rows_as_csv(rows):
    """One line for each row, empty where a row has nothing to say."""
    numbers = "distance divergence agreement perplexity words bleu seconds commit".split()
    names = [*rows[0]["case"], *numbers]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row["case"], **row} for row in rows)
    return stream.getvalue()


def write_all(report, out, plot):
    """zero_shot.json, .png, .csv and .md in the folder out."""
    write(report, out, NAME, plot)
    for ending, text in (("csv", rows_as_csv(report["rows"])), ("md", table(report) + "\n")):
        partial = out / f".{NAME}.{ending}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, out / f"{NAME}.{ending}")
