"""python -m fairseq_rfa.transfer: convert a checkpoint between softmax and random feature attention.

    python -m fairseq_rfa.transfer --to rfa --rfa-feature-map positive --fit-data BINARIZED SOFTMAX.pt RFA.pt
    python -m fairseq_rfa.transfer --to rfa --imitate softmax --rfa-feature-map positive --rfa-causal-dim 512 \\
        --rfa-cross-dim 512 SOFTMAX.pt RFA.pt
    python -m fairseq_rfa.transfer --to rfa --rfa-feature-map positive --fit-data BINARIZED \\
        --distill-data BINARIZED --distill-updates 1000 SOFTMAX.pt RFA.pt
    python -m fairseq_rfa.transfer --to rfa --reset-attention projections SOFTMAX.pt RFA.pt
    python -m fairseq_rfa.transfer --to softmax RFA.pt SOFTMAX.pt

IN is a checkpoint of fairseq's transformer or transformer_lm, trained with this plugin or without it, of this release
or an older one, or of transformer_rfa or transformer_lm_rfa. OUT is at the start of its training: what belongs to the
optimizer of IN is left out, unless --keep-training is given. Prints which parameters were kept, added, dropped and
drawn anew; anything unexpected is refused.
"""

import os
from contextlib import ExitStack

from ..programs.checkpoint_file import check_output, read_checkpoint, whole_file, write_checkpoint
from ..programs.program import errors_in_one_line, only_warnings
from .conversion import convert
from .distillation import Distillation
from .options import NAME, NUM_SENTENCES, parse_arguments
from .sentences import endless_batches, first_sentences, held_out_subset, read_task


def main(arguments=None):
    options, given = parse_arguments(arguments, description=__doc__)
    with only_warnings(), errors_in_one_line(NAME, sizes="--fit-sentences or --distill-tokens"):
        _check_outputs(options)
        checkpoint = read_checkpoint(options.input)
        batches = distillation = None
        read = {}
        if options.fit_data is not None:
            task = read_task(checkpoint, options.fit_data, options.fit_subset)
            batches = first_sentences(task, options.fit_subset, options.fit_sentences)
            read["fit"] = f"{_folder(options.fit_data)} {options.fit_subset} {_count(batches)}"
        if options.distill_data is not None:
            distillation, read["distill"] = _read_distillation(checkpoint, options)
        try:
            converted, report = convert(
                checkpoint,
                options.to,
                imitate=options.imitate,
                reset_attention=options.reset_attention,
                seed=options.seed,
                batches=batches,
                distillation=distillation,
                keep_training=options.keep_training,
                **given,
            )
        except ValueError as error:
            raise ValueError(f"'{options.input}': {error}") from error
        report.signature |= read
        with ExitStack() as files:
            if options.report is not None:
                report.write(files.enter_context(whole_file(options.report)))
            write_checkpoint(converted, options.output)
    print(report.text())


def _read_distillation(checkpoint, options):
    """A `Distillation`, and a few words about its data for the signature."""
    task = read_task(checkpoint, options.distill_data, "train")
    subset = held_out_subset(task)
    held_out = first_sentences(task, subset, NUM_SENTENCES)
    batches = endless_batches(task, "train", options.distill_tokens, options.seed)
    words = (
        f"{_folder(options.distill_data)} {options.distill_updates} updates of {options.distill_tokens} tokens "
        f"lr {options.distill_lr:g}, measured on {subset} {_count(held_out)}"
    )
    return Distillation(batches, held_out, options.distill_updates, options.distill_lr), words


def _folder(path):
    return os.path.basename(os.path.abspath(path))


def _count(batches):
    return sum(len(batch["id"]) for batch in batches)


def _check_outputs(options):
    check_output(options.output)
    others = {options.input: "IN"}
    if options.report is not None:
        check_output(options.report)
        others[options.report] = "--report"
    for other, name in others.items():
        if os.path.realpath(other) == os.path.realpath(options.output):
            raise ValueError(f"'{options.output}' is {name} itself; use another file for OUT")
    if options.report is not None and os.path.realpath(options.input) == os.path.realpath(options.report):
        raise ValueError(f"'{options.report}' is IN itself; use another file for --report")


if __name__ == "__main__":
    main()
