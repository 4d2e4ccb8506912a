"""Translation in context in benchmark: the last sentence of windows of a document, after a prefix read in one chunk.

Windows have W sentences of L tokens, each with the symbol that ends it, on both sides.
"""

from argparse import Namespace

import torch

from ..documents.generator import DocumentGenerator, PrefixedEnsemble
from ..documents.windows import SEPARATOR
from .clock import in_turn, ratio, shares, speed
from .decode import for_search, refuse_disagreement, tolerance_of
from .models import build_model, make_task, most_positions, random_tokens

RATIO = "seconds per sentence, model / softmax"
SIZES = "--windows"
SOFTMAX = "softmax"
MODELS = {
    SOFTMAX: ("baseline", []),
    "rfa": ("rfa", []),
    "softmax_encoder_rfa": (
        "rfa",
        ["causal_attention=softmax", "cross_attention=softmax", "encoder_attention=rfa"],
    ),
    "rfa_encoder_rfa": ("rfa", ["encoder_attention=rfa"]),
}
"""What is compared: a model of benchmark, and flags that it has beside those of the command."""
# The prefix is longer than a chunk of causal attention, and than what decoding keeps before it sums up.
CHECKED_ROWS, CHECKED_WINDOW, CHECKED_LENGTH = 2, 4, 30


def window_task(vocabulary):
    """The task of benchmark, whose dictionary ends with the separator."""
    task = make_task(vocabulary - 1)
    task.target_dictionary.add_symbol(SEPARATOR)
    return task


def window_model(options, name, task, device):
    """Raises ValueError for options that the model refuses."""
    kind, flags = MODELS[name]
    options = Namespace(**{**vars(options), "flags": [*options.flags, *flags]})
    positions = most_positions(options, CHECKED_WINDOW * CHECKED_LENGTH)
    return for_search(build_model(options, kind, positions, task, device), options)


def random_windows(task, rows, window, length, seed, device):
    """(rows, W L): words, with a separator at the end of each sentence but the last."""
    separator = task.target_dictionary.index(SEPARATOR)
    tokens = random_tokens(task, rows, window * length, seed, device)
    tokens[tokens == separator] = task.target_dictionary.nspecial
    tokens[:, length - 1 : -1 : length] = separator
    return tokens


def window_batch(task, rows, window, length, seed, device):
    """What `DocumentGenerator` takes: windows of the source, and the target as the decoder reads it."""
    source = random_windows(task, rows, window, length, seed, device)
    return {
        "id": torch.arange(rows, device=device),
        "net_input": {
            "src_tokens": source,
            "src_lengths": torch.full((rows,), window * length, device=device),
            "prev_output_tokens": random_windows(task, rows, window, length, seed + 1, device).roll(1, dims=1),
        },
    }


def translator_of(model, task, options, window, device):
    """A function that translates the last sentence, L tokens with its end, of windows of W sentences.

    It encodes the source, reads the W − 1 sentences before in one chunk, and searches.
    """
    length = options.sentence_length
    dictionary = task.target_dictionary
    generator = DocumentGenerator(
        [model],
        dictionary,
        source_separator=dictionary.index(SEPARATOR),
        left_pad_source=True,
        own_prefix=False,
        beam_size=options.beam,
        max_len_b=length - 1,
        min_len=length - 1,
    )
    batch = window_batch(task, options.batch_size, window, length, options.seed, device)
    return lambda: generator.generate([model], batch)


def prepare(options, name, length, device):
    """For a measurement of memory: a function that translates once; `length` is that of a whole window."""
    task = window_task(options.vocabulary)
    model = window_model(options, name, task, device)
    return translator_of(model, task, options, length // options.sentence_length, device)


@torch.no_grad()
def disagreement(model, task, seed, device):
    """The greatest difference of the last sentence's log-probabilities, after a prefix read in one chunk and then step
    by step, from those of teacher forcing, relative to the greatest of these."""
    inputs = window_batch(task, CHECKED_ROWS, CHECKED_WINDOW, CHECKED_LENGTH, seed, device)["net_input"]
    taught = model.get_normalized_probs(model(**inputs), log_probs=True)[:, -CHECKED_LENGTH:].float()
    prefix, sentence = inputs["prev_output_tokens"].split(
        [(CHECKED_WINDOW - 1) * CHECKED_LENGTH, CHECKED_LENGTH], dim=1
    )
    ensemble = PrefixedEnsemble([model])
    outs, state = ensemble.forward_encoder({**inputs, "prev_output_tokens": prefix}), {}
    steps = [
        ensemble.forward_decoder(sentence[:, : step + 1], outs, [state])[0].float()
        for step in range(CHECKED_LENGTH)
    ]
    return ((torch.stack(steps, dim=1) - taught).abs().max() / taught.abs().max()).item()


def check(options, device):
    """The models, the task, and how well a prefix in one chunk agrees with teacher forcing.

    Raises ValueError where it does not, and for options that a model refuses.
    """
    task = window_task(options.vocabulary)
    models = {name: window_model(options, name, task, device) for name in options.models}
    tolerance = tolerance_of(options)
    found = {name: disagreement(model, task, options.seed, device) for name, model in models.items()}
    for name, difference in found.items():
        what = "a prefix in one chunk and teacher forcing"
        refuse_disagreement(name, what, difference, "log-probability", tolerance)
    return models, task, {"prefix": (CHECKED_WINDOW - 1) * CHECKED_LENGTH, "tolerance": tolerance, "models": found}


def num_runs(options):
    return len(options.windows) * len(options.models) * (1 + options.repeats)


def measure(models, task, options, device, advance):
    """Entries for JSON, one for each window, each with a result of each model.

    All windows take turns, too, so that they can be compared as well. Raises ValueError where a model does not decode
    as many tokens as asked for.
    """
    runs = {
        (window, name): translator_of(model, task, options, window, device)
        for window in options.windows
        for name, model in models.items()
    }
    for (window, name), run in runs.items():
        decoded = {len(best[0]["tokens"]) for best in run()}
        if decoded != {options.sentence_length}:
            raise ValueError(f"{name}: decoded {sorted(decoded)} tokens in place of {options.sentence_length}")
        advance(f"window {window}: {name} warmed up")
    seconds = in_turn(runs, options.repeats, device, lambda run: advance(f"window {run[0]}: {run[1]}"))
    return [
        {
            "window": window,
            "length": window * options.sentence_length,
            **{name: result(seconds, window, name, options) for name in models},
        }
        for window in options.windows
    ]


def result(seconds, window, name, options):
    """Of one model and window: times, beside those of softmax and beside its own of the smallest window."""
    times = seconds[window, name]
    found = speed(times, options.batch_size * options.sentence_length)
    found["seconds_per_sentence"] = shares(found["seconds"], options.batch_size)
    return {
        **found,
        "ratio": ratio(times, seconds[window, SOFTMAX]),
        "growth": ratio(times, seconds[options.windows[0], name]),
    }
