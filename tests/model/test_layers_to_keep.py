"""Layers that are left out: the others compute what they computed, or the combination is refused."""

import re

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble

from tiny_data import build, generate_here, make_batch, results, train_here

THREE = "--encoder-layers 3 --decoder-layers 3 --rfa-gate".split()
WITHOUT_MATRICES = ["learned", "elu", "hedgehog"]


def trained(data, folder, *flags):
    return train_here(data, folder, "--max-update", "2", "--lr", "0.1", *THREE, *flags)


def load(path, data, **overrides):
    return load_model_ensemble([str(path)], arg_overrides={"data": str(data), **overrides})[0][0].eval()


def without_a_layer(state, side):
    """The state dict with layers 0 and 2 of the side in the places of 0 and 1."""
    kept = {name: value for name, value in state.items() if not name.startswith(f"{side}.layers.1.")}
    return {name.replace(f"{side}.layers.2.", f"{side}.layers.1."): value for name, value in kept.items()}


def output(model, task):
    return model(**make_batch(task, ["a b c d", "h g"], ["D C B", "G"]))[0]


@pytest.mark.parametrize("feature_map", WITHOUT_MATRICES)
@pytest.mark.parametrize("kept", ["0,2", "2,0", [0, 2], (2, 0)])
def test_kept_layers_of_the_decoder_compute_the_same(data, task, tmp_path, feature_map, kept):
    flags = ["--rfa-feature-map", feature_map]
    path = trained(data, tmp_path, *flags)
    expected = build(data, *THREE, *flags, "--decoder-layers", "2")
    expected.load_state_dict(without_a_layer(load_checkpoint_to_cpu(path)["model"], "decoder"))
    model = load(path, data, decoder_layers_to_keep=kept)
    assert len(model.decoder.layers) == 2
    assert torch.equal(output(model, task), output(expected, task))
    assert not torch.allclose(output(model, task), output(load(path, data), task))


@pytest.mark.parametrize("feature_map", ["gaussian", "elu"])
def test_kept_layers_of_the_encoder_compute_the_same(data, task, tmp_path, feature_map):
    flags = ["--rfa-feature-map", feature_map]
    path = trained(data, tmp_path, *flags)
    expected = build(data, *THREE, *flags, "--encoder-layers", "2")
    expected.load_state_dict(without_a_layer(load_checkpoint_to_cpu(path)["model"], "encoder"))
    model = load(path, data, encoder_layers_to_keep="0,2")
    assert torch.equal(output(model, task), output(expected, task))


@pytest.mark.parametrize("feature_map", WITHOUT_MATRICES)
def test_another_attention_in_the_kept_layers_starts_as_in_a_model_of_that_many(data, task, tmp_path, feature_map):
    softmax = ["--causal-attention", "softmax", "--cross-attention", "softmax"]
    path = trained(data, tmp_path, *softmax)
    overrides = dict(causal_attention="rfa", cross_attention="rfa", rfa_gate=False, rfa_feature_map=feature_map)
    sizes = ["--decoder-layers", "2", "--rfa-causal-dim", "64", "--rfa-cross-dim", "128"]  # as the checkpoint has them
    expected = build(data, *THREE, "--no-rfa-gate", "--rfa-feature-map", feature_map, *sizes)
    expected.load_state_dict(without_a_layer(load_checkpoint_to_cpu(path)["model"], "decoder"))
    model = load(path, data, decoder_layers_to_keep="0,2", **overrides)
    assert torch.equal(output(model, task), output(expected, task))


@pytest.mark.parametrize("flag, layers", [("--decoder-layers-to-keep", (3, 2)), ("--encoder-layers-to-keep", (2, 3))])
def test_training_goes_on_with_the_kept_layers(data, tmp_path, flag, layers):
    flags = ["--rfa-feature-map", "learned"]
    path = trained(data, tmp_path / "first", *flags)
    more = ["--finetune-from-model", str(path), flag, "0,2", "--lr", "1e-9"]
    later = train_here(data, tmp_path / "second", "--max-update", "1", *THREE, *flags, *more)
    side = flag.split("-")[2]
    start, end = (load_checkpoint_to_cpu(x)["model"] for x in (path, later))
    expected = without_a_layer(start, side)
    assert end.keys() == expected.keys()
    assert all(torch.allclose(end[name], value, atol=1e-6) for name, value in expected.items())
    model = load(later, data)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == layers
    assert len(results(generate_here(data, later))) == 8


@pytest.mark.parametrize("feature_map", ["gaussian", "arccos", "positive", "oprf", "cosine"])
@pytest.mark.parametrize("place", ["", "--causal-attention softmax", "--cross-attention softmax"])
def test_layers_that_would_read_through_other_matrices_are_refused(data, feature_map, place):
    with pytest.raises(ValueError) as refusal:
        build(data, "--rfa-feature-map", feature_map, "--decoder-layers-to-keep", "0,2", *place.split())
    line = rf"is '0,2'; with --rfa-feature-map {feature_map} .* maps elu, learned, hedgehog$"
    assert re.search(line, str(refusal.value))


def test_first_layers_keep_their_matrices(data, task, tmp_path):
    path = trained(data, tmp_path)
    expected = build(data, *THREE, "--decoder-layers", "2")
    start = load_checkpoint_to_cpu(path)["model"]
    expected.load_state_dict({name: value for name, value in start.items() if "decoder.layers.2" not in name})
    assert torch.equal(output(load(path, data, decoder_layers_to_keep="0,1"), task), output(expected, task))


@pytest.mark.parametrize("kept", ["0,x", "0;1", 3, "1.5", [0, 0], ["a"], "0,,1"])
def test_what_are_no_numbers_of_layers_is_refused(checkpoint, data, kept):
    with pytest.raises(ValueError, match="--decoder-layers-to-keep is .*; use different numbers of layers"):
        load(checkpoint, data, decoder_layers_to_keep=kept, rfa_feature_map="elu")


def test_a_layer_that_the_checkpoint_lacks_is_named(checkpoint, data):
    with pytest.raises(RuntimeError, match=r"decoder\.layers\.1\."):
        load(checkpoint, data, decoder_layers_to_keep="0,7", rfa_feature_map="elu")
