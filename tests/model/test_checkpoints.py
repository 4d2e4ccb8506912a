"""Checkpoints: stopped and resumed, loaded elsewhere or with the other attention, averaged, and never run."""

import logging
import re
import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble

from fairseq_rfa import TransformerRFAModel, average_checkpoints
from tiny_data import build, generate_here, results, train_here

SOFTMAX = "--causal-attention softmax --cross-attention softmax".split()
TO_SOFTMAX = {"causal_attention": "softmax", "cross_attention": "softmax"}


def tensors(node, name=""):
    if torch.is_tensor(node):
        yield name, node
    elif isinstance(node, (dict, list, tuple)):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from tensors(value, f"{name}.{key}")


def printed_numbers(records):
    """What training printed of its progress, but not of its speed."""
    kept = r"\b(?:loss|nll_loss|ppl|gnorm|lr|num_updates)[ =]+[^ ,|]+"
    return [re.findall(kept, x.getMessage()) for x in records if x.name in ("train_inner", "valid")]


def load(path, data, **overrides):
    overrides["data"] = str(data)
    return load_model_ensemble([str(path)], arg_overrides=overrides)[0][0]


# 16 tokens a batch stop within the first epoch, 64 in the second.
@pytest.mark.parametrize(
    "architecture, more",
    [
        ("transformer_rfa_tiny_gate", ["--max-tokens", "16"]),
        ("transformer_rfa_tiny", ["--max-tokens", "64"]),
    ],
)
def test_stopped_and_resumed_equals_not_stopped(data, tmp_path, caplog, architecture, more):
    caplog.set_level(logging.INFO)

    def run(folder, updates):
        flags = ["--dropout", "0.3", "--no-rfa-fixed-matrices", *more]
        flags += ["--log-interval", "1", "--max-update", updates]
        caplog.clear()
        path = train_here(data, tmp_path / folder, *flags, architecture=architecture)
        return load_checkpoint_to_cpu(path), printed_numbers(caplog.records)

    whole, printed = run("whole", "20")
    run("stopped", "10")
    resumed, printed_later = run("stopped", "20")
    assert len(printed_later) > 10 and printed_later[-10:] == printed[-10:]
    for part in ("model", "last_optimizer_state"):
        expected = dict(tensors(whole[part]))
        found = dict(tensors(resumed[part]))
        assert found.keys() == expected.keys() and len(expected) > 20
        assert not [name for name, value in expected.items() if not torch.equal(found[name], value)]


def test_saved_tensors_are_on_the_cpu_and_no_random_matrices(checkpoint):
    state = load_checkpoint_to_cpu(checkpoint)
    saved = dict(tensors({key: state[key] for key in ("model", "last_optimizer_state")}))
    assert len(saved) > 100
    assert {value.device.type for value in saved.values()} == {"cpu"}
    assert not [name for name, value in saved.items() if value.dim() == 3 and value.size(0) == 20]
    extra = {key.rsplit("attn.")[-1] for key in state["model"] if "_proj" not in key and "attn." in key}
    assert extra == {"sigma"}


def test_decodes_elsewhere_under_another_seed(checkpoint, data, tmp_path, monkeypatch):
    here = generate_here(data, checkpoint, "--beam", "5")
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copy(checkpoint, moved / "model.pt")
    shutil.copytree(data, moved / "data")
    monkeypatch.chdir(moved)
    there = generate_here("data", "model.pt", "--beam", "5", "--seed", "99")
    for kind in ("H", "P"):
        assert results(there, kind) == results(here, kind)
    assert len(results(here)) == 8
    assert len({fields[1] for _, fields in results(here)}) > 3


def test_checkpoint_that_runs_code_is_refused(checkpoint, tmp_path, data):
    class Code:
        def __reduce__(self):
            return (shutil.copy, (str(checkpoint), str(tmp_path / "ran")))

    state = torch.load(checkpoint, weights_only=True)
    state["extra_state"]["code"] = Code()
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(Exception, match="weights_only|Unsupported"):
        load(tmp_path / "bad.pt", data)
    assert not (tmp_path / "ran").exists()


def test_attention_can_be_exchanged_when_decoding(checkpoint, data, caplog):
    caplog.set_level(logging.INFO)
    output = generate_here(data, checkpoint, "--model-overrides", str(TO_SOFTMAX))
    assert len(results(output)) == 8
    (line,) = [x.getMessage() for x in caplog.records if "dropped" in x.getMessage()]
    for key in ("self_attn.sigma", "encoder_attn.sigma", "self_attn.gate_proj.weight"):
        for layer in (0, 1):
            assert f"decoder.layers.{layer}.{key}" in line


@pytest.mark.parametrize("theirs, ours", [(SOFTMAX, ["--rfa-gate"]), (["--rfa-gate"], SOFTMAX), ([], [])])
def test_parameters_of_the_other_attention_load(data, caplog, theirs, ours):
    caplog.set_level(logging.INFO)
    source, target = build(data, *theirs, seed=2), build(data, *ours, seed=3)
    before = target.state_dict()
    own = {key: before[key].clone() for key in before if key not in source.state_dict()}
    target.load_state_dict(source.state_dict())
    for key, value in target.state_dict().items():
        assert torch.equal(value, own[key] if key in own else source.state_dict()[key]), key
    lines = [x.getMessage() for x in caplog.records if "another attention" in x.getMessage()]
    assert len(lines) == (theirs != ours)
    assert all("\n" not in line and "decoder.layers.1.encoder_attn.sigma" in line for line in lines)
    assert all(key in lines[0] for key in own)


def test_wrong_size_is_refused_with_key_and_sizes(checkpoint, data):
    with pytest.raises(RuntimeError) as refusal:
        load(checkpoint, data, decoder_attention_heads=2)
    assert re.search(r"layers\.0\.self_attn\.sigma.*\[4, 8\].*\[2, 16\]", str(refusal.value))


@pytest.mark.parametrize("key", ["decoder.layers.0.self_attn.stranger", "decoder.layers.0.supersigma"])
def test_unknown_parameter_is_refused(data, key):
    state = build(data).state_dict()
    state[key] = torch.zeros(1)
    with pytest.raises(RuntimeError, match=key):
        build(data).load_state_dict(state)


def test_python_interface_translates(checkpoint, data):
    hub = TransformerRFAModel.from_pretrained(
        str(checkpoint.parent), checkpoint_file=checkpoint.name, data_name_or_path=str(data)
    )
    text = hub.translate("a b c")
    assert text and set(text.split()) <= set("ABCDEFGH")
    assert hub.translate(["a b c", "d"])[0] == text


@pytest.mark.parametrize("first, second", [(SOFTMAX, []), ([], SOFTMAX)])
def test_training_starts_from_a_model_of_the_other_attention(data, tmp_path, first, second, caplog):
    caplog.set_level(logging.INFO)
    path = train_here(data, tmp_path / "first", "--max-update", "1", *first)
    flags = ["--max-update", "1", "--lr", "1e-9", "--finetune-from-model", str(path), *second]
    later = train_here(data, tmp_path / "second", *flags)
    assert sum("another attention" in x.getMessage() for x in caplog.records) == 1
    start, end = (load_checkpoint_to_cpu(x)["model"] for x in (path, later))
    shared = start.keys() & end.keys()
    assert len(shared) > 50
    assert all(torch.allclose(end[key], start[key], atol=1e-6) for key in shared)


def test_average_of_copies_is_the_checkpoint(checkpoint, data, tmp_path):
    copies = [shutil.copy(checkpoint, tmp_path / f"checkpoint{epoch}.pt") for epoch in (1, 2, 3)]
    for number, inputs in enumerate(
        (["--inputs", *map(str, copies)], ["--inputs", str(tmp_path), "--num-epoch-checkpoints", "3"])
    ):
        output = tmp_path / f"average-{number}.pt"
        average_checkpoints.main([*inputs, "--output", str(output)])
        expected = load_checkpoint_to_cpu(checkpoint)["model"]
        found = load_checkpoint_to_cpu(output)["model"]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)
        assert found["decoder.layers.0.fc1.weight"].dtype == torch.float32
    assert results(generate_here(data, output)) == results(generate_here(data, checkpoint))


def test_average_is_the_mean_of_the_newest(data, tmp_path):
    run = tmp_path / "run"
    flags = ["--save-interval-updates", "2", "--max-update", "6"]
    train_here(data, run, *flags)
    output = tmp_path / "average.pt"
    average_checkpoints.main(
        ["--inputs", str(run), "--num-update-checkpoints", "2", "--output", str(output)]
    )
    newest = [load_checkpoint_to_cpu(run / f"checkpoint_1_{update}.pt") for update in (4, 6)]
    for key, value in load_checkpoint_to_cpu(output)["model"].items():
        mean = (newest[0]["model"][key].double() + newest[1]["model"][key].double()) / 2
        assert torch.equal(value, mean.to(value.dtype)), key


@pytest.mark.parametrize("flag", ["--rfa-seed 2", "--rfa-num-matrices 21", "--rfa-orthogonal"])
def test_other_random_matrices_are_not_averaged(data, tmp_path, checkpoint, flag):
    other = str(tmp_path / "other.pt")
    state = torch.load(checkpoint, weights_only=True)
    name, *value = flag[2:].replace("-", "_").split()
    setattr(state["cfg"]["model"], name, int(value[0]) if value else True)
    checkpoint_utils.torch_persistent_save(state, other)
    output = tmp_path / "average.pt"
    with pytest.raises(SystemExit, match=name):
        average_checkpoints.main(["--inputs", str(checkpoint), other, "--output", str(output)])
    assert not output.exists()
