"""The runs of a queue, as recipes/lib/queue.sh and train.sh leave them in their folders."""

import dataclasses
import math
import sys
from pathlib import Path

from study import COMPLETE, FAILED, NOT_RUN, read_number, read_text, status_of
from training_log import TrainingLog, read_training_log


@dataclasses.dataclass
class StudyRun:
    """What the runs of all studies have in common; each study adds the fields of its rows and its scores.

    The log is empty where there is none yet.
    """

    folder: Path
    status: str = dataclasses.field(default=NOT_RUN, kw_only=True)
    reason: str | None = dataclasses.field(default=None, kw_only=True)
    log: TrainingLog = dataclasses.field(default_factory=TrainingLog, kw_only=True)
    threads: int | None = dataclasses.field(default=None, kw_only=True)

    @property
    def name(self):
        return self.folder.name

    @property
    def best_perplexity(self):
        """The smallest validation perplexity of an epoch, or None where none is finite."""
        return min(filter(math.isfinite, self.log.perplexities.values()), default=None)

    def read_training(self, script):
        """Fill in what the training and the queue have left, whatever the status.

        Raises ValueError if a complete run lacks something or a file is not as it should be.
        """
        path = self.folder / "train.log"
        if path.exists() or self.status == COMPLETE:
            self.log = read_training_log(path)
        if (self.folder / "threads").exists():
            self.threads = read_number(self.folder / "threads")
        if self.status == FAILED:
            self.reason = read_text(self.folder / "failed", f"start {script} again").strip()

    def need_in_log(self, what, found):
        """Raises ValueError where what was looked for in the log is nothing."""
        if not found:
            raise ValueError(
                f"'{self.folder / 'train.log'}' has no {what}; remove '{self.folder}' and train this run again"
            )


def read_runs(out, script, read):
    """All runs of the queue in its order, those that are missing included.

    Args:
        read: makes a run from its folder, its status and the fields of its row.

    Raises ValueError if `out` is no folder of the script or holds something unreadable.
    """
    rows = read_text(out / "queue", f"give the folder --out of {script}").splitlines()
    return [read(out / name, status_of(out / name), *fields) for name, *fields in map(str.split, rows)]


def print_run(program, line):
    """What the program says of one complete run: `line` of its folder and the other arguments."""
    folder, *arguments = sys.argv[1:]
    try:
        print(line(Path(folder), *arguments))
    except ValueError as error:
        sys.exit(f"{program}: {error}")
