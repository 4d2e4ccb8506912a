"""Peak memory of one model at one length, in a process that does nothing else."""

import json
import os
import resource
import subprocess
import sys
from argparse import Namespace

import torch

from ..programs.signature import PACKAGE
from . import decode, generate, train, windows

COMMANDS = {"decode": decode, "train": train, "documents": windows, "lm": generate}


def peak_memory(options, name, length):
    """Bytes at the peak of one run, and how much that is above what the process held before it.

    Raises ValueError where the process fails.
    """
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps({"options": settings, "model": name, "length": length}),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        last = result.stderr.strip().splitlines()[-1:] or [f"it ended with {result.returncode}"]
        raise ValueError(
            f"cannot measure the memory of {name} at length {length}: {last[0]}; "
            f"use smaller {COMMANDS[options.command].SIZES}, or --no-memory"
        )
    return json.loads(result.stdout.splitlines()[-1])


def resident_bytes(name):
    """Memory of this process by a name of Linux: VmRSS now, VmHWM at its peak; elsewhere the peak for both."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith(f"{name}:"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak():
    """Let the peak be that from now on, where the system allows it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def measure_here(options, name, length):
    """The peak of this process while it decodes or trains once. Raises ValueError as building a model does."""
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    run = COMMANDS[options.command].prepare(options, name, length, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device)
    else:
        # Not ru_maxrss where it can be helped: a new process inherits that of the one that started it.
        forget_peak()
        before = resident_bytes("VmRSS")
        run()
        peak = resident_bytes("VmHWM")
    return {"total": peak, "increase": max(0, peak - before)}


def main():
    request = json.load(sys.stdin)
    options = Namespace(**request["options"])
    print(json.dumps(measure_here(options, request["model"], request["length"])))


if __name__ == "__main__":
    main()
