"""Make a training that was stopped while it saved ready to continue.

    PYTHONPATH=recipes/lib python -P -m mend_checkpoint RUN

fairseq writes a checkpoint as a whole but then copies it to checkpoint_last.pt; a training that
was stopped during the copy leaves a part there, which it cannot load. The newest whole checkpoint
takes its place.
"""

import os
import shutil
import sys
import zipfile
from pathlib import Path


def is_whole(path):
    """Whether a file ends with the table of contents with which torch ends a checkpoint."""
    try:
        zipfile.ZipFile(path).close()
    except zipfile.BadZipFile:
        return False
    return True


def mend(folder):
    """Put the newest whole checkpoint in the place of a broken last one; without one, remove that."""
    last = Path(folder, "checkpoint_last.pt")
    if not last.exists() or is_whole(last):
        return
    others = sorted(Path(folder).glob("checkpoint*.pt"), key=lambda file: file.stat().st_mtime)
    whole = [file for file in others if file != last and is_whole(file)]
    if not whole:
        last.unlink()
        return
    copy = last.with_suffix(".partial")
    shutil.copyfile(whole[-1], copy)
    os.replace(copy, last)


if __name__ == "__main__":
    mend(sys.argv[1])
