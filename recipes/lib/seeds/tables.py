"""The report of report.py as tables in markdown."""

import study
from over_seeds import number, seeds_cell, what_differs


def means_table(found):
    lines = [["arm", "what differs", "seeds", "validation perplexity", *(f"BLEU, {name}" for name in found["subsets"])]]
    for name, arm in found["arms"].items():
        scores = [number(arm["bleu"][subset]) for subset in found["subsets"]]
        lines.append([f"`{name}`", what_differs(arm), seeds_cell(arm["runs"]), number(arm["perplexity"]), *scores])
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
