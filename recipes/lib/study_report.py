"""The program of a study that writes its report."""

import argparse
import importlib
import json
import sys
from pathlib import Path


def write_report(study, about, script, report, markdown, figures=()):
    """The program STUDY.report: it writes STUDY.json, STUDY.md and a figure STUDY.* of each kind.

    Args:
        study: the name of its package; where there are figures, its module `plot` has `plot`, which draws a report
            into a file.
        about: the first line is that of --help.
        script: the script whose folder is read.
        report: from the folder to what is known, ready for JSON; raises ValueError with what is wrong with it.
        markdown: from that to a text.
    """
    parser = argparse.ArgumentParser(
        prog=f"{study}.report", description=about.split("\n")[0], allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help=f"folder --out of {script}")
    out = parser.parse_args().out
    try:
        plot = importlib.import_module(f"{study}.plot").plot if figures else None
        found = report(out)
    except ImportError as error:
        sys.exit(f"{study}/report.py: {error}; run: pip install -e '.[recipes]'")
    except ValueError as error:
        sys.exit(f"{study}/report.py: {error}")
    text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    (out / f"{study}.json").write_text(text, encoding="utf-8")
    (out / f"{study}.md").write_text(markdown(found), encoding="utf-8")
    for kind in figures:
        plot(found, out / f"{study}.{kind}")
