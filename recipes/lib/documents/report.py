"""Write documents.json, documents.md, documents.png and documents.pdf from the folder of recipes/documents.sh.

    PYTHONPATH=recipes/lib python -P -m documents.report OUT

The queue need not be finished.
"""

import study
from over_seeds import spread
from study import COMPLETE
from study_report import write_report

from .runs import SCRIPT, read_all
from .tables import markdown


def signature(runs, settings):
    complete = [run for run in runs if run.status == COMPLETE]
    scores = [score for run in complete for score in run.scores.values()]
    return {
        "architecture": study.together(name for score in scores for name in score["architectures"]),
        "max_update": settings["max-update"] or None,
        "max_epoch": settings["max-epoch"] or None,
        "windows": sorted({run.window for run in runs}),
        "seeds": sorted({run.seed for run in runs}),
        "beam": settings["beam"],
        "batch_size": settings["batch-size"],
        "jobs": study.together(sorted(jobs for run in complete for jobs in run.jobs.values())),
        "flags": settings.get("flags", ""),
        "data": settings.get("data", ""),
        **study.signature([run.log for run in complete], [run.threads for run in complete], scores),
        "sacrebleu_documents": study.together(score["documents"]["signature"] for score in scores),
        "documents": {
            subset: study.together(run.scores[subset]["documents"]["number"] for run in complete)
            for subset in settings["subsets"].split()
        },
    }


def run_result(run):
    return {
        "status": run.status,
        "reason": run.reason,
        "perplexity": run.perplexity,
        "bleu": {subset: score["score"] for subset, score in run.scores.items()},
        "document_bleu": {subset: score["documents"]["score"] for subset, score in run.scores.items()},
        "seconds_per_sentence": run.seconds,
        "peak_memory": run.peak_memory,
        "jobs": run.jobs,
        "updates": run.log.updates,
    }


def window_result(runs):
    """One arm on windows of one size, over the seeds."""
    complete = [run for run in runs if run.status == COMPLETE]
    subsets = dict.fromkeys(subset for run in complete for subset in run.scores)
    return {
        "seeds": [run.seed for run in complete],
        "perplexity": spread([run.perplexity for run in complete]),
        "bleu": {subset: spread([run.scores[subset]["score"] for run in complete]) for subset in subsets},
        "document_bleu": {
            subset: spread([run.scores[subset]["documents"]["score"] for run in complete]) for subset in subsets
        },
        "seconds_per_sentence": spread([run.seconds for run in complete if run.seconds is not None], digits=6),
        "peak_memory": max((run.peak_memory for run in complete), default=None),
        "runs": {str(run.seed): run_result(run) for run in runs},
    }


def arm_result(runs):
    return {
        "softmax_epochs": runs[0].softmax_epochs,
        "flags": runs[0].flags,
        "windows": {
            str(window): window_result([run for run in runs if run.window == window])
            for window in sorted({run.window for run in runs})
        },
    }


def report(out):
    """All that is known of the runs in a folder, ready for JSON.

    Raises ValueError with what is wrong with the folder.
    """
    settings = study.read_settings(out / "settings", SCRIPT, ("beam", "batch-size"))
    subsets = settings.get("subsets", "valid").split()
    runs = read_all(out, subsets)
    if not runs:
        raise ValueError(f"'{out / 'queue'}' is empty; start {SCRIPT} again")
    names = dict.fromkeys(run.arm for run in runs)
    return {
        "signature": signature(runs, settings),
        "subsets": subsets,
        "arms": {name: arm_result([run for run in runs if run.arm == name]) for name in names},
    }


if __name__ == "__main__":
    write_report("documents", __doc__, SCRIPT, report, markdown, ["png", "pdf"])
