"""What the folders and the reports of the studies in recipes/ have in common."""

import json

COMPLETE, FAILED, NOT_FINISHED, NOT_RUN = "complete", "failed", "not finished", "not run"
MARKS = {"complete": COMPLETE, "failed": FAILED, "train.log": NOT_FINISHED}


def read_text(path, remedy, newline=None):
    """The text of a file, its ends of lines as `open` takes them. Raises ValueError with the remedy."""
    try:
        with open(path, encoding="utf-8", newline=newline) as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"cannot read '{path}' ({reason}); {remedy}") from error


def read_settings(path, script, numbers):
    """The lines name=value of a file; those of `numbers` as whole numbers.

    Raises ValueError if the file is missing or one of the numbers is missing or none.
    """
    remedy = f"give the folder --out of {script}"
    settings = dict(line.partition("=")[::2] for line in read_text(path, remedy).splitlines())
    try:
        return settings | {name: int(settings[name]) for name in numbers}
    except (KeyError, ValueError):
        raise ValueError(f"'{path}' holds no settings of {script}; {remedy}") from None


def read_score(path, script):
    """The report of recipes/score.sh.

    Raises ValueError if the file is missing or is no such report.
    """
    remedy = f"remove the file 'complete' beside its folder and start {script} again"
    try:
        score = json.loads(read_text(path, remedy))
        if isinstance(score["score"], (int, float)) and score["signature"] and score["versions"]:
            return {"commit": None, **score}
    except (json.JSONDecodeError, KeyError, TypeError):
        pass
    raise ValueError(f"'{path}' is no report of recipes/score.sh; {remedy}")


def read_number(path):
    text = read_text(path, "remove it").strip()
    if not text.isdigit():
        raise ValueError(f"'{path}' holds no number; remove it")
    return int(text)


def status_of(folder):
    return next((status for mark, status in MARKS.items() if (folder / mark).exists()), NOT_RUN)


def together(values):
    """The value if all agree, a list of the different values if not, None if there is none."""
    different = []
    for value in values:
        if value not in different:
            different.append(value)
    return different[0] if len(different) == 1 else different or None


def signature(logs, threads, scores):
    """How numbers of several runs were made.

    Args:
        logs: a TrainingLog of each run, threads: their numbers, scores: reports of recipes/score.sh.
    """
    modules = scores[0]["versions"] if scores else {}
    return {
        "updates": together(log.updates for log in logs),
        "precision": together(log.precision for log in logs),
        "device": together(log.device for log in logs),
        "threads": together(threads),
        "versions": {module: together(score["versions"].get(module) for score in scores) for module in modules},
        "commit": together(score["commit"] for score in scores),
        "sacrebleu": together(score["signature"] for score in scores),
    }


def shown(value):
    return ",".join(map(shown, value)) if isinstance(value, list) else str(value)


def signature_line(architecture, named, sacrebleu):
    """One line of markdown; what is None is left out."""
    parts = [f"{name}:{shown(value)}" for name, value in named.items() if value is not None]
    line = f"`{'|'.join([architecture, *parts])}`"
    return f"{line}, `{shown(sacrebleu)}` on validation data" if sacrebleu else line


def table(rows):
    """Lines of markdown; the first row holds the columns' names."""
    first, *rest = rows
    return ["| " + " | ".join(cells) + " |" for cells in (first, ["---"] * len(first), *rest)]
