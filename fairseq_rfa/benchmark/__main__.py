"""python -m fairseq_rfa.benchmark decode|train|documents|lm: time and memory by length, of RFA and of softmax.

    python -m fairseq_rfa.benchmark decode --threads 1
    python -m fairseq_rfa.benchmark decode --lengths 32 2048 --beam 5 --baseline twin --device cuda
    python -m fairseq_rfa.benchmark decode --arch transformer_rfa_tiny --flags rfa_feature_map=arccos
    python -m fairseq_rfa.benchmark decode --baseline ctranslate2 --decoding-precision int8
    python -m fairseq_rfa.benchmark train --lengths 32 1024 --tokens 4096
    python -m fairseq_rfa.benchmark train --lengths 4096 8192 --source-length 32
    python -m fairseq_rfa.benchmark documents --windows 1 4 16 --sentence-length 25
    python -m fairseq_rfa.benchmark lm --lengths 256 1024 4096 16384 --softmax-most 4096

Two models with random weights, of the same sizes, take turns on the same random sentences; no data are needed.
decode runs fairseq's own generator, which may not end a sentence before its length, after it has made sure that
cached and uncached decoding agree. With --baseline ctranslate2 the other model is what CTranslate2 makes of the same
weights with softmax, after its scores were compared with those of fairseq. train does whole steps: forward, backward,
update. documents translates the last sentence of windows of a document, after a prefix that is read in one chunk and
was compared with teacher forcing; softmax and RFA are compared in the decoder and in the encoder. lm lets language
models generate texts from nothing with fairseq's own generator, after step by step was compared with teacher forcing,
and says how the time for a token grows with the length; softmax is measured up to --softmax-most. Peak memory is that
of a process of its own for each model and length.

Writes COMMAND.json and COMMAND.png, and prints a table and a signature.
"""

import sys

import torch
from torch.nn import functional

from ..programs.program import (
    check_folder,
    errors_in_one_line,
    find_device,
    load_plot,
    only_warnings,
    progress,
    write,
)
from .ctranslate import CTRANSLATE2, compute_type
from .memory import COMMANDS, peak_memory
from .models import DTYPES, MODELS, compared
from .options import NAME, parse_arguments
from .report import signature, signature_line, table


def device_of(options):
    """Raises ValueError where torch has no such device, or where it does not compute in the precision."""
    try:
        device = find_device(options.device)
    except ValueError as error:
        raise ValueError(f"{error}; use --device cpu") from None
    dtype = DTYPES[options.precision]
    try:
        x = torch.ones(2, 2, dtype=dtype, device=device)
        functional.layer_norm(functional.linear(x, x), (2,)).softmax(-1)
        if device.type == "cuda" and dtype == torch.bfloat16:
            if not torch.cuda.is_bf16_supported(including_emulation=False):
                raise RuntimeError("not a type of this device")
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"--precision {options.precision}: {device} does not compute in it ({reason}); use float32"
        ) from None
    return device


def measure_memory(options, advance):
    """Peak memory by length and model, nothing with --no-memory. Raises ValueError where a process fails."""
    found = {}
    if not options.no_memory:
        for length in options.lengths:
            for name in compared(options, length):
                found[length, name] = peak_memory(options, name, length)
                advance(f"length {length}: memory of {name}")
    return found


def checked_line(command, checked, baseline):
    """What was made sure of before anything was timed."""
    if command == "documents":
        values = ", ".join(f"{name} {value:.1e}" for name, value in checked["models"].items())
        return (
            f"checked: a prefix of {checked['prefix']} tokens read in one chunk and teacher forcing differ by at most "
            f"{values} of the greatest log-probability (tolerance {checked['tolerance']:g})"
        )
    if command == "lm":
        values = ", ".join(f"{name} {value:.1e}" for name, value in checked["models"].items())
        lengths = " and ".join(map(str, checked["lengths"]))
        return (
            f"checked: step by step and teacher forcing at lengths {lengths} differ by at most {values} of the "
            f"greatest log-probability (tolerance {checked['tolerance']:g})"
        )
    if command == "train":
        losses = ", ".join(f"{name} {checked[name]:.2f}" for name in MODELS)
        return f"checked: each trained parameter has a finite gradient; loss of a token: {losses}"
    values = ", ".join(f"{name} {checked[name]:.1e}" for name in MODELS)
    lengths = " and ".join(map(str, checked["lengths"]))
    what = "cached and uncached decoding"
    if baseline == CTRANSLATE2:
        what += f" (rfa), {CTRANSLATE2} and fairseq's softmax (baseline)"
    return (
        f"checked: {what} at lengths {lengths} differ by at most {values} of the greatest "
        f"logit (tolerance {checked['tolerance']:g})"
    )


def study(options):
    """Everything that is measured, ready for JSON.

    Raises ValueError with what is wrong with the options or a model; nothing is timed where a check fails.
    """
    device = device_of(options)
    if options.baseline == CTRANSLATE2:
        compute_type(options, device)
    sign = signature(options, device)
    command = COMMANDS[options.command]
    models, task, checked = command.check(options, device)
    line = checked_line(options.command, checked, options.baseline)
    print(f"{NAME}: {line}", file=sys.stderr, flush=True)
    memory_runs = 0 if options.no_memory else sum(len(compared(options, length)) for length in options.lengths)
    with progress(NAME, memory_runs + command.num_runs(options), "runs") as advance:
        memory = measure_memory(options, advance)
        measurements = command.measure(models, task, options, device, advance)
    for entry in measurements:
        for name in compared(options, entry["length"]):
            if (entry["length"], name) in memory:
                entry[name]["peak_memory"] = memory[entry["length"], name]
    return {
        "signature": sign,
        "signature_line": signature_line(sign),
        "ratio_is": command.RATIO,
        "check": checked,
        "checked": line,
        "measurements": measurements,
    }


def main(arguments=None):
    with only_warnings():
        options = parse_arguments(arguments, description=__doc__)
        plot = load_plot(NAME, __package__)
        if options.threads:
            torch.set_num_threads(options.threads)
        with errors_in_one_line(NAME, sizes=COMMANDS[options.command].SIZES):
            check_folder(options.out)
            report = study(options)
            write(report, options.out, options.command, plot)
    print(table(report))


if __name__ == "__main__":
    main()
