"""The report of report.py as tables in markdown."""

import study
from study import COMPLETE


def number(found, sign=""):
    """Mean ± sample standard deviation, as far as there are any."""
    if found["mean"] is None:
        return ""
    text = f"{found['mean']:{sign}.2f}".replace("-", "−")
    return text if found["sd"] is None else f"{text} ± {found['sd']:.2f}"


def what_differs(arm):
    parts = [f"{arm['softmax_epochs']} epochs of softmax first"] if arm["softmax_epochs"] else []
    parts += [f"`{' '.join(arm['flags'])}`"] if arm["flags"] else []
    return ", ".join(parts) or "the default"


def seeds_cell(arm):
    """How many seeds a row has; of the others, what became of them."""
    statuses = [run["status"] for run in arm["runs"].values()]
    missing = [status for status in dict.fromkeys(statuses) if status != COMPLETE]
    return f"{len(arm['seeds'])} of {len(statuses)}" + (f" ({', '.join(missing)})" if missing else "")


def means_table(found):
    lines = [["arm", "what differs", "seeds", "validation perplexity", *(f"BLEU, {name}" for name in found["subsets"])]]
    for name, arm in found["arms"].items():
        scores = [number(arm["bleu"][subset]) for subset in found["subsets"]]
        lines.append([f"`{name}`", what_differs(arm), seeds_cell(arm), number(arm["perplexity"]), *scores])
    return study.table(lines)


def differences_table(found):
    tests = list(dict.fromkeys(subset for arm in found["arms"].values() for subset in arm["differences"]))
    lines = [["arm", *(cell for name in tests for cell in (f"difference, {name}", "p"))]]
    for name, arm in found["arms"].items():
        cells = []
        for difference in arm["differences"].values():
            p_values = ", ".join(f"{value:.3f}" for value in difference["p"].values())
            cells += [number(difference, "+"), p_values]
        if any(cells):
            lines.append([f"`{name}` − `{found['first']}`", *cells])
    return study.table(lines) if len(lines) > 1 else ["No arm has a seed in common with the first one yet."]


def signature_line(sign):
    named = {name: sign[name] for name in ("epochs", "updates", "seeds", "beam", "precision", "device", "threads")}
    named |= {**sign["versions"], "commit": sign["commit"], "flags": sign["flags"] or None}
    return study.signature_line(study.shown(sign["architecture"]), named, None)


def markdown(found):
    sign = found["signature"]
    about = (
        "Mean ± sample standard deviation over the seeds; the perplexity is that of the best epoch. Differences are "
        "those of the same seed, and p, one for each seed, is that of SacreBLEU's paired bootstrap."
    )
    scores = [f"`{study.shown(sign[name])}`" for name in ("sacrebleu", "paired_bootstrap") if sign[name]]
    parts = [means_table(found), differences_table(found), [about], [", ".join([signature_line(sign), *scores])]]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
