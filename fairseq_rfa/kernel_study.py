"""python -m fairseq_rfa.kernel_study: how many random directions a kernel, and attention with it, needs.

    python -m fairseq_rfa.kernel_study
    python -m fairseq_rfa.kernel_study --sigma 1 2 --out runs/kernels
    python -m fairseq_rfa.kernel_study --checkpoint RUN/checkpoint_best.pt --data BINARIZED --out runs/kernels

Each map that estimates a kernel (gaussian, cosine, arccos, positive) is compared with that kernel, on drawn
queries and keys and, with --checkpoint, on those of a trained model. The maps elu and learned are kernels of
their own: there is nothing that they would estimate, so they are not in the study.

Writes kernel_study.json and kernel_study.png and prints a table and the verdict on a claim.
"""

import logging
import sys
import time
from contextlib import contextmanager

import torch
from tqdm import tqdm

from . import kernel_errors, kernel_inputs, kernel_verdict
from .kernel_options import HEAD_DIM, NAME, parse_arguments
from .kernel_report import check_folder, signature, table, write

ROWS = {"independent": False, "orthogonal": True}
SECONDS_BETWEEN_LINES = 10


def find_device(name):
    """Raises ValueError where torch has no such device, or one without float64."""
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("use cpu or cuda")
        torch.empty(1, device=device)
    # torch built without CUDA answers with AssertionError.
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name}: {str(error).splitlines()[0]}") from None
    return device


def gather_inputs(options, device):
    """A function from a seed to Points for each name, the width of a head, and the number of sentences or None.

    Raises ValueError as `trained_points` does.
    """
    trained, sentences, head_dim = {}, None, options.head_dim or HEAD_DIM
    if options.checkpoint:
        trained, sentences = kernel_inputs.trained_points(
            options.checkpoint, options.data, options.subset, options.sentences, device
        )
        head_dim = next(iter(trained.values())).query.size(-1)
    inputs = kernel_inputs.drawn_inputs(options.positions, head_dim)
    for name, points in trained.items():
        inputs[name] = lambda seed, points=points: points
    return inputs, head_dim, sentences


def measure_once(points, v, directions, seed, floor):
    """All maps, rows and numbers of directions with one draw of everything.

    Yields:
        the map, the rows, the number of directions (both None for uniform attention), and Errors.
    """
    truths = {name: kernel_errors.exact(name, points, v) for name in kernel_errors.KERNELS}
    nothing = kernel_errors.uniform(points, v)
    for name, truth in truths.items():
        yield name, None, None, kernel_errors.errors(nothing, truth)
        for rows, orthogonal in ROWS.items():
            for number in directions:
                drawn = kernel_errors.draw_directions(name, points.sigma, number, seed, orthogonal)
                estimate = kernel_errors.estimated(name, points, v, drawn, floor)
                yield name, rows, number, kernel_errors.errors(estimate, truth)


@torch.no_grad()
def measure(inputs, options, device):
    """Mean and deviation over the seeds of each case.

    Returns:
        two lists of entries for JSON: those of features, and those of uniform attention.
    """
    numbers, sigmas = sorted(set(options.directions)), list(dict.fromkeys(options.sigma))
    seeds = range(1, options.seeds + 1)
    found = {}
    cases = [(kind, sigma, seed) for kind in inputs for sigma in sigmas for seed in seeds]
    for kind, sigma, seed in with_progress(cases):
        points = inputs[kind](seed).prepared(device, sigma)
        v = kernel_inputs.draw_values(seed, points)
        for *case, errors in measure_once(points, v, numbers, seed, options.floor):
            found.setdefault((kind, sigma, *case), []).append(errors)
    measurements, uniform = [], []
    for (kind, sigma, name, rows, number), repeated in found.items():
        entry = {"input": kind, "sigma": sigma, "map": name}
        averages = kernel_verdict.averages(repeated)
        if rows is None:
            uniform.append({**entry, **averages})
        else:
            measurements.append({**entry, "rows": rows, "directions": number, **averages})
    return measurements, uniform


def with_progress(cases):
    """The cases, with a bar on stderr where it is a terminal, and with lines of a log elsewhere."""
    started = reported = time.monotonic()
    bar = tqdm(cases, desc=NAME, unit="draw", disable=not sys.stderr.isatty(), leave=False)
    for done, case in enumerate(bar):
        now = time.monotonic()
        if bar.disable and now - reported >= SECONDS_BETWEEN_LINES:
            reported = now
            line = f"{NAME}: {done} of {len(cases)} draws, {now - started:.0f} s"
            print(line, file=sys.stderr, flush=True)
        yield case


def study(options):
    """Everything that is measured, ready for JSON.

    Raises ValueError with what is wrong with the options, the checkpoint or the data.
    """
    device = find_device(options.device)
    inputs, head_dim, sentences = gather_inputs(options, device)
    measurements, uniform = measure(inputs, options, device)
    return {
        "signature": signature(options, inputs, head_dim, sentences, device),
        "measurements": measurements,
        "uniform": uniform,
        "slopes": kernel_verdict.slopes(measurements),
        "claim": kernel_verdict.judge(measurements, uniform, head_dim),
    }


def main(arguments=None):
    options = parse_arguments(arguments, description=__doc__)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        with only_warnings():
            from .kernel_plot import plot
    except ImportError as error:
        sys.exit(f"{NAME}: {error}; run: pip install 'fairseq-rfa[recipes]'")
    try:
        with only_warnings():
            check_folder(options.out)
            report = study(options)
            write(report, options.out, plot)
    except (OSError, ValueError) as error:
        sys.exit(f"{NAME}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{NAME}: interrupted, nothing is written")
    print(table(report))


@contextmanager
def only_warnings():
    """fairseq has every library tell its smallest doings on stderr."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


if __name__ == "__main__":
    main()
