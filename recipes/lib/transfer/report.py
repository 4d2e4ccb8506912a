"""Write transfer_study.json, .md, .csv and .png from the folder of recipes/transfer-study.sh.

    PYTHONPATH=recipes/lib python -P -m transfer.report OUT [--smooth N]

The queue need not be finished.
"""

import argparse
import csv
import json
import math
import sys
from pathlib import Path

import study
from study import COMPLETE

from .curves import smooth
from .runs import OTHER, SCRIPT, read_all
from .tables import markdown

NUMBERS = ("arm-updates", "log-interval", "beam", "seed")
COLUMNS = [
    *("arm", "step", "loss", "nll_loss", "smoothed_loss", "smoothed_nll_loss"),
    *("validation_loss", "validation_nll_loss"),
]


def signature(runs, settings, window):
    complete = [run for run in runs if run.status == COMPLETE and run.kind != "train"]
    logs = [run.log for run in complete if run.log]
    rfa = [run.log for run in complete if run.log and run.model == "rfa"]
    names = ("preset", "arch", "arm-updates", "arm-lr", "arm-warmup", "update-tokens", "log-interval")
    return {
        **{name.replace("-", "_"): settings[name] for name in (*names, "seed", "beam", "flags", "data")},
        "smooth": window,
        "map": study.together(log.feature_map for log in rfa),
        "directions": study.together(log.directions for log in rfa),
        **study.signature(
            logs, [run.threads for run in complete], [score for run in complete for score in run.scores]
        ),
    }


def finite(number, digits):
    return round(number, digits) if number is not None and math.isfinite(number) else None


def source_result(run):
    """What a model is worth as it was given; its loss in training is the mean over one epoch."""
    if run.status != COMPLETE:
        return None
    (updates, loss), *_ = run.curves.epochs.items()
    return {
        "updates": updates,
        "training_loss": finite(loss.loss, 3),
        "training_nll_loss": finite(loss.nll, 3),
        "perplexity": finite(run.curves.best.perplexity, 2),
        "bleu": run.score["score"],
    }


def curve_rows(run, window):
    """Rows of the CSV file as dicts: every update with a training or a validation loss."""
    smoothed = smooth(run.curves.training, window)
    rows = []
    for step in sorted({*run.curves.training, *run.curves.validation}):
        row = {"arm": run.name, "step": step}
        for prefix, losses in (
            ("", run.curves.training),
            ("smoothed_", smoothed),
            ("validation_", run.curves.validation),
        ):
            loss = losses.get(step)
            row[f"{prefix}loss"] = finite(loss.loss, 4) if loss else None
            row[f"{prefix}nll_loss"] = finite(loss.nll, 4) if loss else None
        rows.append(row)
    return rows


def step_reaching(rows, loss):
    """The first step whose smoothed loss is no greater; None where there is none."""
    return next(
        (row["step"] for row in rows if row["smoothed_loss"] is not None and row["smoothed_loss"] <= loss),
        None,
    )


def arm_result(run, rows, sources):
    complete = run.status == COMPLETE
    smoothed = [row["smoothed_loss"] for row in rows if row["smoothed_loss"] is not None]
    return {
        "model": run.model,
        "from": run.origin,
        "projections": run.kind if run.kind in ("kept", "reset") else None,
        "imitate": run.way,
        "sigma_fitted": bool(run.fitted) if run.way else None,
        "status": run.status,
        "reason": run.reason,
        "updates": max(run.curves.training, default=0),
        "start_perplexity": finite(run.start.perplexity, 2) if run.start else None,
        "start_bleu": run.start_score["score"] if run.start_score else None,
        "perplexity": finite(run.curves.best.perplexity, 2) if complete else None,
        "bleu": run.score["score"] if complete else None,
        "least_smoothed_loss": min(smoothed, default=None),
        "reached": {
            name: step_reaching(rows, source["training_loss"]) if source and smoothed else None
            for name, source in sources.items()
        },
    }


def zero_shot(runs, sources):
    """Each model with each attention and without training; of softmax with RFA one row for each conversion."""
    rows = []
    for name, source in sources.items():
        if source:
            rows.append((name, name, None, None, source["perplexity"], source["bleu"]))
    for run in runs:
        if run.start:
            fitted = bool(run.fitted) if run.model == "rfa" else None
            rows.append(
                (run.origin, run.model, run.way, fitted, finite(run.start.perplexity, 2), run.start_score["score"])
            )
    names = ("trained", "evaluated", "imitate", "sigma_fitted", "perplexity", "bleu")
    return [dict(zip(names, row)) for row in sorted(rows, key=lambda row: (row[0] != "softmax", row[0] != row[1]))]


def report(out, window):
    """All that is known of the runs in a folder, ready for JSON, and the rows of the CSV file.

    Raises ValueError with what is wrong with the folder.
    """
    runs = read_all(out)
    settings = study.read_settings(out / "settings", SCRIPT, NUMBERS)
    interval = settings["log-interval"]
    if window < 1 or window % interval:
        raise ValueError(f"--smooth {window} is no multiple of the {interval} updates of a row")
    sources = dict.fromkeys(OTHER)
    sources |= {run.model: source_result(run) for run in runs if run.kind == "source"}
    curves = {run.name: curve_rows(run, window) for run in runs if run.is_arm or run.kind == "source"}
    found = {
        "signature": signature(runs, settings, window),
        "sources": sources,
        "zero_shot": zero_shot(runs, sources),
        "arms": {run.name: arm_result(run, curves[run.name], sources) for run in runs if run.is_arm},
    }
    return found, [row for rows in curves.values() for row in rows]


def write_csv(rows, path):
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("out", type=Path, help=f"folder --out of {SCRIPT}")
    parser.add_argument("--smooth", type=int, default=50, help="updates of the mean (default 50)")
    options = parser.parse_args()
    try:
        from .plot import plot
    except ImportError as error:
        sys.exit(f"transfer/report.py: {error}; run: pip install -e '.[recipes]'")
    try:
        found, rows = report(options.out, options.smooth)
    except ValueError as error:
        sys.exit(f"transfer/report.py: {error}")
    path = options.out / "transfer_study"
    text = json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(found), encoding="utf-8")
    write_csv(rows, path.with_suffix(".csv"))
    plot(found, rows, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
