"""Search with a cached state: the same as without, whatever beams, sentences and models do."""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer

from fairseq_rfa.attention import packed_linear
from tiny_data import build, make_batch

SOURCES = ["a b c d e f g h a", "b", "c a d", "e e f h a", "h", "d d d d d d"]
COMBINATIONS = [
    "",
    "--rfa-gate",
    "--causal-attention softmax",
    "--cross-attention softmax --rfa-gate",
    "--rfa-feature-map elu",
    "--rfa-feature-map arccos --rfa-local-window 3 --rfa-gate",
    "--rfa-feature-map positive --rfa-unnormalized --rfa-local-window 2",
    "--rfa-feature-map cosine --rfa-unnormalized --rfa-gate",
]
# Sums of a few dozen float32 products in another order, through two layers.
TOLERANCE = dict(atol=2e-4, rtol=2e-4)


@pytest.fixture(params=COMBINATIONS)
def model(data, request):
    return decisive(build(data, *request.param.split()))


def decisive(model):
    """Weights so large that each prefix and each source gives other scores."""
    with torch.no_grad():
        for name, weight in model.decoder.layers.named_parameters():
            if name.endswith(("v_proj.weight", "out_proj.weight", "fc1.weight", "fc2.weight")):
                weight.mul_(4)
        model.decoder.output_projection.weight.mul_(3)
    return model


class OneAfterTheOther(search.BeamSearch):
    """Sentence i may end as any other, but must end after i + 3 words: sentences leave the batch in turn."""

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        others = torch.arange(lprobs.size(-1)) != self.eos
        for row, sentence in enumerate(original_batch_idxs.tolist()):
            if step >= sentence + 3:
                lprobs[row, :, others] = float("-inf")
        return super().step(step, lprobs, scores, prev_output_tokens, original_batch_idxs)


def hypotheses(models, task, sources=SOURCES, beam=5, cached=True, kind=SequenceGenerator, **options):
    models = models if isinstance(models, list) else [models]
    options.setdefault("search_strategy", OneAfterTheOther(task.target_dictionary))
    prefix = options.pop("prefix_tokens", None)
    generator = kind(models, task.target_dictionary, beam_size=beam, max_len_b=12, **options)
    generator.model.has_incremental = cached
    sample = {"net_input": make_batch(task, sources)}
    return generator.generate(models, sample, prefix_tokens=prefix)


def assert_same(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert [x["tokens"].tolist() for x in ours] == [x["tokens"].tolist() for x in theirs]
        for one, other in zip(ours, theirs):
            torch.testing.assert_close(
                one["positional_scores"], other["positional_scores"], **TOLERANCE
            )


@pytest.mark.parametrize("beam", [1, 5])
def test_beam_search_equals_search_without_cached_state(model, task, beam):
    found = hypotheses(model, task, beam=beam)
    assert_same(found, hypotheses(model, task, beam=beam, cached=False))
    assert len({max(len(x["tokens"]) for x in sentence) for sentence in found}) > 2


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs torch with oneDNN")
def test_model_that_fairseq_prepared_for_inference_translates_the_same(model, task, monkeypatch):
    monkeypatch.setattr(packed_linear, "LEAST_ENTRIES", 1)
    prepared = copy.deepcopy(model)
    prepared.prepare_for_inference_(Namespace(generation=Namespace(beam=5, print_alignment=False)))
    assert_same(hypotheses(prepared, task, SOURCES[:4]), hypotheses(model, task, SOURCES[:4]))
    for layer in (prepared.decoder.output_projection, prepared.decoder.layers[0].fc2):
        assert layer.forward.packed is not None


def test_sentence_alone_is_translated_as_in_a_batch(model, task):
    plain = dict(search_strategy=search.BeamSearch(task.target_dictionary))
    alone = [hypotheses(model, task, [source], **plain)[0] for source in SOURCES[:3]]
    assert_same(hypotheses(model, task, SOURCES[:3], **plain), alone)


@pytest.mark.parametrize("known_beam_size", [None, 3])
def test_random_changes_of_parents_equal_recomputation(model, task, known_beam_size):
    """Hypotheses take random parents within their sentence, and sentences leave in a random order."""
    beams, words = 3, len(task.target_dictionary)
    if known_beam_size:
        model.set_beam_size(known_beam_size)
    batch = make_batch(task, SOURCES)
    state, length = {}, 10
    with torch.no_grad():
        source = model.encoder(batch["src_tokens"], batch["src_lengths"])
        rows = torch.arange(len(SOURCES)).repeat_interleave(beams)
        source = model.encoder.reorder_encoder_out(source, rows)
        tokens = torch.full((len(rows), 1), task.target_dictionary.eos())
        for _ in range(length):
            found = model.decoder(tokens, source, incremental_state=state)[0][:, -1]
            torch.testing.assert_close(found, model.decoder(tokens, source)[0][:, -1], **TOLERANCE)
            sentences = torch.arange(len(tokens) // beams)
            if len(sentences) > 1 and torch.rand(()) < 0.4:
                left = torch.randint(len(sentences), ())
                sentences = torch.cat([sentences[:left], sentences[left + 1 :]])
            parents = sentences[:, None] * beams + torch.randint(beams, (len(sentences), beams))
            order = parents.flatten()
            model.decoder.reorder_incremental_state_scripting(state, order)
            source = model.encoder.reorder_encoder_out(source, order)
            following = torch.randint(4, words, (len(order), 1))
            tokens = torch.cat([tokens[order], following], dim=1)


def test_beam_size_of_an_earlier_search_does_no_harm(data, task):
    """fairseq does not tell a model when the beam size becomes 1 again."""
    for sources in (SOURCES[:5], ["a b"] * 5, ["a b"] * 10):
        used = decisive(build(data, "--rfa-gate"))
        hypotheses(used, task, sources, beam=5)
        fresh = decisive(build(data, "--rfa-gate"))
        assert_same(
            hypotheses(used, task, sources, beam=1), hypotheses(fresh, task, sources, beam=1)
        )


def test_state_of_the_source_is_stored_once_for_a_sentence(data, task):
    model = build(data)
    kept = []
    for beam in (1, 5):
        model.set_beam_size(beam)
        batch, state = make_batch(task, SOURCES), {}
        source = model.encoder(batch["src_tokens"], batch["src_lengths"])
        rows = torch.arange(len(SOURCES)).repeat_interleave(beam)
        source = model.encoder.reorder_encoder_out(source, rows)
        tokens = torch.full((len(rows), 1), task.target_dictionary.eos())
        model.decoder(tokens, source, incremental_state=state)
        attention = model.decoder.layers[0].encoder_attn
        kept.append(list(attention._get_input_buffer(state).values()))
    assert {x.size(0) for x in kept[1]} == {len(SOURCES)}
    torch.testing.assert_close(kept[1], kept[0])


@pytest.mark.parametrize("second", ["--rfa-gate", "--causal-attention softmax --cross-attention softmax"])
def test_ensemble_equals_ensemble_without_cached_state(data, task, second):
    models = [decisive(build(data)), decisive(build(data, *second.split(), seed=2))]
    assert_same(hypotheses(models, task), hypotheses(models, task, cached=False))


def test_forced_prefix_equals_search_without_cached_state(model, task):
    prefix = make_batch(task, SOURCES, ["A B", "C", "A A", "D D", "H", "B C"])
    prefix = prefix["prev_output_tokens"][:, 1:]
    found = hypotheses(model, task, prefix_tokens=prefix)
    assert_same(found, hypotheses(model, task, cached=False, prefix_tokens=prefix))
    assert task.target_dictionary.string(found[0][0]["tokens"]).startswith("A B")


@pytest.mark.parametrize("soft", [False, True])
def test_alignment_is_there_and_within_the_sentences(model, task, soft):
    for layer in model.decoder.layers:
        layer.make_generation_fast_(need_attn=True)
    kind = SequenceGeneratorWithAlignment
    found = hypotheses(model, task, kind=kind, print_alignment="soft" if soft else "hard")
    for source, (best, *_) in zip(SOURCES, found):
        source_length, target_length = len(source.split()) + 1, len(best["tokens"])
        assert len(best["alignment"]) > 0
        if soft:
            weights = torch.tensor([[float(x) for x in row] for row in best["alignment"]])
            assert weights.shape == (target_length, source_length)
            assert weights.isfinite().all()
            continue
        for source_word, target_word in best["alignment"]:
            assert 0 <= source_word < source_length and 0 <= target_word < target_length


def test_attention_of_a_step_equals_that_of_teacher_forcing(data, task):
    model = build(data)
    for layer in model.decoder.layers:
        layer.make_generation_fast_(need_attn=True)
    batch = make_batch(task, SOURCES, ["A B C"] * len(SOURCES))
    source = model.encoder(batch["src_tokens"], batch["src_lengths"])
    whole = model.decoder(batch["prev_output_tokens"], source)[1]["attn"][0]
    state = {}
    for end in range(1, 5):
        tokens = batch["prev_output_tokens"][:, :end]
        step = model.decoder(tokens, source, incremental_state=state)[1]["attn"][0]
        torch.testing.assert_close(step[:, 0], whole[:, end - 1], **TOLERANCE)
    padding = batch["src_tokens"].eq(task.source_dictionary.pad())
    assert whole.masked_select(padding[:, None]).eq(0).all()


def test_score_of_a_reference_is_the_score_of_search(model, task):
    found = hypotheses(model, task, beam=1, normalize_scores=False)
    for source, (best,) in zip(SOURCES, found):
        target = best["tokens"][None]
        batch = make_batch(task, [source])
        batch["prev_output_tokens"] = target.roll(1)  # the end of a sentence is also its beginning
        sample = {"net_input": batch, "target": target, "id": torch.tensor([0])}
        ((scored,),) = SequenceScorer(task.target_dictionary).generate([model], sample)
        torch.testing.assert_close(
            scored["positional_scores"], best["positional_scores"], **TOLERANCE
        )


def test_sampling_equals_sampling_without_cached_state(model, task):
    found = []
    for cached in (True, False):
        torch.manual_seed(5)
        sampling = search.Sampling(task.target_dictionary, sampling_topk=4)
        found.append(hypotheses(model, task, cached=cached, search_strategy=sampling))
    assert_same(*found)
