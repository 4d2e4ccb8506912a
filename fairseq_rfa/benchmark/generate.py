"""Language models in benchmark: how the time for a token and the memory grow with the length of a generated text.

Each text begins with the symbol that ends one, as fairseq's task has it, and ends with it as its last token: a text of
N tokens is N steps of fairseq's own search. RFA is measured a second time without attention. The dense layers that are
left take the same time for each token, so what grows there is the search, which moves all tokens and scores so far.
"""

import torch

from .clock import in_turn, ratio, shares, speed
from .decode import (
    WITHOUT,
    decode_and_weigh,
    for_search,
    refuse_disagreement,
    running_without_attention,
    search_of,
    tolerance_of,
)
from .models import (
    MODELS,
    build_model,
    compared,
    make_language_model_task,
    most_positions,
    random_tokens,
)

RATIO = "tokens per second, RFA / baseline"
SIZES = "--lengths"
NAMES = ("baseline", "rfa", WITHOUT)
"""Of what is measured at each length."""
# One shorter and one longer than a chunk of causal attention, and than what decoding keeps before it sums up.
CHECKED_ROWS, CHECKED_LENGTHS = 2, (10, 100)


def language_model(options, name, task, device):
    """A model as fairseq-generate would use it, for the longest text. Raises ValueError for options that it refuses."""
    return for_search(build_model(options, name, most_positions(options, *CHECKED_LENGTHS), task, device), options)


def generator_of(model, task, options, length, device):
    """A generator of texts of `length` tokens, and a function that runs it."""
    start = torch.full((options.batch_size, 1), task.target_dictionary.eos(), device=device)
    return search_of(model, task, options, length - 1, {"src_tokens": start})


def prepare(options, name, length, device):
    """For a measurement of memory: a function that generates once."""
    task = make_language_model_task(options.vocabulary)
    return generator_of(language_model(options, name, task, device), task, options, length, device)[1]


@torch.no_grad()
def disagreement(model, task, length, seed, device):
    """The greatest difference of log-probabilities step by step from those of teacher forcing, relative to the greatest
    of these."""
    tokens = random_tokens(task, CHECKED_ROWS, length, seed, device).roll(1, dims=1)
    taught = model.get_normalized_probs(model(tokens), log_probs=True).float()
    state, steps = {}, []
    for step in range(length):
        output = model.decoder(tokens[:, : step + 1], incremental_state=state)
        steps.append(model.get_normalized_probs(output, log_probs=True).float())
    return ((torch.cat(steps, dim=1) - taught).abs().max() / taught.abs().max()).item()


def check(options, device):
    """The models, the task, and how well step by step agrees with teacher forcing.

    Raises ValueError where it does not, and for options that a model refuses.
    """
    task = make_language_model_task(options.vocabulary)
    models = {name: language_model(options, name, task, device) for name in MODELS}
    tolerance = tolerance_of(options)
    found = {}
    for name, model in models.items():
        differences = {length: disagreement(model, task, length, options.seed, device) for length in CHECKED_LENGTHS}
        for length, difference in differences.items():
            measure = f"log-probability at length {length}"
            refuse_disagreement(name, "step by step and teacher forcing", difference, measure, tolerance)
        found[name] = max(differences.values())
    return models, task, {"lengths": list(CHECKED_LENGTHS), "tolerance": tolerance, "models": found}


def num_runs(options):
    """Each model once to be weighed; then all of them and RFA without attention, `repeats` times."""
    models = [len(compared(options, length)) for length in options.lengths]
    return sum(models) + options.repeats * (sum(models) + len(models))


def measure(models, task, options, device, advance):
    """Entries for JSON, one for each length, each with a result of each of `NAMES`; None where it is not measured.

    All lengths take turns, too, so that they can be compared as well. Raises ValueError where a model does not generate
    as many tokens as asked for.
    """
    runs, states = {}, {}
    for length in options.lengths:
        for name in compared(options, length):
            generator, run = generator_of(models[name], task, options, length, device)
            hypotheses, states[length, name] = decode_and_weigh(generator, run, models[name])
            generated = {len(best[0]["tokens"]) for best in hypotheses}
            if generated != {length}:
                raise ValueError(f"{name}: generated {sorted(generated)} tokens in place of {length}")
            runs[length, name] = run
            advance(f"length {length}: {name} warmed up")
        runs[length, WITHOUT] = running_without_attention(models["rfa"], runs[length, "rfa"])
    seconds = in_turn(runs, options.repeats, device, lambda run: advance(f"length {run[0]}: {run[1]}"))
    return [entry_of(seconds, states, length, options) for length in options.lengths]


def entry_of(seconds, states, length, options):
    """All numbers of one length."""
    entry = {"length": length, "ratio": None, **dict.fromkeys(NAMES)}
    for name in NAMES:
        if (length, name) in seconds:
            entry[name] = result(seconds, length, name, options)
    for name in compared(options, length):
        entry[name]["state_bytes"] = states[length, name]
    if entry["baseline"] is not None:
        entry["ratio"] = ratio(seconds[length, "baseline"], seconds[length, "rfa"])
    return entry


def result(seconds, length, name, options):
    """Of one model and length: times, and that for a token beside the one in the shortest text.

    `seconds_per_token` is that of a step, which is a token of each text of the batch.
    """
    per_token = {size: [time / size for time in seconds[size, name]] for size in (length, options.lengths[0])}
    found = speed(seconds[length, name], options.batch_size * length)
    found["seconds_per_token"] = shares(found["seconds"], length)
    return {**found, "growth": ratio(per_token[length], per_token[options.lengths[0]])}
