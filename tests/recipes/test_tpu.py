"""What needs torch_xla, and what recipes/tpu-check.sh makes of its findings."""

import copy
import os

import pytest
import torch

from fairseq_rfa.functional.encoding import FEATURE_MAPS
from scripts import refused
from tiny_data import build, make_batch
from tpu import verdict as tpu_verdict

RUN = {
    "resumed_epoch": None,
    "resumed_updates": 0,
    "compilations": {"1": 14, "2": 15, "3": 15},
    "left_to_the_cpu": [],
}
RESUMED = {**RUN, "resumed_epoch": 4, "resumed_updates": 12, "compilations": {"4": 13, "5": 14, "6": 14}}
OUTPUT = "S-0\ta\nH-0\t-1.5\tA\nS-1\tb\nH-1\t-0.25\tB\n"


def problems(first=None, second=None, output=OUTPUT):
    first, second = {**RUN, **(first or {})}, {**RESUMED, **(second or {})}
    return "\n".join(tpu_verdict.problems(first, second, output, sentences=2))


def test_nothing_is_wrong():
    assert problems() == ""


@pytest.mark.parametrize("run", ["first", "second"])
def test_compilations_after_the_second_epoch(run):
    found = problems(**{run: {"compilations": {"9": 14, "10": 15, "11": 16}}})
    assert "compiles again" in found and "[14, 15, 16]" in found


@pytest.mark.parametrize("run", ["first", "second"])
def test_what_is_left_to_the_cpu(run):
    assert "to the CPU: aten::median" in problems(**{run: {"left_to_the_cpu": ["aten::median"]}})


def test_a_training_of_two_epochs_shows_nothing():
    assert "too few" in problems(first={"compilations": {"1": 14, "2": 14}})


def test_a_training_that_did_not_resume():
    assert "did not resume" in problems(second={"resumed_updates": 0})


@pytest.mark.parametrize("output", ["", "H-0\t-1.5\tA\n", OUTPUT.replace("-1.5", "nan")])
def test_translations_that_are_missing_or_no_numbers(output):
    assert "translations for 2 sentences" in problems(output=output)


def test_a_device_that_is_none():
    assert "'gpu' is not cpu or tpu" in refused("recipes/tpu-check.sh", "--device", "gpu")


def test_flags_that_the_script_sets():
    assert "'--tpu'" in refused("recipes/tpu-check.sh", "--", "--tpu")


@pytest.fixture
def xla():
    """torch_xla on whichever device it finds, else on its CPU."""
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    return pytest.importorskip("torch_xla")


def steps(model, batches, xla=None):
    """One update for each batch; with torch_xla also the number of compilations after each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compilations = []
    for batch in batches:
        optimizer.zero_grad()
        model(**batch)[0].float().pow(2).mean().backward()
        optimizer.step()
        if xla is not None:
            xla.sync()
            data = xla.debug.metrics.metric_data("CompileTime")
            compilations.append(data[0] if data else 0)
    return compilations


def two_shapes(task):
    short, long = ["a b", "c"], ["a b c d e f", "c d"]
    return [make_batch(task, *pair) for pair in ((short, short), (long, short), (short, long))]


OPTIONS = [
    *(("--rfa-feature-map", name) for name in FEATURE_MAPS),
    ("--rfa-gate", "--rfa-chunk-size", "2"),
    ("--rfa-local-window", "2", "--rfa-gate"),
    ("--rfa-unnormalized",),
]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_training_on_xla_is_training_on_the_cpu(data, task, xla, options):
    import torch_xla.debug.metrics as metrics

    metrics.clear_all()
    expected = build(data, *options, "--dropout", "0").train()
    model = copy.deepcopy(expected).to("xla")
    batches = two_shapes(task)
    steps(expected, batches)
    steps(model, [{name: x.to("xla") for name, x in batch.items()} for batch in batches], xla)
    assert metrics.executed_fallback_ops() == []
    for (name, x), y in zip(model.named_parameters(), expected.parameters()):
        assert torch.allclose(x.cpu(), y, rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("draws", [(), ("--no-rfa-fixed-matrices",)], ids=["fixed", "draws"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_each_shape_is_compiled_once(data, task, xla, draws, precision):
    """Neither the rows that are drawn nor the place of the padding are part of what is compiled."""
    model = build(data, *draws, "--dropout", "0.1").to(precision).train().to("xla")
    batches = two_shapes(task)
    batches.append(make_batch(task, ["a b", "c d"], ["a b", "c d"]))  # the first shape, without padding
    batches = [{name: x.to("xla") for name, x in batch.items()} for batch in batches]
    counts = steps(model, 4 * batches, xla)
    # The first pass compiles each shape; in the second the parameters come from a step and not from the host.
    assert counts[2 * len(batches)] == counts[-1] and counts[0] > 0


def test_draws_on_xla_differ_from_step_to_step(data, xla):
    pool = build(data, "--no-rfa-fixed-matrices").decoder.layers[0].self_attn.pool.to("xla")
    rows = torch.stack([pool.draw_rows(4).cpu() for _ in range(20)])
    assert rows.unique(dim=0).size(0) > 10
    assert rows.min() >= 0 and rows.max() < 20
