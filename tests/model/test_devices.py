import argparse
import sys

import pytest

from fairseq_rfa.model import devices
from tiny_data import parse


@pytest.fixture
def no_torchrun(monkeypatch):
    for name in devices.TORCHRUN:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def torchrun(monkeypatch):
    def start(rank, workers):
        values = str(rank), str(workers), "127.0.0.1", "29500"
        for name, value in zip(devices.TORCHRUN, values):
            monkeypatch.setenv(name, value)

    return start


@pytest.fixture
def with_torch_xla(monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: object())


@pytest.fixture
def without_torch_xla(monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None)


def test_bf16_on_the_cpu_asks_for_no_tpu(data, with_torch_xla):
    args = parse(data, "--bf16", "--cpu")
    assert args.bf16 and not args.tpu


def test_bf16_without_torch_xla_asks_for_no_tpu(data, without_torch_xla, caplog):
    caplog.set_level("INFO")
    args = parse(data, "--bf16")
    assert args.bf16 and not args.tpu
    assert "torch_xla is not installed" in caplog.text


def test_bf16_with_torch_xla_is_for_a_tpu(data, with_torch_xla):
    assert parse(data, "--bf16").tpu


def called_with(monkeypatch, data, *flags):
    """The options of fairseq-train, called by a user."""
    monkeypatch.setattr(sys, "argv", ["fairseq-train", *flags])
    return parse(data, *flags)


@pytest.mark.parametrize("more", [(), ("--bf16",), ("--memory-efficient-bf16",)], ids=" ".join)
def test_a_tpu_is_asked_for_by_its_flag(data, with_torch_xla, monkeypatch, more):
    assert called_with(monkeypatch, data, "--tpu", *more).tpu


@pytest.mark.parametrize("more", [(), ("--bf16",), ("--memory-efficient-bf16",)], ids=" ".join)
def test_a_tpu_without_torch_xla_is_refused(data, without_torch_xla, monkeypatch, more):
    with pytest.raises(ValueError, match="--tpu needs torch_xla.*tpu-check.sh makes one.*leave --tpu away"):
        called_with(monkeypatch, data, "--tpu", *more)
    assert not called_with(monkeypatch, data, "--bf16").tpu


@pytest.mark.parametrize("more", [(), ("--bf16",)], ids=" ".join)
def test_a_tpu_and_the_cpu_are_refused(data, with_torch_xla, monkeypatch, more):
    with pytest.raises(ValueError, match="--tpu and --cpu are two devices; leave one"):
        called_with(monkeypatch, data, "--tpu", "--cpu", *more)


def test_torchrun_on_the_cpu(data, torchrun):
    torchrun(rank=1, workers=2)
    args = parse(data, "--cpu")
    assert (args.distributed_rank, args.distributed_world_size) == (1, 2)
    assert args.distributed_init_method == "env://" and args.distributed_no_spawn
    assert (args.distributed_backend, args.ddp_backend) == ("gloo", "legacy_ddp")
    assert args.load_checkpoint_on_all_dp_ranks


def test_torchrun_with_gpus_leaves_the_rest_to_fairseq(data, torchrun):
    torchrun(rank=1, workers=2)
    args = parse(data)
    assert args.distributed_world_size == 2
    assert args.distributed_init_method is None and args.ddp_backend == "pytorch_ddp"


def test_torchrun_with_one_process(data, torchrun):
    torchrun(rank=0, workers=1)
    args = parse(data, "--cpu")
    assert args.distributed_world_size == 1 and args.distributed_init_method is None


def test_what_is_said_by_flags_stays(data, torchrun):
    torchrun(rank=1, workers=2)
    place = "--distributed-init-method", "tcp://localhost:29500", "--distributed-no-spawn"
    args = parse(data, "--cpu", *place, "--distributed-world-size", "3", "--distributed-rank", "2")
    assert (args.distributed_rank, args.distributed_world_size) == (2, 3)
    assert args.distributed_init_method == "tcp://localhost:29500"


def test_fairseq_starts_no_workers_on_cpus(data, no_torchrun):
    with pytest.raises(ValueError, match="--distributed-world-size is 2.*torchrun --nproc_per_node 2"):
        parse(data, "--cpu", "--distributed-world-size", "2")
    assert parse(data, "--distributed-world-size", "2").distributed_world_size == 2


def test_fairseq_starts_no_workers_on_tpus(data, no_torchrun):
    with pytest.raises(ValueError, match="--distributed-world-size is 8.*--tpu use 1"):
        parse(data, "--tpu", "--distributed-world-size", "8")


def test_options_of_a_checkpoint_stay(without_torch_xla):
    args = argparse.Namespace(_name="transformer_rfa", tpu=True, bf16=True, distributed_world_size=1)
    devices.settle_devices(args)
    assert args.tpu
