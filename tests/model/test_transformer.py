"""The whole model: what padding, neighbours, later words and the order of computation must not change."""

import itertools

import pytest
import torch

from helpers import trained_parameters
from tiny_data import build, make_batch
from variants import FLAGS

SOURCES = ["a b c d e f g h a", "b", "c a d", "e e f h a"]
TARGETS = ["A B C D E F G", "H H A B C D E", "A", "C D"]
COMBINATIONS = [
    f"--causal-attention {causal} --cross-attention {cross}{gate}"
    for causal, cross, gate in itertools.product(
        ("rfa", "softmax"), ("rfa", "softmax"), ("", " --rfa-gate", " --rfa-gate --rfa-chunk-size 3")
    )
    if causal == "rfa" or not gate
] + ["--encoder-embed-dim 48 --rfa-gate", *FLAGS]
# Sums of a few dozen float32 products in another order, through two layers.
TOLERANCE = dict(atol=2e-4, rtol=2e-4)


@pytest.fixture(params=COMBINATIONS)
def flags(request):
    return request.param.split()


@pytest.fixture
def model(data, flags):
    return build(data, *flags)


def logits(model, batch):
    with torch.no_grad():
        return model(**batch)[0]


def step_by_step(model, batch):
    state, outputs = {}, []
    tokens = batch["prev_output_tokens"]
    with torch.no_grad():
        source = model.encoder(batch["src_tokens"], batch["src_lengths"])
        for end in range(1, tokens.size(1) + 1):
            outputs.append(model.decoder(tokens[:, :end], source, incremental_state=state)[0])
    return torch.cat(outputs, dim=1)


def loss_and_gradients(model, batch):
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(**batch)[0].log_softmax(-1)[..., 4].sum()
    loss.backward()
    return loss, {name: weight.grad for name, weight in trained_parameters(model).items()}


def test_step_by_step_equals_teacher_forcing(model, task):
    batch = make_batch(task, SOURCES, ["A B C D E F G H"] * 4)
    torch.testing.assert_close(step_by_step(model, batch), logits(model, batch), **TOLERANCE)


@pytest.mark.parametrize("left_pad_source", [True, False])
@pytest.mark.parametrize("padding", [0, 70])
def test_sentence_alone_equals_sentence_in_batch(model, task, left_pad_source, padding):
    together = logits(model, make_batch(task, SOURCES, TARGETS, left_pad_source, padding))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS)):
        alone = logits(model, make_batch(task, [source], [target]))[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, **TOLERANCE)


def test_padded_batch_decodes_step_by_step_like_a_sentence_alone(model, task):
    together = step_by_step(model, make_batch(task, SOURCES, ["A B C D"] * 4, padding=3))
    for row, source in enumerate(SOURCES):
        alone = step_by_step(model, make_batch(task, [source], ["A B C D"]))[0]
        torch.testing.assert_close(together[row], alone, **TOLERANCE)


def test_later_words_change_nothing_earlier(model, task):
    before = make_batch(task, SOURCES, ["A B C D E F G H"] * 4)
    after = make_batch(task, SOURCES, ["A B C H H H A A"] * 4)
    before, after = logits(model, before), logits(model, after)
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=0, rtol=0)
    assert not torch.equal(after[:, 4:], before[:, 4:])


# The softmax of fairseq makes NaN of such a row by itself.
@pytest.mark.parametrize("flags", ["", "--rfa-gate", "--causal-attention softmax"])
@pytest.mark.parametrize("training", [False, True])
def test_source_that_is_all_padding_is_finite(data, task, flags, training):
    model = build(data, *flags.split()).train(training)
    batch = make_batch(task, SOURCES, TARGETS)
    batch["src_tokens"][1] = task.source_dictionary.pad()
    assert logits(model, batch).isfinite().all()
    assert step_by_step(model.eval(), batch).isfinite().all()


def test_every_parameter_has_a_finite_gradient(model, task):
    _, gradients = loss_and_gradients(model.train(), make_batch(task, SOURCES, TARGETS))
    assert not [name for name, gradient in gradients.items() if gradient is None]
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_evaluation_does_not_depend_on_the_random_source(model, task):
    batch = make_batch(task, SOURCES, TARGETS)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(logits(model, batch))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("fixed", [False, True])
def test_training_draws_matrices_unless_they_are_fixed(data, task, fixed):
    matrices = "--rfa-fixed-matrices" if fixed else "--no-rfa-fixed-matrices"
    model = build(data, "--dropout", "0", matrices)
    batch = make_batch(task, SOURCES, TARGETS)
    evaluation = logits(model, batch)
    first, second = logits(model.train(), batch), logits(model, batch)
    assert torch.equal(first, second) == fixed
    assert torch.allclose(first, evaluation, **TOLERANCE) == fixed


@pytest.mark.parametrize("flags", ["", "--rfa-gate"])
def test_recomputed_activations_change_nothing(data, task, flags):
    batch = make_batch(task, SOURCES, TARGETS)
    draws = ["--dropout", "0.3", "--no-rfa-fixed-matrices", *flags.split()]
    plain, recomputed = (
        build(data, *draws, *more).train() for more in ([], ["--checkpoint-activations"])
    )
    loss, gradients = loss_and_gradients(plain, batch)
    same_loss, same_gradients = loss_and_gradients(recomputed, batch)
    assert torch.equal(loss, same_loss)
    for name, gradient in gradients.items():
        torch.testing.assert_close(same_gradients[name], gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("causal, built", [("rfa", False), ("softmax", True)])
def test_future_mask_is_built_for_softmax_only(data, task, causal, built):
    model = build(data, "--causal-attention", causal)
    logits(model, make_batch(task, SOURCES, TARGETS))
    assert (model.decoder._future_mask.numel() > 0) == built


def test_full_context_alignment_is_refused(data, task):
    batch = make_batch(task, SOURCES, TARGETS)
    model = build(data)
    source = model.encoder(batch["src_tokens"], batch["src_lengths"])
    with pytest.raises(ValueError, match="--causal-attention softmax"):
        model.decoder(batch["prev_output_tokens"], source, full_context_alignment=True)


def test_nan_stops_decoding(data, task):
    batch = make_batch(task, SOURCES, TARGETS)
    model = build(data)
    with torch.no_grad():
        model.decoder.layers[1].fc1.weight[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match="not finite"):
        step_by_step(model, batch)


@pytest.mark.parametrize("gate", [[], ["--rfa-gate"]])
@pytest.mark.parametrize("shape", [[], ["--decoder-normalize-before", "--decoder-learned-pos"]])
def test_parameters_are_those_of_fairseq_and_sigma_and_the_gate(data, gate, shape):
    def sizes(*flags, **options):
        return {key: x.shape for key, x in build(data, *flags, **options).state_dict().items()}

    heads = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
    expected = sizes(*heads, *shape, architecture="transformer")
    for layer in ("decoder.layers.0", "decoder.layers.1"):
        expected[f"{layer}.self_attn.sigma"] = (4, 8)
        expected[f"{layer}.encoder_attn.sigma"] = (4, 8)
        if gate:
            expected[f"{layer}.self_attn.gate_proj.weight"] = (4, 32)
            expected[f"{layer}.self_attn.gate_proj.bias"] = (4,)
    assert sizes(*gate, *shape) == expected
