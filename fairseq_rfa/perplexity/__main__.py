"""python -m fairseq_rfa.perplexity: how well a language model predicts a text that it reads in segments.

    python -m fairseq_rfa.perplexity DATA --checkpoint FILE
    python -m fairseq_rfa.perplexity DATA --checkpoint FILE --segment 64 --remove-bpe --out test.json
    python -m fairseq_rfa.perplexity DATA --checkpoint SOFTMAX --segment 512 --context 512

Each token of the subset is scored once, in memory that does not grow with the length of the text: the state of causal
random feature attention goes from segment to segment, whatever the model was trained with. A model with softmax has no
such state; it scores each segment by itself (--context 0), or after the N tokens before it (--context N), which is
fairseq-eval-lm --context-window N with --tokens-per-sample as much greater.
"""

import math
import os

import torch
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.models import FairseqLanguageModel
from fairseq.modules import LearnedPositionalEmbedding

from ..documents.windows import read_documents
from ..language.carrying import refuse_without_later_positions, refuse_without_state
from ..language.stream import Stream
from ..programs.checkpoint_file import check_output, whole_file
from ..programs.program import errors_in_one_line, find_device, only_warnings, progress, write_json
from ..programs.trained_model import load_trained
from .options import CARRIED, NAME, parse_arguments
from .report import lines_of, make_report
from .scores import Scorer
from .words import WordCount, words_of


class Text:
    """A subset of the data as a stream, and where its texts end.

    Raises:
        ValueError: it cannot be read, or has no such texts.
    """

    def __init__(self, data, subset, dictionary, reset_at):
        lines = load_indexed_dataset(os.path.join(data, subset), dictionary)
        if lines is None or not len(lines):
            raise ValueError(f"'{data}' has no '{subset}'; use a subset that fairseq-preprocess --only-source made")
        self.num_lines = len(lines)
        self.stream = Stream(lines, lines.sizes, dictionary.eos())
        self.bounds = self._bounds(data, subset, reset_at)

    def _bounds(self, data, subset, reset_at):
        """Where a text begins and the last one ends, in tokens."""
        ends = self.stream.ends
        if reset_at == "documents":
            sizes = read_documents([os.path.join(data, f"{subset}.documents")], self.num_lines)
            return [0, *ends[sizes.cumsum()].tolist()]
        if reset_at == "empty-lines":
            inner = [int(end) for start, end in zip(ends[:-1], ends[1:]) if end - start == 1]
            return sorted({0, *inner, len(self.stream)})
        return [0, len(self.stream)]


def load_model(options, device):
    """The model in evaluation, and its task.

    Raises:
        ValueError: it is no language model, or cannot be read so.
    """
    model, _, task = load_trained(options.checkpoint, options.data, [])
    if not isinstance(model, FairseqLanguageModel):
        raise ValueError(f"'{options.checkpoint}' is no language model; use one of --task language_modeling")
    if getattr(task.args, "add_bos_token", False):
        raise ValueError(f"'{options.checkpoint}' begins each segment with a symbol; use a model without it")
    return model.to(device).eval(), task


def settle(options, model, task):
    """Take what is not given from the training.

    Raises:
        ValueError: the model cannot be read so.
    """
    options.segment = options.segment or task.args.tokens_per_sample
    if options.continue_positions is None:
        options.continue_positions = getattr(task.args, "continue_positions", False)
    if options.context == CARRIED:
        refuse_without_state(model, "use --context 0, or the number of tokens that are read once more")
    if options.continue_positions:
        refuse_without_later_positions(model)
    width = options.segment + (0 if options.context == CARRIED else options.context)
    positions = model.decoder.embed_positions
    if isinstance(positions, LearnedPositionalEmbedding) and width > positions.max_positions:
        raise ValueError(
            f"--segment and --context make {width} tokens, and the model has learned {positions.max_positions} "
            "positions; use smaller ones"
        )


def run(options):
    """Everything that is found, ready for JSON.

    Raises:
        ValueError, OSError, FloatingPointError: what is wrong with checkpoint, data or model.
    """
    device = find_device(options.device)
    model, task = load_model(options, device)
    settle(options, model, task)
    text = Text(options.data, options.subset, task.source_dictionary, options.reset_at)
    words = None if options.raw is None else words_of(options.raw, text.num_lines)
    count = WordCount(task.source_dictionary, options.remove_bpe) if options.remove_bpe else None
    window = None if options.context == CARRIED else options.context
    scorer = Scorer(model, options.segment, window, options.continue_positions)
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    bounds = list(zip(text.bounds, text.bounds[1:]))
    segments = sum(math.ceil((end - start) / options.segment) for start, end in bounds)
    with progress(NAME, segments, "segments") as advance:
        for start, end in bounds:
            first = start
            for scores in scorer.scores(text.stream, start, end):
                total += scores.sum(dtype=torch.float64)
                if count:
                    count.add(text.stream.part(first, first + len(scores))[0])
                first += len(scores)
                tokens += len(scores)
                advance(f"{tokens} tokens")
    assert tokens == len(text.stream)
    return make_report(options, -total.item(), tokens, count.words if count else words, len(bounds), device)


def main(arguments=None):
    options = parse_arguments(arguments, description=__doc__)
    if options.threads:
        torch.set_num_threads(options.threads)
    with only_warnings(), errors_in_one_line(NAME, sizes="--segment"):
        if options.out:
            check_output(options.out)
        report = run(options)
        if options.out:
            with whole_file(options.out) as name:
                write_json(report, name)
    print("\n".join(lines_of(report)))


if __name__ == "__main__":
    main()
