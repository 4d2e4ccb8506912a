"""python -m fairseq_rfa.kernel_study: how many random directions a kernel, and attention with it, needs.

    python -m fairseq_rfa.kernel_study
    python -m fairseq_rfa.kernel_study --sigma 1 2 --out runs/kernels
    python -m fairseq_rfa.kernel_study --checkpoint RUN/checkpoint_best.pt --data BINARIZED --out runs/kernels

Each map that estimates a kernel (gaussian, cosine, arccos, positive, oprf) is compared with that kernel, on drawn
queries and keys and, with --checkpoint, on those of a trained model. The maps elu, learned and hedgehog are kernels of
their own: there is nothing that they would estimate, so they are not in the study.

Writes kernel_study.json and kernel_study.png and prints a table and the verdict on a claim.
"""

import torch

from ..programs.program import (
    check_folder,
    errors_in_one_line,
    find_device,
    load_plot,
    only_warnings,
    progress,
    write,
)
from .errors import KERNELS, draw_directions, errors, estimated, exact, uniform
from .inputs import draw_values, drawn_inputs, trained_points
from .options import HEAD_DIM, NAME, parse_arguments
from .report import signature, table
from .verdict import averages, judge, slopes

ROWS = {"independent": False, "orthogonal": True}


def gather_inputs(options, device):
    """A function from a seed to Points for each name, the width of a head, and the number of sentences or None.

    Raises ValueError as `trained_points` does.
    """
    trained, sentences, head_dim = {}, None, options.head_dim or HEAD_DIM
    if options.checkpoint:
        trained, sentences = trained_points(
            options.checkpoint, options.data, options.subset, options.sentences, device
        )
        head_dim = next(iter(trained.values())).query.size(-1)
    inputs = drawn_inputs(options.positions, head_dim)
    for name, points in trained.items():
        inputs[name] = lambda seed, points=points: points
    return inputs, head_dim, sentences


def measure_once(points, v, directions, seed, floor):
    """All maps, rows and numbers of directions with one draw of everything.

    Yields:
        the map, the rows, the number of directions (both None for uniform attention), and Errors.
    """
    truths = {name: exact(name, points, v) for name in KERNELS}
    nothing = uniform(points, v)
    for name, truth in truths.items():
        yield name, None, None, errors(nothing, truth)
        for rows, orthogonal in ROWS.items():
            for number in directions:
                drawn = draw_directions(name, points, number, seed, orthogonal)
                estimate = estimated(name, points, v, drawn, floor)
                yield name, rows, number, errors(estimate, truth)


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
            v = draw_values(seed, points)
            for *case, found_errors in measure_once(points, v, numbers, seed, options.floor):
                found.setdefault((kind, sigma, *case), []).append(found_errors)
            advance(f"{kind}, sigma {sigma:g}, seed {seed}")
    measurements, uniform = [], []
    for (kind, sigma, name, rows, number), repeated in found.items():
        entry = {"input": kind, "sigma": sigma, "map": name}
        mean = averages(repeated)
        if rows is None:
            uniform.append({**entry, **mean})
        else:
            measurements.append({**entry, "rows": rows, "directions": number, **mean})
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
        "slopes": slopes(measurements),
        "claim": judge(measurements, uniform, head_dim),
    }


def main(arguments=None):
    options = parse_arguments(arguments, description=__doc__)
    if options.threads:
        torch.set_num_threads(options.threads)
    with only_warnings(), errors_in_one_line(NAME, sizes="--positions"):
        plot = load_plot(NAME, __package__)
        check_folder(options.out)
        report = study(options)
        write(report, options.out, NAME, plot)
    print(table(report))


if __name__ == "__main__":
    main()
