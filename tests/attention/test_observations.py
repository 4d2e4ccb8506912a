"""What an attention in training reports, by hand; and that nobody notices."""

import pytest
import torch

from fairseq_rfa.attention import base as attention_base
from fairseq_rfa.attention.observations import Observations
from helpers import (
    call,
    each_module,
    make_causal,
    make_cross,
    make_gated,
    padding_mask,
    random_tensor,
    shares,
)

LENGTH = 10
SHARE = "share_of_denominators_at_floor"
MAKERS = {"causal": make_causal, "gated": make_gated}


def watched(module):
    module.observations = Observations()
    return module.train()


def set_floor(module, denominators):
    """Three of ten denominators are at the floor, and none is so near that rounding decides."""
    module.floor = denominators.flatten().quantile(0.3, interpolation="midpoint").item()
    assert module.floor > 0


def causal_denominators(module, query, padding):
    """(B, H, N), from one weight for each pair of positions, and the gates."""
    gate_logits = None
    if module.gate_proj is not None:
        gate_logits = module.gate_proj(query).permute(1, 2, 0)
    directions = module.directions()
    q = module.encode(module.q_proj(query), directions, "query", with_point=True)
    k = module.encode(module.k_proj(query), directions, "key", with_point=True)
    weights = q.phi @ k.phi.transpose(-1, -2)
    if module.local_window:
        distance = torch.arange(LENGTH).unsqueeze(1) - torch.arange(LENGTH)
        exact = module.feature_map.kernel(q.point, k.point)
        weights = torch.where(distance < module.local_window, exact, weights)
    weights = weights * shares(k.phi, gate_logits, padding)
    return weights.sum(-1), None if gate_logits is None else torch.sigmoid(gate_logits)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@torch.no_grad()
def test_causal(make, window, padding):
    module = make(local_window=window, chunk_size=4, fixed_matrices=True)
    query, padding = random_tensor(LENGTH, 2, 32), padding_mask(padding, LENGTH)
    kept = torch.ones(2, LENGTH).bool() if padding is None else ~padding
    kept = kept.unsqueeze(1).expand(-1, module.num_heads, -1)
    denominators, gates = causal_denominators(module, query, padding)
    set_floor(module, denominators[kept])
    with torch.enable_grad():
        watched(module)(query, key_padding_mask=padding)
    means = module.observations.take_means()
    expected = {
        SHARE: (denominators[kept] <= module.floor).double().mean().item(),
        "mean_sigma": module.sigma.mean().item(),
    }
    assert expected[SHARE] == pytest.approx(0.3, abs=0.02)
    if gates is not None:
        expected["mean_gate"] = gates[kept].mean().item()
    assert means == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("entries", [1, attention_base.GROUP_ENTRIES], ids=["row by row", "together"])
@pytest.mark.parametrize("source_length", [2, 200], ids=["pairs", "sums"])
@torch.no_grad()
def test_cross(monkeypatch, source_length, entries):
    monkeypatch.setattr(attention_base, "GROUP_ENTRIES", entries)
    module = make_cross(fixed_matrices=True)
    query, key = random_tensor(LENGTH, 3, 32), random_tensor(source_length, 3, 24, seed=2)
    padding = padding_mask("right", source_length, batch=3)
    directions = module.directions()
    phi_q = module.encode(module.q_proj(query), directions, "query").phi
    phi_k = module.encode(module.k_proj(key), directions, "key", padding).phi
    denominators = (phi_q @ phi_k.transpose(-1, -2)).sum(-1)
    set_floor(module, denominators)
    with torch.enable_grad():
        watched(module)(query, key, key, key_padding_mask=padding, need_weights=False)
    assert module.observations.take_means() == pytest.approx(
        {
            SHARE: (denominators <= module.floor).double().mean().item(),
            "mean_sigma": module.sigma.mean().item(),
        },
        rel=1e-9,
    )


def test_calls_count_by_their_denominators():
    observations, sigma = Observations(), torch.ones(2, 4)
    at_floor = torch.zeros(1, 2, 3, dtype=torch.bool)
    at_floor[0, 0, 0] = True
    observations.observe(sigma, None, None, at_floor)
    padding = torch.tensor([[False, True, False, True]])
    observations.observe(3 * sigma, None, padding, torch.ones(1, 2, 4, dtype=torch.bool))
    assert observations.take_means() == {SHARE: (1 + 4) / (6 + 4), "mean_sigma": 2.0}
    assert observations.take_means() == {}


def test_a_batch_of_padding_has_no_share():
    observations = Observations()
    at_floor, padding = torch.ones(1, 2, 3, dtype=torch.bool), torch.ones(1, 3, dtype=torch.bool)
    observations.observe(torch.ones(2, 4), torch.full((1, 2, 3), float("inf")), padding, at_floor)
    assert observations.take_means() == {"mean_sigma": 1.0}


def outputs_and_gradients(module):
    torch.manual_seed(1)
    out = call(module)
    module.zero_grad()
    out.square().sum().backward()
    return [out.detach(), *(parameter.grad for parameter in module.parameters())]


def make_window(**options):
    return make_gated(local_window=3, chunk_size=4, **options)


@pytest.mark.parametrize("feature_map", ["gaussian", "positive"])
@pytest.mark.parametrize("make", [make_causal, make_gated, make_cross, make_window])
def test_observing_changes_no_bit(make, feature_map):
    module = make(feature_map=feature_map).train()
    expected = outputs_and_gradients(module)
    found = outputs_and_gradients(watched(module))
    assert module.observations.sums
    for x, y in zip(found, expected, strict=True):
        assert (x is None and y is None) or torch.equal(x, y)


@each_module
def test_only_training_is_observed(make):
    module = watched(make())
    call(module.eval())
    with torch.no_grad():
        call(module)
        call(module.train())
    assert not module.observations.sums
