"""Empty batches, sources of nothing but padding, no layers, no storage: as on fairseq's transformer, or one line."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from helpers import make_pool
from tiny_data import build, generate_here, make_batch, results, train_here
from variants import FLAGS

ATTENTIONS = ["", "--rfa-gate", *FLAGS[1::3]]
WITHOUT_POSITIONS = "--no-token-positional-embeddings"
NO_LAYERS = [
    "--decoder-layers 0",
    "--encoder-layers 0 --rfa-gate --rfa-local-window 2",
    "--decoder-layers 0 --encoder-layers 0 --no-cross-attention",
    "--decoder-layers 0 --causal-attention softmax --cross-attention softmax",
]


def tokens(rows, length, value=5):
    return torch.full((rows, length), value)


def batch_of(rows, length, source_length):
    return tokens(rows, source_length), torch.full((rows,), source_length), tokens(rows, length)


@pytest.mark.parametrize("rows, length", [(0, 4), (2, 0), (0, 0)])
@pytest.mark.parametrize("flags", ATTENTIONS)
def test_empty_batches(data, flags, rows, length):
    model = build(data, WITHOUT_POSITIONS, *flags.split()).train()
    out = model(*batch_of(rows, length, 5))[0]
    assert out.shape[:2] == (rows, length)
    out.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("positions", [[], [WITHOUT_POSITIONS]])
@pytest.mark.parametrize("shape", [(0, 4, 5), (2, 0, 5), (2, 4, 0), (0, 0, 0)])
def test_what_encoder_and_positions_refuse_is_refused_as_by_fairseq(data, shape, positions):
    def outcome(architecture):
        try:
            return build(data, *positions, architecture=architecture)(*batch_of(*shape))[0].shape
        except (RuntimeError, AssertionError) as error:
            return repr(error)

    found, expected = outcome("transformer_rfa_tiny"), outcome("transformer")
    assert found == expected or found[:2] == shape[:2]


@pytest.mark.parametrize("flags", ATTENTIONS)
def test_sources_of_length_0(data, task, flags):
    """In the batch with others, which they change nothing for; fairseq's transformer makes them NaN."""
    model = build(data, *flags.split())
    batch = make_batch(task, ["a b c", "d e f"], ["A B", "C D"])
    expected = model(**batch)[0]
    batch["src_tokens"][1] = task.source_dictionary.pad()
    batch["src_lengths"][1] = 0
    found = model(**batch)[0]
    assert found.isfinite().all()
    torch.testing.assert_close(found[0], expected[0])
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=3, max_len_b=5)
    del batch["prev_output_tokens"]
    assert [len(sentence) for sentence in generator.generate([model], {"net_input": batch})] == [3, 3]


@pytest.mark.parametrize("flags", NO_LAYERS)
def test_no_layers(data, tmp_path, flags):
    path = train_here(data, tmp_path, "--max-update", "1", *flags.split())
    for beam in ("1", "5"):
        assert len(results(generate_here(data, path, "--beam", beam))) == 8


def test_no_layers_translate_as_fairseqs(data, task):
    """Of the same weights."""
    flags = ["--decoder-layers", "0", "--encoder-attention-heads", "4"]
    models = [build(data, *flags, architecture=name) for name in ("transformer_rfa_tiny", "transformer")]
    models[0].load_state_dict(models[1].state_dict())
    sample = {"net_input": make_batch(task, ["a b c", "d", "e f"])}
    found, expected = (
        SequenceGenerator([model], task.target_dictionary, beam_size=4, max_len_b=6).generate([model], sample)
        for model in models
    )
    for ours, theirs in zip(found, expected):
        assert [x["tokens"].tolist() for x in ours] == [x["tokens"].tolist() for x in theirs]


LOST = "^the random matrices are lost on the meta device, .*; build the model anew on cpu and load its state dict$"


@pytest.mark.parametrize("flags", ["", "--rfa-feature-map cosine", "--causal-attention softmax"])
def test_a_model_without_storage_gets_none(data, flags):
    model = build(data, *flags.split()).to("meta")
    with pytest.raises(ValueError, match=LOST):
        model.to_empty(device="cpu")


def test_storage_that_was_never_lost_is_kept(data, task):
    """to_empty forgets what a state dict holds, and that alone."""
    model = build(data, "--encoder-learned-pos", "--decoder-learned-pos")
    batch = make_batch(task, ["a b"], ["A"])
    expected, state = model(**batch)[0], {name: x.clone() for name, x in model.state_dict().items()}
    model.to_empty(device="cpu").load_state_dict(state)
    assert torch.equal(model(**batch)[0], expected)


@pytest.mark.parametrize("with_phases", [False, True])
def test_a_pool_on_the_meta_device(with_phases):
    pool = make_pool(with_phases=with_phases).to("meta")
    assert pool.to("meta").matrices.is_meta
    with pytest.raises(ValueError, match=LOST):
        pool.to_empty(device="cpu")
