"""The whole model with every feature map and option: its pools, checkpoints, training to translation."""

import logging

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble

from tiny_data import SMALL, build, generate_here, make_batch, parse, results, train_here
from variants import FLAGS

SOURCES = ["a b c d e f g h a", "b", "c a d", "e e f h a", "h", "d d d d d d"]
TARGETS = ["A B C D E F G", "H H A B C D E", "A", "C D", "B", "A A A"]


def logits(model, batch):
    with torch.no_grad():
        return model(**batch)[0]


def batch_of(task):
    return make_batch(task, SOURCES, TARGETS, padding=2)


@pytest.fixture(params=FLAGS)
def flags(request):
    return request.param.split()


@pytest.fixture
def model(data, flags):
    return build(data, *flags)


def test_training_changes_no_matrix_and_no_phase(model, task):
    """Not even weight decay does."""
    buffers = {name: x.clone() for name, x in model.named_buffers() if "pool" in name}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
    model.train()(**batch_of(task))[0].log_softmax(-1)[..., 4].sum().backward()
    optimizer.step()
    after = dict(model.named_buffers())
    assert all(torch.equal(after[name], x) for name, x in buffers.items())
    assert logits(model.eval(), batch_of(task)).isfinite().all()


def test_state_dict_is_all_there_is_to_a_model(data, task, model, flags):
    saved = model.state_dict()
    assert not [name for name in saved if "pool" in name or "phase" in name or "matri" in name]
    assert {x.device.type for x in saved.values()} == {"cpu"}
    other = build(data, *flags, seed=9)
    other.load_state_dict(saved)
    assert torch.equal(logits(other, batch_of(task)), logits(model, batch_of(task)))


def test_pools_are_built_as_the_map_needs_them(model):
    cfg = model.cfg
    for layer in model.decoder.layers:
        for attention in (layer.self_attn, layer.encoder_attn):
            assert attention.unnormalized == cfg.rfa_unnormalized
            if cfg.rfa_feature_map == "elu":
                assert attention.pool is None
                continue
            assert (attention.pool.phases is not None) == (cfg.rfa_feature_map == "cosine")
            rows = attention.pool.matrices[0, :8]
            products = rows @ rows.T
            off_diagonal = products - products.diagonal().diag()
            assert (off_diagonal.abs().max() < 1e-4) == cfg.rfa_orthogonal
        window = layer.self_attn.local_window
        assert window == cfg.rfa_local_window


# Every map but that of the checkpoint, with every further option.
OVERRIDES = [
    {"rfa_feature_map": "arccos"},
    {"rfa_feature_map": "elu"},
    {"rfa_feature_map": "positive", "rfa_local_window": 2},
    {"rfa_feature_map": "cosine", "rfa_unnormalized": True},
    {"rfa_local_window": 3},
]


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_checkpoint_is_evaluated_with_another_map(checkpoint, data, task, overrides, caplog):
    caplog.set_level(logging.INFO)
    (model,), _ = load_model_ensemble([str(checkpoint)], arg_overrides={"data": str(data), **overrides})
    (own,), _ = load_model_ensemble([str(checkpoint)], arg_overrides={"data": str(data)})
    saved, loaded = load_checkpoint_to_cpu(checkpoint)["model"], model.state_dict()
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[key], saved[key]) for key in saved)
    out, plain = (logits(x.eval(), batch_of(task)) for x in (model, own))
    assert out.isfinite().all() and not torch.allclose(out, plain)
    assert not [x for x in caplog.records if "another attention" in x.getMessage()]


def test_learned_features_start_from_initial_values(checkpoint, data, caplog):
    caplog.set_level(logging.INFO)
    overrides = str({"rfa_feature_map": "learned"})
    assert len(results(generate_here(data, checkpoint, "--model-overrides", overrides))) == 8
    (line,) = [x.getMessage() for x in caplog.records if "another attention" in x.getMessage()]
    assert "\n" not in line and "dropped nothing" in line
    for layer in (0, 1):
        for place in ("self_attn", "encoder_attn"):
            for name in ("feature_weight", "feature_bias"):
                assert f"decoder.layers.{layer}.{place}.{name}" in line


TRAINED = [
    "--rfa-feature-map positive --rfa-unnormalized --rfa-gate --rfa-local-window 2",
    "--rfa-feature-map cosine --no-rfa-fixed-matrices",
    "--rfa-feature-map learned",
    "--rfa-feature-map oprf --rfa-gate",
    "--rfa-feature-map hedgehog --rfa-gate",
]


@pytest.mark.parametrize(
    "feature_map, numbers", [("gaussian", (64, 128)), ("learned", (64, 128)), ("hedgehog", (4, 4))]
)
@pytest.mark.parametrize("architecture", ["transformer_rfa", "transformer_rfa_tiny"])
def test_numbers_of_directions_by_default(data, architecture, feature_map, numbers):
    """Heads of 4; given numbers win."""
    flags = ["--rfa-feature-map", feature_map, "--decoder-attention-heads", "8"]
    model, args = build(data, *flags, architecture=architecture), parse(data, *SMALL, *flags, architecture=architecture)
    assert (model.cfg.rfa_causal_dim, model.cfg.rfa_cross_dim) == (args.rfa_causal_dim, args.rfa_cross_dim) == numbers
    flags += ["--rfa-causal-dim", "3", "--rfa-cross-dim", "5"]
    layer = build(data, *flags, architecture=architecture).decoder.layers[0]
    assert [x.directions().w.size(1) for x in (layer.self_attn, layer.encoder_attn)] == [3, 5]


@pytest.mark.parametrize("flags", TRAINED)
def test_trained_checkpoint_translates(data, task, tmp_path, flags):
    flags = flags.split()
    path = train_here(data, tmp_path, "--max-update", "4", *flags)
    output = generate_here(data, path, "--beam", "3")
    assert [number for number, _ in results(output)] == list(range(8))
    (model,), _ = load_model_ensemble([str(path)], arg_overrides={"data": str(data)})
    assert model.cfg.rfa_feature_map == flags[1]
    fresh = build(data, *flags)
    fresh.load_state_dict(load_checkpoint_to_cpu(path)["model"])
    assert torch.equal(logits(fresh, batch_of(task)), logits(model.eval(), batch_of(task)))


def test_learned_features_are_trained(data, tmp_path):
    """They start from the pool, and are parameters like others."""
    path = train_here(data, tmp_path, "--max-update", "2", "--rfa-feature-map", "learned")
    before, after = build(data, "--rfa-feature-map", "learned"), load_checkpoint_to_cpu(path)["model"]
    for layer, built in enumerate(before.decoder.layers):
        for place in ("self_attn", "encoder_attn"):
            attention = getattr(built, place)
            start = attention.evaluation_matrices() / attention.pool.matrices.size(1) ** 0.5
            torch.testing.assert_close(attention.feature_weight.detach(), start)
            assert not attention.feature_bias.any()
            for name in ("feature_weight", "feature_bias"):
                key = f"decoder.layers.{layer}.{place}.{name}"
                assert not torch.equal(after[key], before.state_dict()[key])
