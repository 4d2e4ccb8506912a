"""The report of report.py as a table in markdown."""

import study
from over_seeds import number, seeds_cell, what_differs

from .runs import REFERENCE

ABOUT = (
    "A sentence is decoded after the model's own translations of the sentences before it in its window; «reference»: "
    "after the reference, an upper bound. BLEU is that of the sentences and, in brackets, of whole documents with one "
    "line each. The perplexity is that of the last sentences of the windows. Seconds are those of the searches, and "
    "memory is that of the whole process, both with own translations."
)


def subset_columns(subsets):
    """What has a score, validation data with their upper bound first: (name of a subset, column)."""
    columns = [(subset, f"BLEU, {subset} (documents)") for subset in subsets]
    return [columns[0], (REFERENCE, "BLEU, valid, reference"), *columns[1:]]


def score_cell(result, subset):
    if subset not in result["bleu"]:
        return ""
    return f"{number(result['bleu'][subset])} ({number(result['document_bleu'][subset])})"


def memory_cell(size):
    return "" if size is None else f"{size / 1e6:,.0f} MB"


def window_row(name, arm, window, subsets):
    if window not in arm["windows"]:
        return [window, f"`{name}`", what_differs(arm), "none"] + [""] * (len(subsets) + 3)
    result = arm["windows"][window]
    return [
        *(window, f"`{name}`", what_differs(arm), seeds_cell(result["runs"]), number(result["perplexity"])),
        *(score_cell(result, subset) for subset in subsets),
        *(number(result["seconds_per_sentence"], digits=4), memory_cell(result["peak_memory"])),
    ]


def windows_table(found):
    columns = subset_columns(found["subsets"])
    lines = [
        ["window", "arm", "what differs", "seeds", "validation perplexity"]
        + [title for _, title in columns]
        + ["seconds a sentence", "peak memory"]
    ]
    for window in map(str, found["signature"]["windows"]):
        for name, arm in found["arms"].items():
            lines.append(window_row(name, arm, window, [subset for subset, _ in columns]))
    return study.table(lines)


def notes(found):
    """What a reader must know of single cells."""
    sign, arms = found["signature"], found["arms"]
    lines = [ABOUT]
    if sign["jobs"] == 1:
        lines.append("Decoding was timed with 1 run at a time.")
    elif sign["jobs"] is not None:
        lines.append(f"Runs at a time: {study.shown(sign['jobs'])}; only what was decoded with 1 at a time is timed.")
    for window in map(str, sign["windows"]):
        without = [f"`{name}`" for name, arm in arms.items() if window not in arm["windows"]]
        if without:
            lines.append(f"No window of {window} for {', '.join(without)}: the gate acts between sentences alone.")
    return lines


def signature_line(sign):
    named = {name.replace("_", "-"): sign[name] for name in ("max_update", "max_epoch", "updates", "windows", "seeds")}
    named |= {name.replace("_", "-"): sign[name] for name in ("beam", "batch_size", "jobs", "precision", "device")}
    named |= {"threads": sign["threads"], "documents": ",".join(f"{n} {d}" for n, d in sign["documents"].items())}
    named |= {**sign["versions"], "commit": sign["commit"], "flags": sign["flags"] or None}
    line = study.signature_line(study.shown(sign["architecture"]), named, None)
    if sign["sacrebleu"]:
        line += f", sentences `{study.shown(sign['sacrebleu'])}`"
        line += f", documents `{study.shown(sign['sacrebleu_documents'])}`"
    return line


def markdown(found):
    parts = [windows_table(found), [" ".join(notes(found))], [signature_line(found["signature"])]]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
