"""fairseq-train with torch_xla, and how often it compiled by the end of each epoch.

    PYTHONPATH=recipes/lib python -P -m tpu.count_compilations FILE FLAG… (those of fairseq-train)

appends to FILE one line of JSON for the run: the epoch and the updates from which it resumed (null and 0 if it
did not), the number of compilations by the end of each epoch with its validation, the operations that torch_xla
left to the CPU, and the versions.
"""

import json
import logging
import re
import sys

from fairseq_cli import train  # before torch_xla, which would take the log

# isort: split
import torch
import torch_xla
import torch_xla.debug.metrics


class EpochWatch(logging.Handler):
    """Reads in fairseq's log where epochs end; the log is written on the same thread."""

    def __init__(self):
        super().__init__()
        self.resumed_epoch, self.resumed_updates = None, 0
        self.compilations = {}
        self.epoch = None

    def emit(self, record):
        message = record.getMessage()
        loaded = re.match(r"Loaded checkpoint .* \(epoch (\d+) @ (\d+) updates\)", message)
        if loaded:
            self.resumed_epoch, self.resumed_updates = map(int, loaded.groups())
        begun = re.match(r"begin training epoch (\d+)", message)
        if begun:
            self.end_epoch()
            self.epoch = int(begun[1])

    def end_epoch(self):
        if self.epoch is not None:
            self.compilations[self.epoch] = number_of_compilations()


def number_of_compilations():
    data = torch_xla.debug.metrics.metric_data("CompileTime")
    return data[0] if data else 0


def left_to_the_cpu():
    """Names of operations that XLA lacks; each is a stop in the middle of a step."""
    reading_a_number = "aten::_local_scalar_dense"  # for the log, between steps
    return sorted(set(torch_xla.debug.metrics.executed_fallback_ops()) - {reading_a_number})


def main(file, *flags):
    watch = EpochWatch()
    logging.getLogger("fairseq").addHandler(watch)
    sys.argv = ["fairseq-train", *flags]
    train.cli_main()
    watch.end_epoch()
    report = {
        "resumed_epoch": watch.resumed_epoch,
        "resumed_updates": watch.resumed_updates,
        "compilations": watch.compilations,
        "left_to_the_cpu": left_to_the_cpu(),
        "torch": torch.__version__,
        "torch_xla": torch_xla.__version__,
    }
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
