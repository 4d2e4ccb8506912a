"""python -m fairseq_rfa.kernel_study: how many random directions a kernel, and attention with it, needs.

    python -m fairseq_rfa.kernel_study
    python -m fairseq_rfa.kernel_study --sigma 1 2 --out runs/kernels
    python -m fairseq_rfa.kernel_study --checkpoint RUN/checkpoint_best.pt --data BINARIZED --out runs/kernels

Each map that estimates a kernel (gaussian, cosine, arccos, positive) is compared with that kernel, on drawn
queries and keys and, with --checkpoint, on those of a trained model. The maps elu and learned are kernels of
their own: there is nothing that they would estimate, so they are not in the study.

Writes kernel_study.json and kernel_study.png and prints a table and the verdict on a claim.
"""

import torch

from . import kernel_errors, kernel_inputs, kernel_verdict
from .kernel_options import HEAD_DIM, NAME, parse_arguments
from .kernel_report import signature, table
from .program import (
    check_folder,
    errors_in_one_line,
    find_device,
    load_plot,
    only_warnings,
    progress,
    write,
)

ROWS = {"independent": False, "orthogonal": True}


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
    with progress(NAME, len(cases), "draws") as advance:
        for kind, sigma, seed in cases:
            points = inputs[kind](seed).prepared(device, sigma)
            v = kernel_inputs.draw_values(seed, points)
            for *case, errors in measure_once(points, v, numbers, seed, options.floor):
                found.setdefault((kind, sigma, *case), []).append(errors)
            advance(f"{kind}, sigma {sigma:g}, seed {seed}")
    measurements, uniform = [], []
    for (kind, sigma, name, rows, number), repeated in found.items():
        entry = {"input": kind, "sigma": sigma, "map": name}
        averages = kernel_verdict.averages(repeated)
        if rows is None:
            uniform.append({**entry, **averages})
        else:
            measurements.append({**entry, "rows": rows, "directions": number, **averages})
    return measurements, uniform


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
    with only_warnings(), errors_in_one_line(NAME, sizes="--positions"):
        plot = load_plot(NAME, "kernel_plot")
        check_folder(options.out)
        report = study(options)
        write(report, options.out, NAME, plot)
    print(table(report))


if __name__ == "__main__":
    main()
