"""What the benchmark is made of: models, clock, decoding state, memory."""

import subprocess
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch

from fairseq_rfa.benchmark import clock as benchmark_clock
from fairseq_rfa.benchmark import decode as benchmark_decode
from fairseq_rfa.benchmark import memory as benchmark_memory
from fairseq_rfa.benchmark import models as benchmark_models
from fairseq_rfa.benchmark import train as benchmark_train
from fairseq_rfa.benchmark.options import parse_arguments
from fairseq_rfa.benchmark.plot import PAPER
from fairseq_rfa.benchmark.report import amount
from fairseq_rfa.model.parameters import RFA_PARAMETERS

CPU = torch.device("cpu")
SMALL = ["--lengths", "4", "--vocabulary", "50", "--repeats", "2", "--arch", "transformer_rfa_tiny_gate"]


def options_of(command, *arguments):
    return parse_arguments([command, *SMALL, "--no-memory", *arguments], description=None)


def attention_of(model):
    return [(layer.self_attn, layer.encoder_attn) for layer in model.decoder.layers]


@pytest.fixture(scope="module")
def task():
    return benchmark_models.make_task(50)


def test_dictionary_has_as_many_entries_as_asked_for(task):
    assert len(task.source_dictionary) == 50 and task.source_dictionary is task.target_dictionary
    tokens = benchmark_models.random_tokens(task, 3, 7, 1, CPU)
    assert tokens.shape == (3, 7) and tokens[:, -1].eq(task.target_dictionary.eos()).all()
    assert tokens[:, :-1].min() >= task.target_dictionary.nspecial


@pytest.mark.parametrize("baseline", benchmark_models.BASELINES)
def test_baseline_has_the_sizes_of_the_model_and_no_features(task, baseline):
    options = options_of("decode", "--baseline", baseline, "--flags", "encoder_layers=1", "decoder_ffn_embed_dim=48")
    shapes = {}
    for name in benchmark_models.MODELS:
        model = benchmark_models.build_model(options, name, 20, task, CPU)
        shapes[name] = {key: value.shape for key, value in model.named_parameters()}
        assert len(model.encoder.layers) == 1 and model.decoder.layers[0].fc1.out_features == 48
        assert model.decoder.embed_tokens is model.encoder.embed_tokens
        assert model.max_decoder_positions() >= 20
    own = {key for key in shapes["rfa"] if key.endswith(RFA_PARAMETERS)}
    assert own and {key: shapes["rfa"][key] for key in shapes["rfa"].keys() - own} == shapes["baseline"]


def test_same_seed_gives_the_same_weights(task):
    first, second, other = (
        benchmark_models.build_model(options_of("decode", "--seed", seed), "rfa", 20, task, CPU)
        for seed in ("3", "3", "4")
    )
    for one, same in zip(first.parameters(), second.parameters()):
        assert torch.equal(one, same)
    assert not torch.equal(first.encoder.embed_tokens.weight, other.encoder.embed_tokens.weight)


def test_attention_is_left_out_within_and_comes_back_after_an_error(task):
    model = benchmark_decode.prepared_model(options_of("decode"), "rfa", task, CPU)
    before = attention_of(model)
    with pytest.raises(RuntimeError, match="stopped"):
        with benchmark_models.without_attention(model):
            assert not {x for pair in attention_of(model) for x in pair} & {x for pair in before for x in pair}
            raise RuntimeError("stopped")
    assert attention_of(model) == before


def test_only_its_own_measurement_runs_without_attention(monkeypatch):
    options = options_of("decode")
    monkeypatch.setattr(benchmark_decode, "CHECKED_LENGTHS", (3,))
    models, task, _ = benchmark_decode.check(options, CPU)
    before = {name: attention_of(model) for name, model in models.items()}
    seen = {}

    def watch(runs, repeats, device, advance):
        for name, run in runs.items():
            called = seen.setdefault(name, set())
            hooks = [
                model.decoder.layers[0].fc1.register_forward_hook(
                    lambda *_, which=which, called=called: called.add(
                        (which, attention_of(models[which]) == before[which])
                    )
                )
                for which, model in models.items()
            ]
            run()
            for hook in hooks:
                hook.remove()
        return {name: [1.0] * repeats for name in runs}

    monkeypatch.setattr(benchmark_decode, "in_turn", watch)
    benchmark_decode.measure(models, task, options, CPU, lambda text: None)
    assert seen == {
        "rfa": {("rfa", True)},
        "baseline": {("baseline", True)},
        "without_attention": {("rfa", False)},
    }
    assert {name: attention_of(model) for name, model in models.items()} == before


def test_a_state_counts_each_storage_once_and_values_only(task):
    model = benchmark_decode.prepared_model(options_of("decode"), "rfa", task, CPU)
    layer = model.decoder.layers[0]

    class Buffer(dict):
        pass

    kept = torch.zeros(6, 4)
    causal = Buffer(kv=kept, view=kept[:2], ksum=torch.zeros(5, dtype=torch.float64), padding=None)
    causal.more = torch.zeros(1000)
    state = {
        layer.self_attn._get_full_incremental_state_key("attn_state"): causal,
        layer.encoder_attn._get_full_incremental_state_key("attn_state"): {"kv": torch.zeros(3)},
        "unknown.attn_state": {"kv": torch.zeros(2), "again": kept},
    }
    found = benchmark_decode.state_bytes(model, state)
    assert found == {"causal": 96 + 40, "cross": 12, "other": 8, "total": 156}


def test_runs_take_turns():
    order = []
    runs = {name: lambda name=name: order.append(name) for name in ("rfa", "baseline")}
    seconds = benchmark_clock.in_turn(runs, 3, CPU, lambda name: None)
    assert order == ["rfa", "baseline"] * 3 and [len(found) for found in seconds.values()] == [3, 3]


def test_ratio_is_that_of_the_medians_with_the_range_of_neighbours():
    assert benchmark_clock.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == {
        "median": pytest.approx(4 / 3),
        "minimum": 1.0,
        "maximum": 3.0,
    }


@pytest.mark.parametrize("size, text", [(5, "5 B"), (999, "999 B"), (999_500, "1 MB"), (1.234e9, "1.23 GB")])
def test_bytes_are_shown_with_three_digits(size, text):
    assert amount(size) == text


def test_ratios_of_the_paper():
    ratios = {length: round(gaussian / softmax, 1) for length, (softmax, gaussian) in PAPER.items()}
    assert ratios == {8: 1.0, 32: 1.1, 64: 1.3, 128: 1.7, 256: 2.4, 512: 3.8, 1024: 6.3, 2048: 11.4}


@pytest.mark.parametrize("given, source", [([], 4), (["--source-length", "6"], 6)])
def test_lengths_of_source_and_target_in_training(task, given, source):
    batch = benchmark_train.training_batch(task, options_of("train", "--tokens", "8", *given), 4, CPU)
    assert batch["net_input"]["src_tokens"].shape == (2, source) and batch["target"].shape == (2, 4)
    assert batch["ntokens"] == 8


@pytest.mark.parametrize("fault", ["gradient", "loss"])
def test_a_model_that_cannot_be_trained_is_not_timed(task, fault):
    options = options_of("train", "--tokens", "4")
    model = benchmark_train.trainable_model(options, "rfa", task, CPU)
    if fault == "gradient":
        model.register_parameter("unused", torch.nn.Parameter(torch.zeros(1)))
        said = "no finite gradient for unused"
    else:
        torch.nn.init.constant_(model.decoder.layers[0].fc1.weight, float("nan"))
        said = "the loss is nan"
    with pytest.raises(ValueError, match=f"rfa: {said}.*nothing is timed"):
        benchmark_train.check_gradients("rfa", model, task, options, CPU)


def test_memory_is_that_of_a_process_of_its_own():
    """A process inherits the peak of the one that starts it, which must not be taken for its own."""
    ballast = bytearray(600_000_000)
    own_peak = benchmark_memory.resident_bytes("VmHWM")
    assert own_peak > len(ballast)
    del ballast
    peak = benchmark_memory.peak_memory(options_of("decode"), "rfa", 4)
    assert 0 <= peak["increase"] < peak["total"] < own_peak


def test_a_step_of_training_is_weighed():
    peak = benchmark_memory.measure_here(options_of("train", "--tokens", "4", "--threads", "1"), "baseline", 4)
    assert peak["total"] > peak["increase"] >= 0


@pytest.mark.parametrize("messages, said", [("a\nno memory\n", "no memory"), ("", "it ended with -9")])
def test_a_process_that_fails_is_said_in_one_line(monkeypatch, messages, said):
    failed = SimpleNamespace(returncode=-9, stdout="", stderr=messages)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=f"memory of rfa at length 4: {said}; use .*--no-memory$"):
        benchmark_memory.peak_memory(Namespace(command="train", out=None), "rfa", 4)
