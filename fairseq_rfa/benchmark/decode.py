"""Decoding in benchmark: speed by fairseq's own generator, the decoding state, and what is not attention."""

from argparse import Namespace

import torch
from fairseq.sequence_generator import SequenceGenerator

from .clock import in_turn, ratio, speed
from .ctranslate import CTRANSLATE2, ConvertedModel, converted
from .models import (
    DTYPES,
    MODELS,
    build_model,
    make_task,
    most_positions,
    random_tokens,
    source_batch,
    source_length,
    without_attention,
)

RATIO = "tokens per second, RFA / baseline"
SIZES = "--lengths"
# One shorter and one longer than a chunk of causal attention, and than what decoding keeps before it sums up.
CHECKED_ROWS, CHECKED_LENGTHS = 2, (10, 100)
TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1, "int8": 1e-1}
PLACES = {"self_attn": "causal", "encoder_attn": "cross"}
WITHOUT = "without_attention"


def prepared_model(options, name, task, device):
    """A model as fairseq-generate would use it, or one of CTranslate2.

    Raises ValueError for options that the model refuses.
    """
    if (name, options.baseline) == ("baseline", CTRANSLATE2):
        return converted(options, task, device, *CHECKED_LENGTHS)
    positions = most_positions(options, *CHECKED_LENGTHS)
    return for_search(build_model(options, name, positions, task, device), options)


def for_search(model, options):
    """The model in its precision, as fairseq-generate prepares it."""
    model = model.to(DTYPES[options.precision])
    model.prepare_for_inference_(Namespace(generation=Namespace(beam=options.beam, print_alignment=False)))
    return model


def prepare(options, name, length, device):
    """For a measurement of memory: a function that decodes once."""
    task = make_task(options.vocabulary)
    model = prepared_model(options, name, task, device)
    if isinstance(model, ConvertedModel):
        return converted_decoder_of(model, task, options, length)
    return decoder_of(model, task, options, length, device)[1]


def converted_decoder_of(model, task, options, length):
    """A function that decodes the sentences of `decoder_of` with CTranslate2."""
    source = source_batch(task, options.batch_size, source_length(options, length), options.seed, "cpu")
    return model.decoder(length, source["src_tokens"])


def decoder_of(model, task, options, length, device):
    """A generator of `length` words, and a function that runs it.

    The end of the sentence, which fairseq demands after the last word, takes one step more.
    """
    source = source_batch(task, options.batch_size, source_length(options, length), options.seed, device)
    return search_of(model, task, options, length, source)


def search_of(model, task, options, length, source):
    """A generator of `length` words, and a function that runs it on what an encoder reads, if the model has one."""
    generator = SequenceGenerator(
        [model], task.target_dictionary, beam_size=options.beam, max_len_b=length, min_len=length
    )
    return generator, lambda: generator.generate([model], {"net_input": source})


@torch.no_grad()
def disagreement(model, task, length, seed, device):
    """The greatest difference between cached and uncached decoding, relative to the greatest logit."""
    batch = source_batch(task, CHECKED_ROWS, length, seed, device)
    target = random_tokens(task, CHECKED_ROWS, length, seed + 1, device).roll(1, dims=1)
    encoder_out = model.encoder.forward_torchscript(batch)
    uncached = model.decoder(target, encoder_out)[0].float()
    state = {}
    steps = [
        model.decoder(target[:, : position + 1], encoder_out, incremental_state=state)[0].float()
        for position in range(length)
    ]
    return ((torch.cat(steps, dim=1) - uncached).abs().max() / uncached.abs().max()).item()


def tolerance_of(options):
    return max(TOLERANCES[options.precision], TOLERANCES[options.decoding_precision])


def refuse_disagreement(name, what, difference, measure, tolerance):
    """Raises ValueError where two ways of a model differ by more than the tolerance, relative to the greatest measure.

    Args:
        what: the two ways.
        measure: in which they differ.
    """
    if not difference <= tolerance:
        raise ValueError(
            f"{name}: {what} differ by {difference:.1e} of the greatest {measure}, more than {tolerance:g}; nothing is "
            "timed; use another --precision, or mend the model"
        )


def check_agreement(models, task, options, device):
    """Differences by model and their tolerance, ready for JSON.

    Raises ValueError where a model says something else step by step than at once.
    """
    tolerance = tolerance_of(options)
    found = dict.fromkeys(models, 0.0)
    for name, model in models.items():
        for length in CHECKED_LENGTHS:
            if isinstance(model, ConvertedModel):
                difference, what = model.disagreement(CHECKED_ROWS, length), f"{CTRANSLATE2} and fairseq"
            else:
                difference = disagreement(model, task, length, options.seed, device)
                what = "cached and uncached decoding"
            refuse_disagreement(name, what, difference, f"logit at length {length}", tolerance)
            found[name] = max(found[name], difference)
    return {"lengths": list(CHECKED_LENGTHS), "tolerance": tolerance, **found}


def state_bytes(model, incremental_state):
    """Bytes of a decoding state by place: causal, cross and, for what belongs to neither, other.

    Only tensors that are values of a dictionary count, each storage once and as a whole.
    """
    owners = {
        module._incremental_state_id: PLACES.get(name.rpartition(".")[2], "other")
        for name, module in model.named_modules()
        if hasattr(module, "_incremental_state_id")
    }
    seen, sizes = set(), dict.fromkeys((*PLACES.values(), "other"), 0)
    for key, entry in incremental_state.items():
        place = owners.get(key.partition(".")[0], "other")
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in seen:
                seen.add(value.untyped_storage().data_ptr())
                sizes[place] += value.untyped_storage().nbytes()
    return {**sizes, "total": sum(sizes.values())}


def decode_and_weigh(generator, run, model):
    """Run once; the hypotheses, and the bytes of the state before the last step, which only ends the sentences."""
    sizes, reorder = {}, generator.model.reorder_incremental_state

    def weigh_and_reorder(states, order):
        sizes.update(state_bytes(model, states[0]))
        return reorder(states, order)

    generator.model.reorder_incremental_state = weigh_and_reorder
    try:
        return run(), sizes
    finally:
        del generator.model.reorder_incremental_state


def running_without_attention(model, run):
    """The same run, with the dense layers alone."""

    def run_without_attention():
        with without_attention(model):
            run()

    return run_without_attention


def measure_length(models, task, options, length, device, advance):
    """All numbers of one length. Raises ValueError where a model does not decode as many words as asked for."""
    runs, states = {}, {}
    for name, model in models.items():
        if isinstance(model, ConvertedModel):
            runs[name], states[name] = converted_decoder_of(model, task, options, length), None
            decoded = set(map(len, runs[name]()))
        else:
            generator, runs[name] = decoder_of(model, task, options, length, device)
            hypotheses, states[name] = decode_and_weigh(generator, runs[name], model)
            decoded = {len(best[0]["tokens"]) - 1 for best in hypotheses}
        if decoded != {length}:
            raise ValueError(f"{name}: decoded {sorted(decoded)} words in place of {length}")
        advance(f"length {length}: {name} warmed up")

    seconds = in_turn(
        {**runs, WITHOUT: running_without_attention(models["rfa"], runs["rfa"])},
        options.repeats,
        device,
        lambda name: advance(f"length {length}: {name}"),
    )
    tokens = options.batch_size * length
    entry = {"length": length, **{name: speed(times, tokens) for name, times in seconds.items()}}
    for name in MODELS:
        # CTranslate2 tells nothing of its state, and its dense layers are others than those that are timed apart.
        share = None if states[name] is None else ratio(seconds[WITHOUT], seconds[name])["median"]
        entry[name] |= {"not_attention_share": share, "state_bytes": states[name]}
    return {**entry, "ratio": ratio(seconds["baseline"], seconds["rfa"])}


def num_runs(options):
    return len(options.lengths) * (len(MODELS) + (len(MODELS) + 1) * options.repeats)


def check(options, device):
    """The models, the task, and how well cached and uncached decoding agree.

    Raises ValueError where they do not, and for options that a model refuses.
    """
    task = make_task(options.vocabulary)
    models = {name: prepared_model(options, name, task, device) for name in MODELS}
    return models, task, check_agreement(models, task, options, device)


def measure(models, task, options, device, advance):
    """Entries for JSON, one for each length. Raises ValueError as `measure_length` does."""
    return [
        measure_length(models, task, options, length, device, advance) for length in options.lengths
    ]
