"""What kernel_study measures: against loops over pairs, with padding, on the attention of a trained model."""

import math

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_rfa.functional.oprf_constants import best_a
from fairseq_rfa.functional.random_matrices import draw_phases, draw_pool
from fairseq_rfa.kernel_study import errors as kernel_errors
from fairseq_rfa.kernel_study import inputs as kernel_inputs
from fairseq_rfa.kernel_study.errors import KERNELS, Points
from helpers import random_tensor

FLOOR = 0.1


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


def features_of(name, x, w, b):
    """The formulas of the maps, for one vector."""
    number = len(w)
    products = [dot(row, x) for row in w]
    if name == "gaussian":
        return [f(p) / math.sqrt(number) for f in (math.sin, math.cos) for p in products]
    if name == "cosine":
        return [math.sqrt(2 / number) * math.cos(p + phase) for p, phase in zip(products, b)]
    if name == "arccos":
        return [max(p, 0) / math.sqrt(number) for p in products]
    if name == "oprf":
        stretch = 1 - 4 * b
        squares = [b * dot(row, row) for row in w]
        exponents = [s + math.sqrt(stretch) * p - dot(x, x) / 2 for s, p in zip(squares, products)]
        return [stretch ** (len(x) / 4) * math.exp(exponent) / math.sqrt(number) for exponent in exponents]
    return [math.exp(p - dot(x, x) / 2) / math.sqrt(number) for p in products]


def constants_of(queries, keys):
    """ψ and A of oprf, from the mean of ‖q∘ψ + k/ψ‖² over all pairs."""
    of_q, of_k = ([sum(x[i] ** 2 for x in y) / len(y) for i in range(len(y[0]))] for y in (queries, keys))
    psi = [(k / q) ** 0.25 for q, k in zip(of_q, of_k)]
    sums = [[q * p + k / p for q, k, p in zip(x, y, psi)] for x in queries for y in keys]
    return psi, best_a(torch.tensor(sum(dot(x, x) for x in sums) / len(sums)), len(psi)).item()


def kernel_of(name, x, y, unnormalized):
    if name == "arccos":
        lengths = math.sqrt(dot(x, x) * dot(y, y))
        angle = math.acos(dot(x, y) / lengths)
        return lengths * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi)
    if name in ("positive", "oprf") or unnormalized:
        return math.exp(dot(x, y))
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y)) / 2)


def attend(scores, values, floor):
    """Weights and outputs of rows of scores."""
    weights = [[score / max(sum(row), floor) for score in row] for row in scores]
    outputs = [[dot(row, column) for column in zip(*values)] for row in weights]
    return weights, outputs


def relative(estimates, truths):
    pairs = [(a, b) for head in zip(estimates, truths) for rows in zip(*head) for a, b in zip(*rows)]
    return math.sqrt(sum((a - b) ** 2 for a, b in pairs) / sum(b**2 for _, b in pairs))


def slow_errors(name, points, v, w, b):
    """The three errors pair by pair; w (H, D, d) without σ, b (H, D)."""
    estimates, truths = ([], [], []), ([], [], [])
    for head in range(w.size(0)):
        sigma = points.sigma[head, 0].tolist()

        def scaled(x, sigma=sigma):
            length = 1.0 if points.unnormalized else math.sqrt(dot(x, x))
            return [s * a / length for s, a in zip(sigma, x)]

        queries, keys = ([scaled(x) for x in y[0, head].tolist()] for y in (points.query, points.key))
        values, rows, phases = (x.tolist() for x in (v[0, head], w[head], b[head]))
        truth = [[kernel_of(name, x, y, points.unnormalized) for y in keys] for x in queries]
        if name == "oprf":
            psi, phases = constants_of(queries, keys)
            queries = [[a * p for a, p in zip(x, psi)] for x in queries]
            keys = [[a / p for a, p in zip(x, psi)] for x in keys]
        phi_q, phi_k = ([features_of(name, x, rows, phases) for x in y] for y in (queries, keys))
        scores = [[dot(x, y) for y in phi_k] for x in phi_q]
        kernel = scores
        if points.unnormalized and name in ("gaussian", "cosine"):
            halves = [[dot(x, x) / 2 for x in y] for y in (queries, keys)]
            kernel = [
                [score * math.exp(a + b) for score, b in zip(row, halves[1])]
                for row, a in zip(scores, halves[0])
            ]
            greatest = max(halves[1])
            scores = [[s * math.exp(b - greatest) for s, b in zip(row, halves[1])] for row in scores]
        floor = 0.0 if name in ("positive", "oprf") else FLOOR
        for found, entry in zip(estimates, (kernel, *attend(scores, values, floor))):
            found.append(entry)
        for found, entry in zip(truths, (truth, *attend(truth, values, 0.0))):
            found.append(entry)
    return [relative(*pair) for pair in zip(estimates, truths)]


def make_points(unnormalized=False):
    query, key = random_tensor(1, 2, 3, 4, seed=1), random_tensor(1, 2, 5, 4, seed=2)
    sigma = 1 + 0.3 * random_tensor(2, 1, 4, seed=3).tanh()
    query, key, sigma = (x.float() for x in (query, key, sigma))
    return Points(query, key, sigma, unnormalized=unnormalized)


def fast_errors(name, points, v, number, seed, orthogonal):
    directions = kernel_errors.draw_directions(name, points, number, seed, orthogonal)
    estimate = kernel_errors.estimated(name, points, v, directions, FLOOR)
    return kernel_errors.errors(estimate, kernel_errors.exact(name, points, v))


@pytest.mark.parametrize("unnormalized", [False, True])
@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_errors_are_those_of_loops_over_pairs(name, orthogonal, unnormalized):
    points, v = make_points(unnormalized), random_tensor(1, 2, 5, 4, seed=4).float()
    w, b = draw_pool(2, 6, 4, 9, orthogonal), draw_phases(2, 6, 9)
    expected = slow_errors(name, points, v, w, b)
    found = fast_errors(name, points, v, 6, 9, orthogonal)
    # Features are float32, with sums of few terms.
    assert list(found) == pytest.approx(expected, rel=1e-4)


def test_uniform_attention_is_the_mean_over_keys():
    points, v = make_points(), random_tensor(1, 2, 5, 4, seed=4).float()
    found = kernel_errors.uniform(points, v)
    assert found.kernel is None
    assert torch.allclose(found.attention, torch.full((1, 2, 3, 5), 0.2, dtype=torch.float64))
    assert torch.allclose(found.output, v.double().mean(2, keepdim=True).expand_as(found.output))


@pytest.mark.parametrize("unnormalized", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_padding_changes_no_error(name, unnormalized):
    points, v = make_points(unnormalized), random_tensor(1, 2, 5, 4, seed=4).float()

    def padded(x):
        return torch.cat([x, torch.full_like(x[:, :, :1], 7.0)], dim=2)

    query, key = padded(points.query), padded(points.key)
    masks = [(torch.arange(x.size(2)) == x.size(2) - 1)[None, None] for x in (query, key)]
    longer = Points(query, key, points.sigma, *masks, unnormalized)
    expected = list(fast_errors(name, points, v, 6, 9, False))
    assert list(fast_errors(name, longer, padded(v), 6, 9, False)) == pytest.approx(expected, rel=1e-5)
    of_uniform = [
        kernel_errors.errors(kernel_errors.uniform(p, x), kernel_errors.exact(name, p, x))[1:]
        for p, x in ((points, v), (longer, padded(v)))
    ]
    assert of_uniform[1] == pytest.approx(of_uniform[0])


@pytest.mark.parametrize("name", ["positive", "oprf"])
def test_positive_features_do_not_overflow(name):
    points = make_points()._replace(sigma=torch.full((2, 1, 4), 12.0))
    v = random_tensor(1, 2, 5, 4, seed=4).float()
    assert all(math.isfinite(error) for error in fast_errors(name, points, v, 64, 1, False))


def test_a_clustered_query_is_near_its_key_and_its_cluster():
    points = kernel_inputs.clustered_points(1, 128, 64)
    cosines = (points.query @ points.key.transpose(-1, -2))[0, 0]
    # 1/√1.25 with its own key; with the others of the cluster (1/√1.25)³ = 0.72, for noise was added three times.
    assert cosines.amax(-1).mean() == pytest.approx(0.9, abs=0.05)
    cluster = cosines > 0.45
    assert cluster.float().mean() == pytest.approx(1 / kernel_inputs.NUM_CLUSTERS, abs=0.04)
    assert cosines[cluster].mean() == pytest.approx(0.72, abs=0.05)


def test_collected_queries_and_keys_give_the_attention_of_the_model(checkpoint, data):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    found, number = kernel_inputs.trained_points(checkpoint, data, "test", 5, torch.device("cpu"))
    points = found["layer 1 cross"]
    task.load_dataset("test")
    dataset, module = task.dataset("test"), model.eval().decoder.layers[1].encoder_attn
    v = torch.zeros_like(points.key)
    with torch.no_grad():
        weights = kernel_errors.estimated("gaussian", points, v, module.directions(), FLOOR).attention
        batches = [dataset.collater([dataset[i]])["net_input"] for i in range(number)]
        expected = [model(**batch)[1]["attn"][0][0] for batch in batches]
    assert number == 5
    for row, single in zip(weights.mean(1), expected):
        length, source_length = single.shape
        assert torch.allclose(row[:length, :source_length], single, atol=1e-5)
        assert row[length:].eq(0).all() and row[:, source_length:].eq(0).all()
