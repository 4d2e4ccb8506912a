"""What a measured number was made with: versions and the commit of this repository."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def version(module):
    """Version of what provides a module, whose distribution may have another name; None if nothing knows it."""
    names = importlib.metadata.packages_distributions().get(module, [module.replace("_", "-")])
    try:
        return importlib.metadata.version(names[0])
    except importlib.metadata.PackageNotFoundError:
        return getattr(sys.modules.get(module), "__version__", None)


def commit():
    """Commit of this repository, with a mark if files differ from it; None where git does not know this file.

    A copy that pip installed may lie in a folder of another repository, whose commit says nothing about it.
    """
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(*arguments):
    """Output of git in the folder of the package; None if it fails."""
    command = ["git", "-C", str(PACKAGE), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()
