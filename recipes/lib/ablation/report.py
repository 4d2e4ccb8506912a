"""Write ablation.json, ablation.md and ablation.png from the folder of recipes/ablation.sh.

    PYTHONPATH=recipes/lib python -P -m ablation.report OUT

The queue need not be finished.
"""

import math

import study
from study import COMPLETE, NOT_FINISHED
from study_report import write_report

from .runs import SCRIPT, read_all

DID_NOT_TRAIN = "did not train"
# A perplexity this many times softmax's is that of a model that has learned nothing.
HOPELESS = 10
COLUMNS = ["name", "what differs", "parameters", "validation perplexity", "BLEU", "perplexity / softmax"]


def signature(runs, settings):
    complete = [run for run in runs if run.status == COMPLETE]
    return {
        "architecture": runs[0].architecture,
        "epochs": settings["max-epoch"],
        "seed": settings["seed"],
        "beam": settings["beam"],
        "flags": settings.get("flags", ""),
        "data": settings.get("data", ""),
        **study.signature(
            [run.log for run in complete],
            [run.threads for run in complete],
            [run.score for run in complete],
        ),
    }


def verdict(run, softmax):
    """The status of a run, or that it learned nothing in comparison with softmax's perplexity."""
    if run.status != COMPLETE:
        return run.status
    hopeless = softmax is not None and (run.best_perplexity or math.inf) > HOPELESS * softmax
    return DID_NOT_TRAIN if hopeless or run.best_perplexity is None else COMPLETE


def result(run, softmax):
    finite = {epoch: p if math.isfinite(p) else None for epoch, p in run.log.perplexities.items()}
    complete = run.status == COMPLETE
    best = run.best_perplexity if complete else None
    return {
        "study": run.study,
        "architecture": run.architecture,
        "flags": run.flags,
        "status": verdict(run, softmax),
        "reason": run.reason,
        "parameters": run.log.parameters,
        "directions": run.log.directions,
        "perplexity": best,
        "perplexity_ratio": round(best / softmax, 4) if best and softmax else None,
        "perplexities": {str(epoch): finite[epoch] for epoch in sorted(finite)},
        "bleu": run.score.get("score"),
        "minutes": run.minutes if run.log.seconds or complete else None,
    }


def report(out):
    """All that is known of the runs in a folder, ready for JSON.

    Raises ValueError with what is wrong with the folder.
    """
    runs = read_all(out)
    if not runs:
        raise ValueError(f"'{out / 'queue'}' is empty; start recipes/ablation.sh again")
    softmax = {run.name: run.best_perplexity for run in runs if run.status == COMPLETE}.get("softmax")
    return {
        "signature": signature(runs, study.read_settings(out / "settings", SCRIPT, ("max-epoch", "beam", "seed"))),
        "runs": {run.name: result(run, softmax) for run in runs},
    }


def table_row(name, run, base, epochs):
    differs = list(run["flags"])
    if run["architecture"] != base:
        differs = ["--arch", run["architecture"], *differs]
    cells = [name, f"`{' '.join(differs)}`" if differs else "the default"]
    if run["status"] in (COMPLETE, DID_NOT_TRAIN):
        ratio, perplexity = run["perplexity_ratio"], run["perplexity"]
        shown = "not finite" if perplexity is None else f"{perplexity:.2f}"
        cells += [
            f"{run['parameters']:,}",
            f"{shown}, {DID_NOT_TRAIN}" if run["status"] == DID_NOT_TRAIN else shown,
            f"{run['bleu']:.2f}",
            "" if ratio is None else f"{ratio:.2f}",
        ]
    elif run["status"] == NOT_FINISHED:
        cells += ["", f"not finished ({len(run['perplexities'])} of {epochs} epochs)", "", ""]
    else:
        cells += ["", run["status"], "", ""]
    return cells


def signature_line(sign):
    named = {name: sign[name] for name in ("epochs", "updates", "seed", "beam", "precision", "device")}
    named |= {"threads": sign["threads"], **sign["versions"], "commit": sign["commit"]}
    if sign["flags"]:
        named["flags"] = sign["flags"]
    return study.signature_line(sign["architecture"], named, sign["sacrebleu"])


def markdown(report):
    sign = report["signature"]
    lines = [COLUMNS]
    place = None
    for name, run in report["runs"].items():
        if run["study"] != place:
            place = run["study"]
            lines.append([f"**{place}**"] + [""] * (len(COLUMNS) - 1))
        lines.append(table_row(name, run, sign["architecture"], sign["epochs"]))
    return "\n".join([*study.table(lines), "", signature_line(sign), ""])


if __name__ == "__main__":
    write_report("ablation", __doc__, SCRIPT, report, markdown, ["png"])
