"""Training in benchmark: one step on random sentences."""

from functools import partial

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from .clock import in_turn, ratio, speed
from .models import (
    DTYPES,
    MODELS,
    build_model,
    make_task,
    most_positions,
    random_tokens,
    source_batch,
    source_length,
)

RATIO = "seconds per step, RFA / baseline"
SIZES = "--lengths"
LABEL_SMOOTHING = 0.1
LEARNING_RATE = 1e-4
# The heap of a CPU grows in the first steps, which so take longer than the thousands that follow.
WARM_UP_STEPS = 4


def num_sentences(options, length):
    return max(1, options.tokens // length)


def training_batch(task, options, length, device):
    """A sample as fairseq's trainer hands it to a criterion."""
    rows = num_sentences(options, length)
    target = random_tokens(task, rows, length, options.seed + 1, device)
    source = source_batch(task, rows, source_length(options, length), options.seed, device)
    return {
        "net_input": {**source, "prev_output_tokens": target.roll(1, dims=1)},
        "target": target,
        "ntokens": target.numel(),
    }


def gradients(model, criterion, sample, precision):
    """Forward and backward; the loss of a token.

    Parameters stay in float32, and half precision is that of automatic mixed precision.
    """
    dtype, device = DTYPES[precision], sample["target"].device
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        loss, size, _ = criterion(model, sample)
    loss = loss / size
    loss.backward()
    return loss.detach()


def training_step(model, criterion, optimizer, sample, precision):
    optimizer.zero_grad()
    gradients(model, criterion, sample, precision)
    optimizer.step()


def trainable_model(options, name, task, device):
    """Raises ValueError for options that the model refuses."""
    return build_model(options, name, most_positions(options), task, device).train()


def step_of(model, task, options, length, device):
    """A function that does one training step."""
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, LABEL_SMOOTHING)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    sample = training_batch(task, options, length, device)
    return partial(training_step, model, criterion, optimizer, sample, options.precision)


def prepare(options, name, length, device):
    """For a measurement of memory: a function that does one step."""
    task = make_task(options.vocabulary)
    return step_of(trainable_model(options, name, task, device), task, options, length, device)


def check_gradients(name, model, task, options, device):
    """The loss of one sentence.

    Raises ValueError where it is not finite, or where a parameter that is trained gets no finite gradient.
    """
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, LABEL_SMOOTHING)
    sample = training_batch(task, options, min(options.lengths), device)
    loss = gradients(model, criterion, sample, options.precision).item()
    trained = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    lacking = [
        key
        for key, parameter in trained.items()
        if parameter.grad is None or not parameter.grad.isfinite().all()
    ]
    model.zero_grad()
    if not abs(loss) < float("inf"):
        raise ValueError(f"{name}: the loss is {loss}; nothing is timed; use another --precision")
    if lacking:
        raise ValueError(
            f"{name}: no finite gradient for {', '.join(lacking[:3])} ({len(lacking)} of {len(trained)} "
            "parameters); nothing is timed; use another --precision, or mend the model"
        )
    return loss


def num_runs(options):
    return len(options.lengths) * len(MODELS) * (WARM_UP_STEPS + options.repeats)


def check(options, device):
    """The models, the task, and their losses before training.

    Raises ValueError as `check_gradients` does, and for options that a model refuses.
    """
    task = make_task(options.vocabulary)
    models = {name: trainable_model(options, name, task, device) for name in MODELS}
    losses = {
        name: check_gradients(name, model, task, options, device) for name, model in models.items()
    }
    return models, task, losses


def measure_length(models, task, options, length, device, advance):
    """All numbers of one length."""
    runs = {name: step_of(model, task, options, length, device) for name, model in models.items()}
    in_turn(runs, WARM_UP_STEPS, device, lambda name: advance(f"length {length}: {name} warms up"))
    seconds = in_turn(
        runs, options.repeats, device, lambda name: advance(f"length {length}: {name}")
    )
    sentences = num_sentences(options, length)
    return {
        "length": length,
        "sentences": sentences,
        **{name: speed(times, sentences * length) for name, times in seconds.items()},
        "ratio": ratio(seconds["rfa"], seconds["baseline"]),
    }


def measure(models, task, options, device, advance):
    """Entries for JSON, one for each length."""
    return [
        measure_length(models, task, options, length, device, advance) for length in options.lengths
    ]
