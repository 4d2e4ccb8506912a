"""The sentence gate of a model: where it acts, what it is refused with, and what a checkpoint of it can do."""

import pytest
import torch
from fairseq import checkpoint_utils

from document_data import add_documents, batches, model_of, task_with
from fairseq_rfa.transfer.__main__ import main as convert
from tiny_data import build, generate_here, results, train_here

IN_CONTEXT = ("--task", "document_translation", "--context-sentences")
GATE = "--rfa-sentence-gate"
SOFTMAX = ("--causal-attention", "softmax", "--cross-attention", "softmax")
NAMES = {
    f"decoder.layers.{layer}.self_attn.sentence_gate_proj.{name}" for layer in (0, 1) for name in ("weight", "bias")
}


@pytest.fixture(scope="module")
def documents(data, tmp_path_factory):
    return add_documents(data, tmp_path_factory.mktemp("documents") / "data")


@pytest.fixture(scope="module")
def trained(documents, tmp_path_factory):
    return train_here(documents, tmp_path_factory.mktemp("trained"), *IN_CONTEXT, "2", GATE, "--max-update", "4")


def parameters(checkpoint):
    return torch.load(checkpoint, weights_only=True)["model"]


def gated_model(documents, *flags):
    task = task_with(documents, "--context-sentences", "2")
    return task, model_of(task, documents, GATE, *flags)


def test_it_is_trained_and_named_in_the_checkpoint(trained):
    found = {name: value for name, value in parameters(trained).items() if "gate" in name}
    assert found.keys() == NAMES
    assert all((value != 2.0).all() for name, value in found.items() if name.endswith("bias"))


def test_it_acts_on_what_follows_a_separator_alone(documents, without_gradients):
    task, model = gated_model(documents)
    batch = next(
        batch
        for batch in batches(task, "valid", max_sentences=3)
        if batch["net_input"]["prev_output_tokens"].eq(task.target_separator).any(1).all()
    )
    before = model(**batch["net_input"])[0]
    for layer in model.decoder.layers:
        layer.self_attn.sentence_gate_proj.bias.fill_(-3.0)
    after = model(**batch["net_input"])[0]
    tokens = batch["net_input"]["prev_output_tokens"]
    behind = tokens.eq(task.target_separator).cumsum(1) - tokens.eq(task.target_separator).long() > 0
    assert torch.equal(before[~behind], after[~behind])
    assert (before - after)[behind & tokens.ne(1)].abs().amax(-1).min() > 1e-4


def test_layers_that_are_computed_anew_in_the_backward_pass_know_the_separators(documents):
    gradients = []
    for flags in ((), ("--checkpoint-activations",)):
        task, model = gated_model(documents, "--dropout", "0", *flags)
        first, second = list(batches(task, "valid", max_sentences=3))[:2]
        model.train()
        for batch in (first, second):
            model(**batch["net_input"])[0].square().mean().backward()
        gradients.append({name: x.grad for name, x in model.named_parameters() if x.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])
    gate = [x for name, x in gradients[0].items() if "sentence_gate" in name]
    assert len(gate) == 4 and all(x.abs().max() > 0 for x in gate)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--task", "translation"), "--rfa-sentence-gate acts where a separator"),
        (("--task", "document_translation"), "use --context-sentences 1 or more"),
        ((*IN_CONTEXT, "0"), "use --context-sentences 1 or more"),
        ((*IN_CONTEXT, "1", "--rfa-gate"), "--rfa-gate and --rfa-sentence-gate gate the same sums"),
        ((*IN_CONTEXT, "1", "--rfa-exact-updates", "5"), "leave --rfa-sentence-gate out"),
        ((*IN_CONTEXT, "1", "--rfa-sentence-gate-bias", "inf"), "--rfa-sentence-gate-bias is inf"),
    ],
)
def test_refusals(documents, tmp_path, flags, message):
    with pytest.raises(ValueError, match=message) as refusal:
        train_here(documents, tmp_path, GATE, *flags, "--max-update", "1")
    assert "\n" not in str(refusal.value)


def test_data_without_the_separator_are_refused(data):
    with pytest.raises(ValueError, match="lack <sep>"):
        model_of(task_with(data, "--context-sentences", "2"), data, GATE)


def test_unread_options_are_warned_of(documents, data, caplog):
    task = task_with(documents)
    model_of(task, documents, GATE, *SOFTMAX)
    assert "--rfa-sentence-gate changes nothing with --causal-attention softmax" in caplog.text
    caplog.clear()
    build(data, "--rfa-sentence-gate-bias", "1")
    assert "--rfa-sentence-gate-bias 1.0 changes nothing without --rfa-sentence-gate" in caplog.text


def test_sentences_alone_are_those_without_the_gate(documents, trained, without_gradients):
    """To the last bit, as nothing separates them; fairseq-generate takes such a checkpoint without context."""
    assert len(results(generate_here(documents, trained, *IN_CONTEXT, "0"))) == 8
    task = task_with(documents)
    (batch,) = batches(task, "valid", by_position=True)
    outputs = []
    for gate in (True, False):
        (model,), _ = checkpoint_utils.load_model_ensemble(
            [str(trained)], arg_overrides={"rfa_sentence_gate": gate}, task=task
        )
        outputs.append(model.eval()(**batch["net_input"])[0])
    assert torch.equal(*outputs)


def test_conversion_to_softmax_and_back(trained, tmp_path):
    softmax, back = tmp_path / "softmax.pt", tmp_path / "rfa.pt"
    convert(["--to", "softmax", str(trained), str(softmax)])
    assert not any("gate" in name for name in parameters(softmax))
    convert(["--to", "rfa", GATE, "--rfa-sentence-gate-bias", "1.5", str(softmax), str(back)])
    again = parameters(back)
    assert again.keys() == parameters(trained).keys()
    for name in NAMES:
        assert not name.endswith("bias") or (again[name] == 1.5).all()
