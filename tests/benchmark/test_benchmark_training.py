"""What benchmark times as a step of training is one: forward, backward and the optimiser's step."""

import copy

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch.optim.optimizer import register_optimizer_step_post_hook

from fairseq_rfa.benchmark import train
from fairseq_rfa.benchmark.models import MODELS, make_task
from fairseq_rfa.benchmark.options import parse_arguments

CPU = torch.device("cpu")
SMALL = ["--vocabulary", "50", "--repeats", "2", "--arch", "transformer_rfa_tiny_gate", "--tokens", "8", "--no-memory"]
each_model = pytest.mark.parametrize("name", MODELS)


def options_of(*arguments):
    return parse_arguments(["train", "--lengths", "4", *SMALL, *arguments], description=None)


@pytest.fixture(scope="module")
def task():
    return make_task(50)


@pytest.fixture
def steps():
    """The optimisers, once for each step."""
    optimizers = []
    handle = register_optimizer_step_post_hook(lambda optimizer, *of_step: optimizers.append(optimizer))
    yield optimizers
    handle.remove()


def parameters_of(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def weights_at(start, parameters):
    """Names of the weights that are where they were. A bias of softmax's keys has no gradient but rounding."""
    return [key for key in start if key.endswith("weight") and torch.equal(start[key], parameters[key])]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@each_model
def test_steps_move_the_parameters_as_adam_does(task, name, precision):
    options = options_of("--precision", precision)
    model = train.trainable_model(options, name, task, CPU)
    twin, start = copy.deepcopy(model), parameters_of(model)
    step = train.step_of(model, task, options, 4, CPU)
    torch.manual_seed(5)
    for _ in range(2):
        step()

    criterion = LabelSmoothedCrossEntropyCriterion(task, False, train.LABEL_SMOOTHING)
    optimizer = torch.optim.Adam(twin.parameters(), lr=train.LEARNING_RATE)
    sample = train.training_batch(task, options, 4, CPU)
    torch.manual_seed(5)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            loss, size, _ = criterion(twin, sample)
        (loss / size).backward()
        optimizer.step()

    found, expected = parameters_of(model), parameters_of(twin)
    for key in expected:
        # Two steps of Adam are 2e-4 in each entry.
        assert torch.allclose(found[key], expected[key], rtol=0, atol=1e-6), key
    assert weights_at(start, found) == []


@each_model
def test_the_step_that_is_weighed_moves_every_weight(monkeypatch, name):
    built = []
    build = train.trainable_model
    monkeypatch.setattr(train, "trainable_model", lambda *arguments: built.append(build(*arguments)) or built[0])
    step = train.prepare(options_of(), name, 4, CPU)
    start = parameters_of(built[0])
    step()
    assert weights_at(start, parameters_of(built[0])) == []


def test_every_run_of_a_measurement_is_a_step(steps):
    options = options_of("--lengths", "4", "6")
    models, task, _ = train.check(options, CPU)
    assert not steps
    train.measure(models, task, options, CPU, advance=lambda text: None)
    assert len(steps) == train.num_runs(options) == 2 * len(MODELS) * (train.WARM_UP_STEPS + 2)
