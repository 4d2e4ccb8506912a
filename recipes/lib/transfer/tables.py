"""The report of report.py as tables in markdown."""

import study
from study import COMPLETE

from .runs import SHOWN


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def zero_shot_table(rows):
    lines = [["trained with", "evaluated with", "perplexity", "BLEU"]]
    for row in rows:
        evaluated = SHOWN[row["evaluated"]]
        if row["imitate"] == "softmax":
            evaluated += ", unnormalised"
        elif row["imitate"]:
            evaluated += ", sigma fitted" if row["sigma_fitted"] else ", sigma at its start"
        lines.append([SHOWN[row["trained"]], evaluated, number(row["perplexity"]), number(row["bleu"])])
    return study.table(lines)


def reached_cell(arm, name, source):
    if source is None or not arm["updates"]:
        return ""
    step = arm["reached"][name]
    if step is not None:
        return f"{step:,}"
    return f"not reached ({number(arm['least_smoothed_loss'], '{:.3f}')})"


def arms_table(found):
    sources = found["sources"]
    reached = [
        f"step at {SHOWN[name]}'s loss" + (f" ({source['training_loss']:.3f})" if source else "")
        for name, source in sources.items()
    ]
    lines = [["arm", "perplexity", "BLEU", *reached]]
    for name, arm in found["arms"].items():
        cells = [number(arm["perplexity"]), number(arm["bleu"])]
        if arm["status"] != COMPLETE:
            cells = [arm["status"], ""]
        lines.append([f"`{name}`", *cells, *(reached_cell(arm, *source) for source in sources.items())])
    return study.table(lines)


def signature_line(sign):
    directions = sign["directions"]
    if isinstance(directions, dict):
        directions = "+".join(str(count) for count in directions.values())
    named = {
        "map": sign["map"],
        "directions": directions,
        "updates": sign["arm_updates"],
        "lr": sign["arm_lr"],
        "warmup": sign["arm_warmup"],
        "update-tokens": sign["update_tokens"],
        **{name: sign[name] for name in ("seed", "beam", "smooth", "precision", "device", "threads")},
        **sign["versions"],
        "commit": sign["commit"],
        "flags": sign["flags"] or None,
    }
    return study.signature_line(sign["arch"], named, sign["sacrebleu"])


def markdown(found):
    sign = found["signature"]
    about = (
        f"Step: the first at which the mean training loss of the last {sign['smooth']} updates (label-smoothed, with "
        "dropout) is no greater than the mean of the trained model over one epoch, measured in the same way with "
        "learning rate 0; in brackets the least of the arm."
    )
    parts = [zero_shot_table(found["zero_shot"]), arms_table(found), [about], [signature_line(sign)]]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
