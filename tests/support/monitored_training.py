"""A training that writes for TensorBoard, and what it wrote of random feature attention."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tiny_data import train_here

INTERVAL = 2


def scalars(folder):
    """By name: (step, value), (step, value), …"""
    events = EventAccumulator(str(folder / "rfa"))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def steps(folder):
    """Of all scalars; sorted, because the names of two files of one second are not always in order."""
    (found,) = {tuple(sorted(step for step, _ in x)) for x in scalars(folder).values()}
    return list(found)


def train(data, folder, *flags, architecture="transformer_rfa_tiny_gate"):
    """A training that logs in the folder named tensorboard, with two batches for each update."""
    flags = ("--log-interval", INTERVAL, "--tensorboard-logdir", folder / "tensorboard", *flags)
    flags = ("--max-update", 4, "--update-freq", 2, *flags)
    return train_here(data, folder, *map(str, flags), architecture=architecture)
