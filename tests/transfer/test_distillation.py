"""A softmax attention teaches random feature attention: what is trained, with what, and what is not."""

import pytest
import torch
from torch import nn

from fairseq_rfa.functional.random_matrices import LARGEST_SEED
from fairseq_rfa.model.parameters import OF_DECODER, PLACES, RFA_PARAMETERS, attentions_of
from fairseq_rfa.programs.checkpoint_file import read_checkpoint
from fairseq_rfa.transfer.conversion import convert
from fairseq_rfa.transfer.distillation import Distillation, distill, relative_errors
from fairseq_rfa.transfer.sentences import endless_batches, first_sentences, held_out_subset, read_task
from tiny_data import build, train_here
from transfer_data import made, stored, valid_batches

HEADS = ("--decoder-attention-heads", "4")
MADE = {"rfa_num_matrices": 20}


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A softmax model, trained until its attention is no longer that of the start."""
    folder = tmp_path_factory.mktemp("teacher")
    return read_checkpoint(train_here(data, folder, "--max-update", "60", architecture="transformer"))


def lesson(data, checkpoint, updates=3, lr=0.01, seed=1):
    task = read_task(checkpoint, data, "train")
    held_out = first_sentences(task, held_out_subset(task), 8)
    return Distillation(endless_batches(task, "train", 64, seed), held_out, updates, lr)


def models(data, *flags, **options):
    """Teacher and student with the same random weights."""
    teacher = build(data, *HEADS, "--encoder-attention-heads", "4", *options.pop("teacher_flags", ()),
                    architecture="transformer")
    student = build(data, "--encoder-attention", "rfa", *flags)
    student.load_state_dict(teacher.state_dict())
    with torch.no_grad():
        weight = 3 * teacher.encoder.layers[0].self_attn.q_proj.weight
        for model in (teacher, student):
            for attention in (x for place in PLACES for x in attentions_of(model, place)):
                attention.q_proj.weight.copy_(weight)
    return teacher, student


def of_rfa(model):
    return {name: value.clone() for name, value in model.state_dict().items() if name.endswith(RFA_PARAMETERS)}


def taught(data, batches=None, updates=3, places=tuple(PLACES), **options):
    """The parameters of random feature attention after some updates."""
    teacher, student = options.pop("models", None) or models(data, **options)
    distill(teacher, student, places, batches or valid_batches(data) * updates, updates, 0.05, "test")
    return of_rfa(student)


@pytest.mark.parametrize(
    "name, most",
    # What σ can mend with directions that stay, and what a map can that learns them.
    [("gaussian", 0.9), ("positive", 0.9), ("elu", 0.99), ("learned", 0.6)],
)
def test_every_attention_comes_nearer_to_that_of_a_trained_model(data, trained, name, most):
    options = {"rfa_feature_map": name, "rfa_sigma_init": 1.0, "encoder_attention": "rfa", **MADE}
    options |= {f"rfa_{place}_dim": 16 for place in PLACES}
    _, report = convert(trained, "rfa", distillation=lesson(data, trained, updates=60, lr=0.03), **options)
    errors = report.distillation["relative_errors"]
    assert errors.keys() == PLACES.keys()
    for place, found in errors.items():
        assert len(found["before"]) == len(found["after"]) == (1 if place == "encoder" else 2)
        for before, after in zip(found["before"], found["after"]):
            assert 0 < after < most * before, (place, before, after)


@pytest.mark.parametrize("name", ["gaussian", "learned"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_only_what_softmax_lacks_is_trained(data, tmp_path, name, precision):
    def to_half(state):
        for key, value in state.items():
            state[key] = value.half() if value.is_floating_point() and precision == "float16" else value

    start = read_checkpoint(made(data, tmp_path, change=to_half))
    before = {key: value.clone() for key, value in start["model"].items()}
    options = {"rfa_feature_map": name, "rfa_gate": True, **MADE}
    plain = convert(start, "rfa", **options)[0]["model"]
    found = stored(convert(start, "rfa", distillation=lesson(data, start, lr=0.1), **options)[0], tmp_path)["model"]
    assert list(found) == list(plain)
    assert {str(value.dtype) for value in found.values()} == {f"torch.{precision}"}
    changed = {key for key in found if not torch.equal(found[key], plain[key])}
    assert changed == {key for key in found if key.endswith(RFA_PARAMETERS)}
    assert all(torch.equal(value, before[key]) for key, value in start["model"].items())


def test_a_sigma_that_is_fixed_stays(data, tmp_path):
    start = read_checkpoint(made(data, tmp_path))
    options = {"rfa_fixed_sigma": True, "rfa_gate": True, **MADE}
    plain, found = (
        convert(start, "rfa", distillation=distillation, **options)[0]["model"]
        for distillation in (None, lesson(data, start))
    )
    changed = {key.split(".")[-2] for key in found if not torch.equal(found[key], plain[key])}
    assert changed == {"gate_proj"}


def test_an_attention_that_stays_is_not_trained(data, tmp_path):
    flags = ["--causal-attention", "softmax", "--rfa-num-matrices", "20", "--rfa-sigma-init", "1.5"]
    start = read_checkpoint(made(data, tmp_path, *flags, architecture="transformer_rfa_tiny"))
    found, report = convert(start, "rfa", distillation=lesson(data, start))
    assert report.distillation["relative_errors"].keys() == {"causal"}
    for layer in range(2):
        assert found["model"][f"decoder.layers.{layer}.encoder_attn.sigma"].eq(1.5).all()
        assert found["model"][f"decoder.layers.{layer}.self_attn.sigma"].ne(1.5).any()


def test_it_starts_from_the_sigma_that_is_fitted(data, trained):
    """A learning rate next to nothing leaves it there."""
    fit = valid_batches(data)
    fitted = convert(trained, "rfa", batches=fit, **MADE)[0]["model"]
    found, report = convert(trained, "rfa", batches=fit, distillation=lesson(data, trained, lr=1e-9), **MADE)
    for name in report.added:
        assert torch.allclose(found["model"][name], fitted[name], atol=1e-6)


@pytest.mark.parametrize("flags", [("--decoder-layerdrop", "0.9"), ("--checkpoint-activations",)], ids=" ".join)
def test_layers_that_training_treats_in_its_own_way(data, tmp_path, flags):
    """They are all fitted and distilled as without the option."""
    found = []
    for more in ((), flags):
        start = read_checkpoint(made(data, tmp_path, *more))
        options = {"batches": valid_batches(data), "distillation": lesson(data, start), **MADE}
        found.append(convert(start, "rfa", **options)[0]["model"])
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_the_error_is_that_of_the_outputs_of_the_same_inputs(data):
    """Sentence by sentence, so without padding; the teacher's attention by its definition."""
    teacher, student = models(data)
    expected = {place: [] for place in PLACES}
    for place in PLACES:
        for softmax, features in zip(attentions_of(teacher, place), attentions_of(student, place)):
            seen, sums = [], torch.zeros(2, dtype=torch.float64)
            hook = softmax.register_forward_pre_hook(lambda *call, seen=seen: seen.append(call[2]), with_kwargs=True)
            with torch.no_grad():
                for batch in valid_batches(data, rows=1):
                    teacher(**batch["net_input"])
                    query, key = seen[-1]["query"], seen[-1]["key"]
                    ours, _ = features(query, key, key, need_weights=False)
                    theirs = defined_softmax(softmax, query, key, place == "causal")
                    sums += torch.stack([(ours - theirs).square().sum(), theirs.square().sum()])
            hook.remove()
            expected[place].append((sums[0] / sums[1]).item())
    found = relative_errors(teacher, student, tuple(PLACES), valid_batches(data))
    for place in PLACES:
        assert found[place] == pytest.approx(expected[place], rel=1e-4)
    for place in OF_DECODER:
        assert found[place][0] != pytest.approx(found[place][1], rel=1e-2)


def defined_softmax(attention, query, key, causal):
    q, k, v = (
        layer(x).unflatten(-1, (4, 8)).permute(1, 2, 0, 3)
        for layer, x in ((attention.q_proj, query), (attention.k_proj, key), (attention.v_proj, key))
    )
    logits = q @ k.mT * 8**-0.5
    if causal:
        logits = logits.masked_fill(torch.ones(logits.shape[-2:]).triu(1).bool(), float("-inf"))
    return attention.out_proj((logits.softmax(-1) @ v).permute(2, 0, 1, 3).flatten(2))


def test_layers_learn_independently_from_the_inputs_of_the_teacher(data):
    expected = taught(data, flags=())
    teacher, student = models(data)
    with torch.no_grad():
        student.decoder.layers[0].self_attn.sigma *= 3
        student.decoder.layers[0].fc1.weight *= 3
    found = taught(data, models=(teacher, student))
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert different == ["decoder.layers.0.self_attn.sigma"]


def test_padding_changes_nothing(data):
    """More of it on both sides; Adam makes of rounding in the gradients at most some thousandths of a step."""
    (batch,) = valid_batches(data)
    inputs = batch["net_input"]
    padded = {
        "src_tokens": nn.functional.pad(inputs["src_tokens"], (3, 0), value=1),
        "src_lengths": inputs["src_lengths"],
        "prev_output_tokens": nn.functional.pad(inputs["prev_output_tokens"], (0, 4), value=1),
    }
    expected, found = (taught(data, batches=[{"net_input": x}] * 3) for x in (inputs, padded))
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=0.001), name


def test_dropout_and_draws_of_matrices_are_off(data):
    found = []
    flags = ("--dropout", "0.5", "--attention-dropout", "0.5")
    for seed, more in ((1, ()), (2, ("--no-rfa-fixed-matrices",))):
        teacher, student = models(data, *flags, *more, teacher_flags=flags)
        torch.manual_seed(seed)
        found.append(taught(data, models=(teacher.train(), student.train())))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_nothing_else_has_gradients_and_the_teacher_is_left_as_it_was(data):
    teacher, student = models(data)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    taught(data, models=(teacher, student))
    assert all(parameter.requires_grad for parameter in student.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not any(module._forward_hooks for module in teacher.modules())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    learning = {name for name, parameter in student.named_parameters() if parameter.grad is not None}
    assert learning == of_rfa(student).keys()


def test_batches_of_many_epochs(data, trained):
    """Each epoch has each sentence once, in an order of its own that the seed decides."""
    task = read_task(trained, data, "train")

    def numbers(tokens, seed, sentences):
        found, batches = [], endless_batches(task, "train", tokens, seed)
        while len(found) < sentences:
            batch = next(batches)
            assert batch["net_input"]["prev_output_tokens"].numel() <= tokens
            assert batch["net_input"]["src_tokens"].numel() <= tokens
            found += batch["id"].tolist()
        return found

    first = numbers(64, 1, 128)
    assert sorted(first) == sorted([*range(64)] * 2)
    assert first[:64] != first[64:]
    assert first == numbers(64, 1, 128) != numbers(64, 2, 128)
    assert len(numbers(64, LARGEST_SEED, 128)) == 128
    short = [i for i in range(64) if task.dataset("train").num_tokens(i) <= 5]
    assert 0 < len(short) < 64 and sorted(numbers(5, 1, len(short))) == short
    with pytest.raises(ValueError, match="no sentence of at most 1 words in 'train'"):
        endless_batches(task, "train", 1, 1)
