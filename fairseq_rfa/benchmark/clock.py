"""Time for benchmark: runs in turn, and what is said of their seconds."""

import statistics
import time

import torch


def synchronize(device):
    """Wait until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run, device):
    synchronize(device)
    started = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - started


def in_turn(runs, repeats, device, advance):
    """Seconds of each run: all once, then all again, so that a disturbance meets all of them.

    Args:
        runs: functions by name.
        advance: called with a name after each run.
    """
    seconds = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(seconds_of(run, device))
            advance(name)
    return seconds


def speed(seconds, tokens):
    """Seconds and tokens per second, ready for JSON: the greatest speed is that of the least time."""
    median, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return {
        "seconds": {"median": median, "minimum": least, "maximum": most, "all": seconds},
        "tokens_per_second": {
            "median": tokens / median,
            "minimum": tokens / most,
            "maximum": tokens / least,
        },
    }


def shares(seconds, number):
    """What one of so many takes of the seconds that `speed` gives."""
    return {part: seconds[part] / number for part in ("median", "minimum", "maximum")}


def ratio(numerators, denominators):
    """The ratio of the medians, which lies between the least and the greatest ratio of two neighbouring runs."""
    pairs = [one / other for one, other in zip(numerators, denominators)]
    return {
        "median": statistics.median(numerators) / statistics.median(denominators),
        "minimum": min(pairs),
        "maximum": max(pairs),
    }
