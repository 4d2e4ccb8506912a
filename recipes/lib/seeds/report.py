"""Write seeds.json and seeds.md from the folder of recipes/seeds.sh.

    PYTHONPATH=recipes/lib python -P -m seeds.report OUT

The queue need not be finished.
"""

import math

import study
from over_seeds import spread
from study import COMPLETE
from study_report import write_report

from .runs import SCRIPT, read_all, read_lines
from .significance import paired_bootstrap
from .tables import markdown

VALIDATION = "valid"


def signature(runs, settings):
    complete = [run for run in runs if run.status == COMPLETE]
    scores = [score for run in complete for score in run.scores.values()]
    return {
        "architecture": study.together(name for score in scores for name in score["architectures"]),
        "epochs": settings["max-epoch"],
        "seeds": sorted({run.seed for run in runs}),
        "beam": settings["beam"],
        "flags": settings.get("flags", ""),
        "data": settings.get("data", ""),
        **study.signature([run.log for run in complete], [run.threads for run in complete], scores),
    }


def run_result(run):
    """Of a run that began with softmax, the perplexities are those of its epochs with RFA."""
    return {
        "status": run.status,
        "reason": run.reason,
        "perplexity": run.best_perplexity if run.status == COMPLETE else None,
        "perplexities": {
            str(epoch): value if math.isfinite(value) else None for epoch, value in sorted(run.log.perplexities.items())
        },
        "bleu": {subset: score["score"] for subset, score in run.scores.items()},
    }


def arm_result(runs, subsets):
    complete = [run for run in runs if run.status == COMPLETE]
    return {
        "softmax_epochs": runs[0].softmax_epochs,
        "flags": runs[0].flags,
        "seeds": [run.seed for run in complete],
        "perplexity": spread([run.best_perplexity for run in complete]),
        "bleu": {subset: spread([run.scores[subset]["score"] for run in complete]) for subset in subsets},
        "differences": {},
        "runs": {str(run.seed): run_result(run) for run in runs},
    }


def add_differences(arms, by_arm, subset, reference):
    """Fill in the differences from the first arm on a subset, seed by seed; returns the signatures of the tests.

    Each seed is tested by itself. Outputs of several seeds in one text would hold each sentence several times, and
    the bootstrap, which takes sentences for independent, would find differences too sure.
    """
    first, *others = by_arm
    signatures = []
    found = {name: ({}, {}) for name in others}
    for seed, run in by_arm[first].items():
        rivals = [name for name in others if seed in by_arm[name]]
        if not rivals:
            continue
        systems = {name: by_arm[name][seed].translations(subset) for name in (first, *rivals)}
        lowercase = run.scores[subset].get("case") == "lowercase"
        signature, values = paired_bootstrap(systems, reference, lowercase)
        signatures.append(signature)
        for name in rivals:
            differences, p_values = found[name]
            differences[seed] = by_arm[name][seed].scores[subset]["score"] - run.scores[subset]["score"]
            p_values[str(seed)] = round(values[name], 4)
    for name, (differences, p_values) in found.items():
        arms[name]["differences"][subset] = {**spread(list(differences.values())), "p": p_values}
    return signatures


def report(out):
    """All that is known of the runs in a folder, ready for JSON.

    Raises ValueError with what is wrong with the folder.
    """
    settings = study.read_settings(out / "settings", SCRIPT, ("max-epoch", "beam"))
    subsets = settings.get("subsets", VALIDATION).split()
    runs = read_all(out, subsets)
    if not runs:
        raise ValueError(f"'{out / 'queue'}' is empty; start {SCRIPT} again")
    names = list(dict.fromkeys(run.arm for run in runs))
    arms = {name: arm_result([run for run in runs if run.arm == name], subsets) for name in names}
    complete = {name: {run.seed: run for run in runs if (run.arm, run.status) == (name, COMPLETE)} for name in names}
    signatures = []
    for subset in subsets:
        if subset != VALIDATION:
            reference = read_lines(out / f"reference.{subset}", f"start {SCRIPT} again")
            signatures += add_differences(arms, complete, subset, reference)
    return {
        "signature": {**signature(runs, settings), "paired_bootstrap": study.together(signatures)},
        "subsets": subsets,
        "first": names[0],
        "arms": arms,
    }


if __name__ == "__main__":
    write_report("seeds", __doc__, SCRIPT, report, markdown)
