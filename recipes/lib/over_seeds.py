"""Results of one arm over several seeds, and how a table shows them."""

import statistics

from study import COMPLETE


def spread(values, digits=3):
    """Mean and sample standard deviation; None where there are too few values."""
    return {
        "mean": round(statistics.mean(values), digits) if values else None,
        "sd": round(statistics.stdev(values), digits) if len(values) > 1 else None,
    }


def number(found, sign="", digits=2):
    """Mean ± sample standard deviation, as far as there are any."""
    if found["mean"] is None:
        return ""
    text = f"{found['mean']:{sign}.{digits}f}".replace("-", "−")
    return text if found["sd"] is None else f"{text} ± {found['sd']:.{digits}f}"


def what_differs(arm):
    parts = [f"{arm['softmax_epochs']} epochs of softmax first"] if arm["softmax_epochs"] else []
    parts += [f"`{' '.join(arm['flags'])}`"] if arm["flags"] else []
    return ", ".join(parts) or "the default"


def seeds_cell(runs):
    """How many seeds a row has, from the results of its runs; of the others, what became of them."""
    statuses = [run["status"] for run in runs.values()]
    missing = [status for status in dict.fromkeys(statuses) if status != COMPLETE]
    return f"{statuses.count(COMPLETE)} of {len(statuses)}" + (f" ({', '.join(missing)})" if missing else "")
