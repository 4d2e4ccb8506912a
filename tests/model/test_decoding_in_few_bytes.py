"""A model that decodes with dense layers in bfloat16 or int8 does all that it does in float32, within their error."""

import copy
import logging
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils, search
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_rfa.attention import decoding_precision, packed_linear
from fairseq_rfa.attention.decoding_precision import PRECISIONS
from helpers import largest_difference
from precisions import here
from tiny_data import build, generate_here, make_batch, parse, results

SOURCES = ["a b c d e f g h a", "b", "c a d", "e e f h a", "h", "d d d d d d"]
SOFTMAX = "--causal-attention softmax --cross-attention softmax"
# Of the norm of the logits, each without its mean: a hundredth (int8) or four thousandths in each of a dozen products.
ERRORS = {"int8": 0.1, "bfloat16": 0.03}


@pytest.fixture(autouse=True)
def small_layers_are_packed(monkeypatch):
    monkeypatch.setattr(packed_linear, "LEAST_ENTRIES", 1)
    packed_linear._warn.cache_clear()


@pytest.fixture(params=sorted(ERRORS))
def precision(request, monkeypatch):
    return here(request.param, monkeypatch)


each_attention = pytest.mark.parametrize(
    "flags", ["", "--rfa-gate --rfa-feature-map arccos", "--rfa-feature-map positive --rfa-local-window 2", SOFTMAX]
)


def _prepared(model):
    model = copy.deepcopy(model)
    model.prepare_for_inference_(Namespace(generation=Namespace(beam=3, print_alignment=False)))
    return model


def _models(data, precision, flags):
    """The same weights in float32, and prepared to decode in the precision."""
    model = build(data, *flags.split())
    other = build(data, *flags.split(), "--decoding-precision", precision)
    other.load_state_dict(model.state_dict())
    return model, _prepared(other)


def _error(found, expected):
    return ((found - expected).norm() / (expected - expected.mean(-1, keepdim=True)).norm()).item()


@torch.no_grad()
def _logits(model, task, cached=True):
    batch, state = make_batch(task, SOURCES[:4], targets=["A B C", "H G F", "E F E", "A A A"]), {}
    encoder_out = model.encoder(batch["src_tokens"], batch["src_lengths"])
    prefix = batch["prev_output_tokens"]
    if not cached:
        return model.decoder(prefix, encoder_out)[0]
    steps = [model.decoder(prefix[:, : t + 1], encoder_out, incremental_state=state)[0] for t in range(prefix.size(1))]
    return torch.cat(steps, dim=1)


@each_attention
def test_logits_are_near_to_those_of_float32_step_by_step_and_at_once(data, task, precision, flags):
    model, prepared = _models(data, precision, flags)
    expected = _logits(model, task, cached=False)
    for cached in (True, False):
        assert 1e-4 < _error(_logits(prepared, task, cached), expected) < ERRORS[precision]


@pytest.mark.parametrize("flags", ["", SOFTMAX])
def test_each_dense_layer_takes_part(data, task, precision, flags, monkeypatch):
    """Encoder, decoder and the projection to the vocabulary: only gates are products of torch."""
    _, prepared = _models(data, precision, flags)
    monkeypatch.setattr(torch.nn.functional, "linear", None)
    assert _logits(prepared, task).isfinite().all()
    number = sum(type(layer) is nn.Linear for layer in prepared.modules())
    packed = [layer for layer in prepared.modules() if packed_linear.precision_of(layer) == precision]
    assert len(packed) == number > 20


def test_attention_of_the_encoder_is_that_of_fairseq(data, task, monkeypatch):
    """With products that round nothing."""
    exact = PRECISIONS["float32"]._replace(
        pack=torch.clone, multiply=lambda x, weight, bias: nn.functional.linear(x, weight, bias), few_rows=False
    )
    monkeypatch.setitem(PRECISIONS, "int8", exact)
    model, prepared = _models(data, "int8", "")
    batch = make_batch(task, SOURCES)
    with torch.no_grad():
        found, expected = (x.encoder(batch["src_tokens"], batch["src_lengths"]) for x in (prepared, model))
        real = ~expected["encoder_padding_mask"][0].t()
        assert not real.all()
        assert largest_difference(found["encoder_out"][0][real], expected["encoder_out"][0][real]) < 1e-5


def test_a_sentence_alone_is_translated_as_in_a_batch(data, task, monkeypatch):
    """int8 has a scale for each row."""
    here("int8", monkeypatch)
    _, prepared = _models(data, "int8", "")
    together = _search(prepared, task, SOURCES[:4])
    for source, expected in zip(SOURCES, together):
        ((best, *_),) = _search(prepared, task, [source])
        assert best["tokens"].tolist() == expected[0]["tokens"].tolist()
        assert largest_difference(best["positional_scores"], expected[0]["positional_scores"]) < 0.02


def _search(model, task, sources=SOURCES, beam=3):
    strategy = search.BeamSearch(task.target_dictionary)
    generator = SequenceGenerator(
        [model], task.target_dictionary, beam_size=beam, max_len_b=12, search_strategy=strategy
    )
    return generator.generate([model], {"net_input": make_batch(task, sources)})


@each_attention
def test_beams_change_their_parents_and_sentences_leave(data, task, precision, flags):
    """As rescored at once: fairseq's search with a state that was reordered at every step."""
    _, prepared = _models(data, precision, flags)
    beams, words = 3, len(task.target_dictionary)
    batch = make_batch(task, SOURCES)
    state = {}
    with torch.no_grad():
        source = prepared.encoder(batch["src_tokens"], batch["src_lengths"])
        rows = torch.arange(len(SOURCES)).repeat_interleave(beams)
        source = prepared.encoder.reorder_encoder_out(source, rows)
        tokens = torch.full((len(rows), 1), task.target_dictionary.eos())
        for step in range(10):
            found = prepared.decoder(tokens, source, incremental_state=state)[0][:, -1]
            assert _error(found, prepared.decoder(tokens, source)[0][:, -1]) < ERRORS[precision]
            sentences = torch.arange(len(tokens) // beams)
            if step % 3 == 2:
                sentences = sentences[torch.arange(len(sentences)) != step // 3]
            order = (sentences[:, None] * beams + torch.randint(beams, (len(sentences), beams))).flatten()
            prepared.decoder.reorder_incremental_state_scripting(state, order)
            source = prepared.encoder.reorder_encoder_out(source, order)
            tokens = torch.cat([tokens[order], torch.randint(4, words, (len(order), 1))], dim=1)


@each_attention
def test_weights_that_change_count_from_the_next_search_on(data, task, precision, flags):
    _, prepared = _models(data, precision, flags)
    before = _logits(prepared, task)
    other = build(data, *flags.split(), "--decoding-precision", precision, seed=2)
    for parameter, new in zip(prepared.parameters(), other.parameters()):
        parameter.data.copy_(new.data)
    expected = _logits(_prepared(other), task)
    assert _error(_logits(prepared, task), expected) < ERRORS[precision] / 10
    assert _error(before, expected) > 0.5


def test_training_and_state_dict_know_nothing_of_it(data, task, precision):
    model, other = (build(data, *flags) for flags in ([], ["--decoding-precision", precision]))
    assert model.state_dict().keys() == other.state_dict().keys() == _prepared(other).state_dict().keys()
    batch = make_batch(task, SOURCES, targets=["A B", "H", "E F", "A", "B", "C"])
    losses = []
    for one in (model, other):
        torch.manual_seed(3)
        losses.append(one.train()(**batch)[0].pow(2).mean())
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    assert all(torch.equal(x.grad, y.grad) for x, y in zip(model.parameters(), other.parameters()))


@each_attention
def test_decoder_with_quantised_layers(data, task, precision, flags):
    """torch's own quantisation finds the layers, and replaces them."""
    model, prepared = _models(data, precision, flags)
    prepared.decoder = torch.ao.quantization.quantize_dynamic(prepared.decoder, {nn.Linear})
    assert nn.Linear not in map(type, prepared.decoder.modules())
    assert _error(_logits(prepared, task), _logits(model, task)) < ERRORS["int8"]


@pytest.mark.parametrize("value", ["int4", "fp16", 8, None])
def test_another_precision_is_refused(data, task, value):
    args = parse(data)
    args.decoding_precision = value
    with pytest.raises(ValueError, match="^--decoding-precision is .*; use one of float32, bfloat16, int8$"):
        task.build_model(args)


def test_overrides_of_the_command_and_ensembles(data, checkpoint, precision):
    overrides = "--model-overrides", str({"decoding_precision": precision})
    expected = results(generate_here(data, checkpoint, "--beam", "3"))
    for path in (checkpoint, f"{checkpoint}:{checkpoint}"):
        found = results(generate_here(data, path, "--beam", "3", *overrides))
        assert [number for number, _ in found] == [number for number, _ in expected]
        assert [fields[0] for _, fields in found] != [fields[0] for _, fields in expected]
        assert sum(ours[1] == theirs[1] for (_, ours), (_, theirs) in zip(found, expected)) >= 6


def test_an_override_that_this_processor_lacks_is_said_once(data, checkpoint, caplog, monkeypatch):
    monkeypatch.setattr(decoding_precision, "_greatest_integer", lambda: None)
    overrides = "--model-overrides", "{'decoding_precision': 'int8'}"
    with caplog.at_level(logging.WARNING):
        found = results(generate_here(data, f"{checkpoint}:{checkpoint}", *overrides))
    assert sum("--decoding-precision" in record.getMessage() for record in caplog.records) == 1
    assert found == results(generate_here(data, f"{checkpoint}:{checkpoint}"))


def test_half_precision_decodes_in_it_and_that_is_said_once(data, checkpoint, caplog):
    overrides = "--model-overrides", "{'decoding_precision': 'int8'}"
    with caplog.at_level(logging.WARNING):
        found = results(generate_here(data, checkpoint, "--fp16", *overrides))
    lines = [record.getMessage() for record in caplog.records if "--decoding-precision" in record.getMessage()]
    assert lines == [
        "--decoding-precision int8 is for float32 on a CPU; dense layers of torch.float16 on cpu compute as they are"
    ]
    assert found == results(generate_here(data, checkpoint, "--fp16"))


def test_a_checkpoint_keeps_it_and_an_override_changes_it(data, checkpoint, tmp_path):
    state = torch.load(checkpoint)
    state["cfg"]["model"].decoding_precision = "int8"
    torch.save(state, tmp_path / "kept.pt")
    for given, expected in (({}, "int8"), ({"decoding_precision": "float32"}, "float32")):
        overrides = {"data": str(data), **given}
        (model,), _ = checkpoint_utils.load_model_ensemble([str(tmp_path / "kept.pt")], arg_overrides=overrides)
        assert model.cfg.decoding_precision == expected
