"""TensorBoard's files of a training: which scalars, at which updates, and when there are none."""

import copy
import math
import pickle
from argparse import Namespace

import pytest
import torch
from fairseq.logging import progress_bar
from omegaconf import OmegaConf

from fairseq_rfa import TransformerRFAConfig, average_checkpoints
from fairseq_rfa.attention.base import RandomFeatureAttention
from fairseq_rfa.model import monitoring
from monitored_training import INTERVAL, scalars, steps, train
from tiny_data import build, generate_here, make_batch, parse, results, train_here

SHARE = "share_of_denominators_at_floor"
CAUSAL = {f"causal_layer_{layer}/{name}" for layer in (0, 1) for name in (SHARE, "mean_sigma")}
CROSS = {name.replace("causal", "cross") for name in CAUSAL}
GATES = {f"causal_layer_{layer}/mean_gate" for layer in (0, 1)}


@pytest.fixture(scope="module")
def training(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitored")
    train(data, folder)
    return folder


def test_scalars_of_a_training(training):
    found = scalars(training / "tensorboard")
    assert found.keys() == CAUSAL | CROSS | GATES
    for name, values in found.items():
        assert [step for step, _ in values] == [2, 4], name
        assert all(math.isfinite(value) for _, value in values)
        if "sigma" not in name:
            assert all(0 <= value <= 1 for _, value in values)
    for name in GATES:
        assert all(0.5 < value < 1 for _, value in found[name])  # it starts at sigmoid(2)
    first, later = (value for _, value in found["causal_layer_0/mean_sigma"])
    assert first == pytest.approx(1, abs=0.1) and first != later


def test_training_is_the_same_without_monitor(data, training, tmp_path):
    path = train(data, tmp_path, "--no-rfa-monitor")
    assert not (tmp_path / "tensorboard" / "rfa").exists()
    found, expected = (
        torch.load(p, weights_only=True)["model"]
        for p in (path, training / "checkpoint_last.pt")
    )
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_a_resumed_training_continues_its_curves(data, tmp_path):
    for updates in ("3", "6"):
        train(data, tmp_path, "--max-update", updates)
    assert steps(tmp_path / "tensorboard") == [2, 4, 6]


def test_nothing_is_written_without_a_folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_here(data, "run", "--max-update", "2", "--log-interval", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_decoded_checkpoint_writes_nothing(data, training):
    before = sorted(training.rglob("*"))
    assert len(results(generate_here(data, training / "checkpoint_last.pt"))) == 8
    assert sorted(training.rglob("*")) == before


def monitored(data, folder, *flags, interval=INTERVAL):
    flags = ("--tensorboard-logdir", str(folder), "--log-interval", str(interval), *flags)
    return build(data, "--dropout", "0", *flags).train()


def forward(model, task, *targets):
    return model(**make_batch(task, ["a"] * len(targets), targets))[0]


@pytest.mark.parametrize(
    "places, expected",
    [
        (["--causal-attention", "softmax"], CROSS),
        (["--cross-attention", "softmax"], CAUSAL),
        (["--causal-attention", "softmax", "--cross-attention", "softmax"], None),
    ],
)
def test_softmax_has_no_scalars(data, task, tmp_path, places, expected):
    model = monitored(data, tmp_path, *places, interval=1)
    for update in range(2):
        model.set_num_updates(update)
        forward(model, task, "A B", "C")
    if expected is None:
        assert list(tmp_path.iterdir()) == []
    else:
        assert scalars(tmp_path).keys() == expected


def test_steps_are_updates(data, task, tmp_path):
    """Several batches for an update, updates that overflow and are tried again, validation, the last update."""
    model = monitored(data, tmp_path)
    for update in (0, 0, 1, 1, 1, 2, 2, 3, 4, 5):
        model.set_num_updates(update)
        forward(model.train(), task, "A B")
        if update == 3:
            model.eval()
            forward(model, task, "A B")
    model.eval()
    assert steps(tmp_path) == [2, 4, 6]


def test_values_are_those_since_the_last_writing(data, task, tmp_path):
    model = monitored(data, tmp_path)
    sigma = model.decoder.layers[0].self_attn.sigma
    for update, value in enumerate((1.0, 2.0, 5.0, 7.0)):
        model.set_num_updates(update)
        sigma.data.fill_(value)
        forward(model, task, "A B")
    model.set_num_updates(4)
    assert scalars(tmp_path)["causal_layer_0/mean_sigma"] == [(2, 1.5), (4, 6.0)]


def test_recomputed_activations_count_once(data, task, tmp_path):
    model = monitored(data, tmp_path, "--checkpoint-activations")
    forward(model, task, "A B C", "A").sum().backward()
    heads, positions = 4, 4 + 2
    total, number = model.monitor.sites["causal_layer_0"].sums[SHARE]
    assert number == heads * positions


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_not_watched(data, task, tmp_path, duplicate):
    model = monitored(data, tmp_path, interval=1)
    model.set_num_updates(0)
    forward(model, task, "A")
    model.set_num_updates(1)
    assert model.monitor.writer is not None
    twin = duplicate(model)
    assert twin.monitor is None and model.monitor is not None
    attentions = [x for x in twin.modules() if isinstance(x, RandomFeatureAttention)]
    assert len(attentions) == 4 and all(x.observations is None for x in attentions)
    forward(twin, task, "A")
    twin.set_num_updates(2)
    twin.eval()
    assert steps(tmp_path) == [1]


def test_a_checkpoint_holds_nothing_of_it(data, tmp_path):
    assert monitored(data, tmp_path).state_dict().keys() == build(data).state_dict().keys()


@pytest.mark.parametrize(
    "flags, is_monitored",
    [
        ([], False),
        (["--tensorboard-logdir", ""], False),
        (["--tensorboard-logdir", "DIR"], True),
        (["--tensorboard-logdir", "DIR", "--rfa-monitor"], True),
        (["--tensorboard-logdir", "DIR", "--no-rfa-monitor"], False),
        (["--tensorboard-logdir", "DIR", "--tpu"], False),
        (["--tensorboard-logdir", "DIR", "--tpu", "--rfa-monitor"], True),
        (["--tensorboard-logdir", "DIR", "--bf16", "--cpu"], True),
    ],
)
def test_who_is_monitored(data, tmp_path, flags, is_monitored):
    model = build(data, *(flag.replace("DIR", str(tmp_path)) for flag in flags))
    assert (model.monitor is not None) == is_monitored
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [None, "DIR"])
def test_options_of_a_configuration_file(data, task, folder):
    common = {"tensorboard_logdir": folder, "log_interval": 7, "tpu": False}
    model = {"_name": "transformer_rfa_tiny", "decoder_layers": 1}
    config = OmegaConf.create({"common": common, "model": model})
    OmegaConf.set_struct(config, True)
    monitor = task.build_model(config.model).monitor
    if folder is None:
        assert monitor is None
    else:
        assert (monitor.folder, monitor.interval) == ("DIR/rfa", 7)


def test_a_configuration_of_the_model_alone(task):
    config = OmegaConf.create({"_name": "transformer_rfa_tiny", "decoder_layers": 1})
    assert task.build_model(config).monitor is None


def test_other_workers_are_not_monitored(data, tmp_path, monkeypatch):
    monkeypatch.setattr(monitoring, "get_global_rank", lambda: 1)
    assert monitored(data, tmp_path, "--rfa-monitor").monitor is None


def test_without_tensorboard(data, tmp_path, monkeypatch):
    """As where nothing can be imported that writes for it."""
    monkeypatch.setattr(progress_bar, "SummaryWriter", None)
    assert monitored(data, tmp_path).monitor is None
    with pytest.raises(ValueError, match="^--rfa-monitor needs TensorBoard; run: pip install tensorboard$"):
        parse(data, "--rfa-monitor", "--tensorboard-logdir", str(tmp_path))


def test_no_folder_is_refused(data):
    with pytest.raises(ValueError, match="^--rfa-monitor .* use it with --tensorboard-logdir FOLDER$"):
        build(data, "--rfa-monitor")


@pytest.mark.parametrize("value", ["yes", 1])
def test_wrong_type_is_refused(value):
    config = TransformerRFAConfig.from_namespace(Namespace(rfa_monitor=value))
    with pytest.raises(ValueError, match=f"--rfa-monitor is {value!r}; use "):
        config.validate()


def test_checkpoints_of_monitored_and_other_updates_are_averaged(training, tmp_path):
    path = training / "checkpoint_last.pt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["cfg"]["model"].rfa_monitor = False
    torch.save(checkpoint, tmp_path / "other.pt")
    average = average_checkpoints.average_checkpoints([str(path), str(tmp_path / "other.pt")])
    assert average["model"].keys() == checkpoint["model"].keys()
