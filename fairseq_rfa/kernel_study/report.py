"""How the report of kernel_study reaches its reader: signature and table."""

import platform

import numpy as np
import torch

from ..programs.signature import commit, version
from .errors import KERNELS
from .inputs import DESCRIPTIONS
from .verdict import CLAIM_DIRECTIONS, CLAIM_ERROR, curves, sentence


def signature(options, inputs, head_dim, sentences, device):
    """All that the numbers depend on.

    Args:
        inputs: names of the kinds of input.
        sentences: how many of the data were read, None without a checkpoint.
    """
    trained = {}
    if options.checkpoint:
        trained = {
            "checkpoint": options.checkpoint.name,
            "data": options.data.resolve().name,
            "subset": options.subset,
            "sentences": sentences,
        }
    device_name = f"cpu ({platform.machine()})"
    if device.type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    return {
        "head_dim": head_dim,
        "inputs": {name: DESCRIPTIONS[name.split()[0]] for name in inputs},
        "positions": options.positions,
        "maps": list(KERNELS),
        "sigma": list(dict.fromkeys(options.sigma)),
        "seeds": options.seeds,
        "floor": options.floor,
        "precision": "float32 features and attention, float64 exact kernels",
        "device": device_name,
        "threads": torch.get_num_threads(),
        **trained,
        "versions": {
            "torch": torch.__version__,
            "numpy": np.__version__,
            "fairseq_rfa": version("fairseq_rfa"),
        },
        "commit": commit(),
    }


def signature_line(sign):
    """The signature without what the table says already."""
    names = "positions seeds floor checkpoint data subset sentences device threads"
    named = {name: sign[name] for name in names.split() if name in sign}
    named |= {"precision": "float32", **sign["versions"], "commit": sign["commit"]}
    return "|".join([f"d:{sign['head_dim']}", *(f"{name}:{value}" for name, value in named.items())])


def table(report):
    """Lines for a terminal: errors in per cent at one number of directions, slopes, the verdict."""
    measured = {entry["directions"] for entry in report["measurements"]}
    number = CLAIM_DIRECTIONS if CLAIM_DIRECTIONS in measured else max(measured)
    lines = [
        f"relative error (%) at {number} directions: mean and deviation over the seeds; "
        "slope: of log kernel error over log directions; uniform: attention matrix of equal weights",
        f"{'map':9} {'rows':11} {'slope':>6} {'kernel':>13} {'attention':>13} {'output':>13} "
        f"{'uniform':>7}  under {100 * CLAIM_ERROR:g} %: at {CLAIM_DIRECTIONS}, needs",
    ]
    heading = None
    by_case = zip(curves(report["measurements"]).items(), report["slopes"], report["claim"]["cases"])
    for ((kind, sigma, name, rows), curve), slope, case in by_case:
        if heading != (kind, sigma):
            heading = kind, sigma
            lines.append(f"{kind}, sigma {sigma:g}")
        entry = next(entry for entry in curve if entry["directions"] == number)
        shown = " ".join(f"{_error(entry[quantity]):>13}" for quantity in ("kernel", "attention", "output"))
        slope = "" if slope["kernel"] is None else f"{slope['kernel']:.2f}"
        uniform = f"{100 * case['uniform_error']:.1f}"
        holds = {True: "yes", False: "no", None: "not measured"}[case["holds"]]
        lines.append(f"{name:9} {rows:11} {slope:>6} {shown} {uniform:>7}  {holds}, {_needed(case)}")
    claim = sentence(report["claim"], report["signature"]["head_dim"])
    return "\n".join([*lines, signature_line(report["signature"]), claim])


def _error(average):
    deviation = "" if average["deviation"] is None else f" ± {100 * average['deviation']:.1f}"
    return f"{100 * average['mean']:.1f}{deviation}"


def _needed(case):
    if case["directions_needed"] is None:
        return "out of reach"
    if case["extrapolated"]:
        return f"about {float(format(case['directions_needed'], '.2g')):,.0f} (extrapolated)"
    return f"{case['directions_needed']:,}"
