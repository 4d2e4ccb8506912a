"""A training goes on with another attention: what the conversion keeps of it."""

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_rfa.programs.checkpoint_file import read_checkpoint
from fairseq_rfa.transfer import __main__ as transfer
from fairseq_rfa.transfer.checkpoint import build, model_options, parameters
from fairseq_rfa.transfer.conversion import convert
from fairseq_rfa.transfer.kinds import KINDS
from tiny_data import train_here
from transfer_data import made, stored

SOFTMAX = "--causal-attention softmax --cross-attention softmax".split()


def converted_file(source, target, to, *flags):
    transfer.main(["--to", to, "--keep-training", *flags, str(source), str(target)])
    return target


def names_of(checkpoint):
    """Parameters in the order of the optimizer."""
    options = model_options(checkpoint)
    return [name for name, _ in build(options, parameters(checkpoint, KINDS[options.arch]), seed=1).named_parameters()]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Softmax after two epochs."""
    folder = tmp_path_factory.mktemp("softmax")
    return train_here(data, folder, *SOFTMAX, "--share-decoder-input-output-embed", "--max-epoch", "2")


def test_a_training_that_was_converted_there_and_back_equals_one_that_was_not(data, trained, tmp_path):
    """Learning rate, batches, dropout and the optimizer go on as if nothing had been."""
    there = converted_file(trained, tmp_path / "rfa.pt", "rfa", "--rfa-num-matrices", "20")
    back = converted_file(there, tmp_path / "softmax.pt", "softmax")
    flags = ["--share-decoder-input-output-embed", "--max-epoch", "4", "--continue-once"]
    architecture = {"architecture": "transformer_rfa_tiny"}
    ends = [
        train_here(data, tmp_path / folder, *SOFTMAX, *flags, str(start), **architecture)
        for folder, start in (("converted", back), ("not", trained))
    ]
    found, wanted = (load_checkpoint_to_cpu(str(end)) for end in ends)
    assert found["optimizer_history"][-1]["num_updates"] == wanted["optimizer_history"][-1]["num_updates"]
    assert found["extra_state"]["train_iterator"] == wanted["extra_state"]["train_iterator"]
    assert all(torch.equal(found["model"][name], value) for name, value in wanted["model"].items())


def test_rfa_goes_on_with_the_optimizer_of_softmax(data, trained, tmp_path, capsys):
    start = converted_file(trained, tmp_path / "rfa.pt", "rfa", "--rfa-num-matrices", "20", "--rfa-gate")
    before, after = read_checkpoint(trained), read_checkpoint(start)
    updates = before["optimizer_history"][-1]["num_updates"]
    assert f"training goes on after {updates} updates" in capsys.readouterr().out
    old, new = names_of(before), names_of(after)
    states = [checkpoint["last_optimizer_state"]["state"] for checkpoint in (before, after)]
    found = {new[number]: state["exp_avg"] for number, state in states[1].items()}
    assert found.keys() == set(old)
    assert set(new) - set(old) == {name for name in new if name.endswith(".sigma") or "gate_proj" in name} != set()
    assert all(torch.equal(found[name], states[0][number]["exp_avg"]) for number, name in enumerate(old))
    assert "best" not in after["extra_state"]

    flags = ["--rfa-gate", "--share-decoder-input-output-embed", "--max-epoch", "3", "--continue-once", str(start)]
    end = load_checkpoint_to_cpu(str(train_here(data, tmp_path / "run", *flags)))
    assert end["extra_state"]["train_iterator"]["epoch"] == 4
    assert end["optimizer_history"][-1]["num_updates"] == updates * 3 // 2


def test_half_precision_keeps_one_long_parameter(trained, tmp_path):
    """It is cut and put together as the parameters of the model are."""
    checkpoint = read_checkpoint(trained)
    single = checkpoint["last_optimizer_state"]
    flat = {
        name: torch.cat([single["state"][number][name].flatten() for number in sorted(single["state"])])
        for name in ("exp_avg", "exp_avg_sq")
    }
    group = {**single["param_groups"][0], "params": [0]}
    halved = {"state": {0: {"step": 8, **flat}}, "param_groups": [group], "loss_scale": 4.0}
    options = {"keep_training": True, "rfa_num_matrices": 20}
    results = [
        convert({**checkpoint, "last_optimizer_state": state}, "rfa", **options)[0]
        for state in (single, halved)
    ]
    wanted, found = (result["last_optimizer_state"] for result in results)
    assert (found["loss_scale"], found["state"][0]["step"], found["param_groups"][0]["params"]) == (4.0, 8, [0])
    sizes = [results[0]["model"][name].numel() for name in names_of(stored(results[0], tmp_path))]
    parts = found["state"][0]["exp_avg_sq"].split(sizes)
    for number, part in enumerate(parts):
        state = wanted["state"].get(number)
        assert torch.equal(part, state["exp_avg_sq"].flatten()) if state else not part.any()


def test_a_checkpoint_without_a_training_is_refused(data, tmp_path):
    checkpoint = read_checkpoint(made(data, tmp_path))
    with pytest.raises(ValueError, match="holds no state of its training"):
        convert({**checkpoint, "last_optimizer_state": None}, "rfa", keep_training=True, rfa_num_matrices=20)
