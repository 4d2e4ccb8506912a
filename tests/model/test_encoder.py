"""A model whose encoder attends through random features: padding, checkpoints, training, decoding, its options."""

import copy
import logging
import re
from argparse import Namespace

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble
from fairseq.models import build_model
from fairseq.modules import FairseqDropout
from omegaconf import OmegaConf
from torch import nn

from fairseq_rfa.attention import EncoderRFA, packed_linear
from fairseq_rfa.attention.projected import ProjectedAttention
from helpers import largest_difference
from monitored_training import scalars
from precisions import here
from tiny_data import SMALL, build, generate_here, make_batch, parse, results, train_here
from variants import MAPS

RFA = ("--encoder-attention", "rfa")
SOFTMAX = ("--causal-attention", "softmax", "--cross-attention", "softmax")
SOURCES = ["a b c d e f g h a", "b", "c a d", "e e f h a", "h", "d d d d d d"]
TARGETS = ["A B C D E F G", "H H A B C D E", "A", "C D", "B", "A A A"]
SIGMA = "encoder.layers.0.self_attn.sigma"
each_map = pytest.mark.parametrize("feature_map", MAPS)


def load(path, data, **overrides):
    return load_model_ensemble([str(path)], arg_overrides={"data": str(data), **overrides})[0][0].eval()


def logits(model, batch):
    with torch.no_grad():
        return model(**batch)[0]


def small(data, *flags):
    return parse(data, *SMALL, *flags)


def test_by_default_the_encoder_has_softmax(data):
    model = build(data)
    assert model.cfg.encoder_attention == "softmax"
    assert type(model.encoder.layers[0].self_attn) is ProjectedAttention
    assert build(data, *RFA).state_dict().keys() - model.state_dict().keys() == {SIGMA}


@pytest.mark.parametrize("more", [(), SOFTMAX], ids=["all", "encoder alone"])
def test_each_layer_has_matrices_of_its_own_in_one_pool(data, more):
    flags = ("--encoder-layers", "3", "--rfa-encoder-dim", "12", "--rfa-sigma-init", "1.5", "--rfa-seed", "4", *more)
    model = build(data, *RFA, *flags)
    attentions = [layer.self_attn for layer in model.encoder.layers]
    assert all(type(attention) is EncoderRFA for attention in attentions)
    (pool,) = {attention.pool for attention in attentions}
    assert pool.matrices.shape == (20, 12, 8)
    for layer, attention in enumerate(attentions):
        assert torch.equal(attention.evaluation_matrices(), pool.matrices[4 * layer : 4 * layer + 4])
        assert (attention.sigma == 1.5).all()
    assert model.encoder.embed_tokens.weight.equal(build(data, *flags).encoder.embed_tokens.weight)


@pytest.mark.parametrize("training", [False, True])
@each_map
def test_a_sentence_does_not_see_what_stands_beside_it(data, task, feature_map, training):
    """Its batch mates, how much padding there is, and on which side of it."""
    model = build(data, *RFA, "--rfa-feature-map", feature_map, "--dropout", "0").train(training)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS)):
        (alone,) = model(**make_batch(task, [source], [target]))[0]
        for options in ({}, {"padding": 40}, {"left_pad_source": False}, {"left_pad_source": False, "padding": 90}):
            together = model(**make_batch(task, SOURCES, TARGETS, **options))[0][row]
            # Layer norms enlarge the rounding of sums of other orders.
            assert largest_difference(together[: len(alone)], alone) < 1e-4


@pytest.mark.parametrize("training", [False, True])
def test_what_stands_in_the_padding_changes_nothing(data, task, training):
    """The embeddings of padding are zeros by themselves, and positions that are none."""
    model = build(data, *RFA, "--encoder-layers", "3", "--dropout", "0").train(training)
    batch = make_batch(task, SOURCES, padding=3)
    tokens, outputs = batch["src_tokens"], []
    padding = tokens.eq(task.source_dictionary.pad())
    for filler in (0.0, 1e4, float("nan")):
        x = model.encoder.embed_tokens(tokens).masked_fill(padding.unsqueeze(-1), 0.0).transpose(0, 1)
        x = x.masked_fill(padding.T.unsqueeze(-1), filler)
        for layer in model.encoder.layers:
            x = layer(x, padding)
        outputs.append(x.transpose(0, 1)[~padding])
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


def test_a_checkpoint_of_softmax_is_read_with_features_and_back(data, task, tmp_path, caplog):
    path = train_here(data, tmp_path, "--max-update", "4")
    start = load_checkpoint_to_cpu(path)["model"]
    caplog.clear()
    caplog.set_level(logging.INFO)
    model = load(path, data, encoder_attention="rfa")
    (line,) = [x.getMessage() for x in caplog.records if "another attention" in x.getMessage()]
    assert line.endswith(f"dropped nothing; started from initial values {SIGMA}")
    assert model.state_dict().keys() - start.keys() == {SIGMA}
    batch = make_batch(task, SOURCES, TARGETS)
    assert not torch.allclose(logits(model, batch), logits(load(path, data), batch))

    path = train_here(data, tmp_path / "features", "--max-update", "4", *RFA)
    caplog.clear()
    model = load(path, data, encoder_attention="softmax")
    (line,) = [x.getMessage() for x in caplog.records if "another attention" in x.getMessage()]
    assert line.endswith(f"dropped {SIGMA}; started from initial values nothing")
    assert type(model.encoder.layers[0].self_attn) is ProjectedAttention


def test_a_damaged_checkpoint_is_refused(data):
    model = build(data, *RFA, "--rfa-feature-map", "learned", "--encoder-layers", "2")
    state = model.state_dict()
    del state["encoder.layers.1.self_attn.feature_bias"]
    with pytest.raises(RuntimeError, match=r"the checkpoint lacks encoder\.layers\.1\.self_attn\.feature_bias, and"):
        model.load_state_dict(state)


TRAINED = [
    (),
    (*SOFTMAX, "--rfa-feature-map", "positive"),
    ("--rfa-feature-map", "learned", "--rfa-gate"),
    ("--rfa-feature-map", "hedgehog", "--encoder-normalize-before"),
    ("--no-rfa-fixed-matrices", "--encoder-layerdrop", "0.3", "--encoder-layers", "3"),
    ("--rfa-exact-updates", "2", "--rfa-unnormalized"),
]


@pytest.mark.parametrize("flags", TRAINED, ids=" ".join)
def test_trained_checkpoint_translates(data, task, tmp_path, flags):
    path = train_here(data, tmp_path, "--max-update", "4", *RFA, *flags)
    output = generate_here(data, path, "--beam", "3")
    assert [number for number, _ in results(output)] == list(range(8))
    assert output.replace(str(path), "") == generate_here(data, path, "--beam", "3").replace(str(path), "")
    model, fresh = load(path, data), build(data, *RFA, *flags)
    fresh.load_state_dict(load_checkpoint_to_cpu(path)["model"])
    batch = make_batch(task, SOURCES, TARGETS)
    assert torch.equal(logits(model, batch), logits(fresh, batch))
    assert not torch.equal(model.state_dict()[SIGMA], build(data, *RFA, *flags).state_dict()[SIGMA])


def test_updates_of_the_exact_kernel_reach_the_encoder(data):
    model = build(data, *RFA, "--rfa-exact-updates", "2").train()
    attention = model.encoder.layers[0].self_attn
    for num_updates, is_exact in ((0, True), (1, True), (2, False)):
        model.set_num_updates(num_updates)
        assert attention.is_exact_in_training is is_exact


@pytest.mark.parametrize("draws", ["--rfa-fixed-matrices", "--no-rfa-fixed-matrices"])
def test_recomputed_activations_give_the_same_gradients(data, task, draws):
    found = []
    for more in ((), ("--checkpoint-activations",)):
        model = build(data, *RFA, "--dropout", "0.1", draws, *more).train()
        torch.manual_seed(3)
        model(**make_batch(task, SOURCES, TARGETS))[0].square().mean().backward()
        found.append({name: x.grad for name, x in model.named_parameters()})
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert found[0][SIGMA].any()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("more", [(), SOFTMAX], ids=["all", "encoder alone"])
def test_each_dense_layer_decodes_in_the_precision(data, task, precision, more, monkeypatch):
    """No fast path of torch passes the encoder's attention by."""
    monkeypatch.setattr(packed_linear, "LEAST_ENTRIES", 1)
    if precision != "float32":
        here(precision, monkeypatch)
    model = build(data, *RFA, *more, "--decoding-precision", precision)
    prepared = copy.deepcopy(model)
    prepared.prepare_for_inference_(Namespace(generation=Namespace(beam=3, print_alignment=False)))
    batch = make_batch(task, SOURCES)
    calls = []
    attention = prepared.encoder.layers[0].self_attn
    attention.register_forward_hook(lambda *call: calls.append(call))
    with torch.no_grad():
        expected, found = (x.encoder(**batch) for x in (model, prepared))
        real = ~expected["encoder_padding_mask"][0].T
        expected, found = (x["encoder_out"][0][real] for x in (expected, found))
    assert len(calls) == 1
    errors = {"float32": (0, 1e-5), "bfloat16": (1e-4, 0.03), "int8": (1e-4, 0.1)}
    low, high = errors[precision]
    assert low <= (found - expected).norm() / expected.norm() < high
    layers = [layer for layer in prepared.encoder.modules() if type(layer) is nn.Linear]
    assert len(layers) == 6
    assert {packed_linear.precision_of(layer) for layer in layers} == {precision}


@pytest.mark.parametrize("more", [(), SOFTMAX], ids=["all", "encoder alone"])
def test_retained_dropouts_are_those_of_a_transformer(data, more):
    def retained(*flags, **options):
        model = build(data, "--dropout", "0.3", "--attention-dropout", "0.1", *flags, **options)
        model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=["MultiheadAttention"])
        return [
            name for name, module in model.named_modules()
            if isinstance(module, FairseqDropout) and module.apply_during_inference
        ]

    found = retained(*RFA, *more)
    assert "encoder.layers.0.self_attn.dropout_module" in found
    assert found == retained(architecture="transformer")


def test_curves_for_tensorboard(data, tmp_path):
    flags = ("--tensorboard-logdir", str(tmp_path / "board"), "--log-interval", "1", "--max-update", "2")
    train_here(data, tmp_path / "run", *flags, *RFA, *SOFTMAX)
    found = scalars(tmp_path / "board")
    assert found.keys() == {f"encoder_layer_0/{name}" for name in ("share_of_denominators_at_floor", "mean_sigma")}
    assert [step for step, _ in found["encoder_layer_0/mean_sigma"]] == [1, 2]


@each_map
def test_numbers_of_directions_by_default(data, feature_map):
    """Heads of the encoder are 16 wide, those of the decoder 8."""
    flags = ("--rfa-feature-map", feature_map, "--encoder-attention-heads", "2", "--decoder-attention-heads", "4")
    cfg = build(data, *RFA, *flags).cfg
    found = cfg.rfa_causal_dim, cfg.rfa_cross_dim, cfg.rfa_encoder_dim
    assert found == ((8, 8, 16) if feature_map == "hedgehog" else (64, 128, 128))
    assert build(data, *RFA, *flags, "--rfa-encoder-dim", "5").cfg.rfa_encoder_dim == 5


@pytest.mark.parametrize(
    "flags, flag, remedy",
    [
        ("--encoder-attention-heads 5", "--encoder-attention-heads is 5", "--encoder-embed-dim 32"),
        ("--encoder-layers-to-keep 1", "--encoder-layers-to-keep is '1'", "one of the maps elu"),
        ("--rfa-encoder-dim 0", "--rfa-encoder-dim is 0", "at least 1"),
        ("--rfa-feature-map elu --rfa-orthogonal", "--rfa-orthogonal", "drop the flag"),
        ("--rfa-feature-map elu --rfa-exact-updates 3", "--rfa-exact-updates is 3", "use 0"),
        ("--encoder-xformers-att-config x", "xFormers", "--encoder-attention softmax"),
    ],
)
def test_what_makes_no_sense_is_refused(data, flags, flag, remedy):
    with pytest.raises(ValueError) as refusal:
        build(data, *RFA, *SOFTMAX, *flags.split())
    message = str(refusal.value)
    assert "\n" not in message and flag in message and remedy in message


def test_a_value_that_is_no_attention_is_refused(data, task):
    args = small(data)
    args.encoder_attention = "linear"
    with pytest.raises(ValueError, match="--encoder-attention is 'linear'; use one of rfa, softmax"):
        task.build_model(args)


def test_decoders_of_softmax_keep_what_softmax_allows(data):
    build(data, *RFA, *SOFTMAX, "--cross-self-attention", "--no-cross-attention")


@pytest.mark.parametrize("feature_map", ["learned", "elu", "hedgehog"])
def test_kept_layers_compute_the_same(data, task, tmp_path, feature_map):
    flags = (*RFA, "--rfa-feature-map", feature_map)
    path = train_here(data, tmp_path, "--max-update", "2", "--encoder-layers", "3", *flags)
    state = {
        re.sub("^encoder.layers.2", "encoder.layers.1", name): value
        for name, value in load_checkpoint_to_cpu(path)["model"].items()
        if not name.startswith("encoder.layers.1.")
    }
    expected = build(data, *flags, "--encoder-layers", "2")
    expected.load_state_dict(state)
    model = load(path, data, encoder_layers_to_keep="0,2")
    batch = make_batch(task, SOURCES, TARGETS)
    assert torch.equal(logits(model, batch), logits(expected, batch))


def test_features_in_the_kept_layers_of_a_softmax_encoder(data, tmp_path):
    path = train_here(data, tmp_path, "--max-update", "2", "--encoder-layers", "3", "--rfa-feature-map", "elu")
    model = load(path, data, encoder_layers_to_keep="0,2", encoder_attention="rfa")
    assert [type(layer.self_attn) for layer in model.encoder.layers] == [EncoderRFA, EncoderRFA]


def test_options_of_a_configuration_file(task):
    config = OmegaConf.create({"_name": "transformer_rfa_tiny", "encoder_attention": "rfa", "rfa_encoder_dim": 6})
    model = build_model(config, task)
    assert model.encoder.layers[0].self_attn.pool.matrices.size(1) == 6


@pytest.mark.parametrize("part", ["", "encoder", "encoder.layers.0"])
def test_features_are_not_compiled(data, part):
    model = build(data, *RFA, *SOFTMAX)
    with pytest.raises(ValueError, match="^torch.jit.script cannot .*--encoder-attention softmax"):
        torch.jit.script(model.get_submodule(part))
