"""fairseq's commands with a language model: perplexity, continuations, resuming, hydra, another attention."""

import logging
import math
import re

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

from fairseq_rfa import average_checkpoints
from language_model_data import (
    SEGMENT,
    TRAINING_LM,
    build_lm,
    continue_here,
    eval_lm_here,
    load_lm,
    parse_lm,
    random_tokens,
    step_by_step,
    task_of_text,
    train_lm_here,
)
from monitored_training import scalars
from tiny_data import PLUGIN, command, results

ADAPTIVE = tuple(
    "--adaptive-input --adaptive-input-cutoff 10,12 --adaptive-softmax-cutoff 10,12 --tie-adaptive-weights "
    "--criterion adaptive_loss --ddp-backend legacy_ddp".split()
)
HYDRA = """
common:
  {{user_dir: "{plugin}", cpu: true, seed: 7, tensorboard_logdir: "{folder}/tensorboard", log_interval: 1}}
task: {{_name: language_modeling, data: "{data}", tokens_per_sample: 16}}
model: {{_name: transformer_lm_rfa_tiny_gate, decoder_layers: 2, rfa_causal_dim: 16, dropout: 0.2}}
criterion: {{_name: cross_entropy}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: inverse_sqrt, warmup_updates: 5}}
optimization: {{lr: [0.01], max_update: 2}}
dataset: {{batch_size: 4, num_workers: 0, required_batch_size_multiple: 1}}
checkpoint: {{save_dir: "{folder}/run", no_epoch_checkpoints: true}}
"""


def stream(text, split="test"):
    """All tokens of a split, one after the other; a line ends with its eos."""
    task = task_of_text(text)
    task.load_dataset(split)
    blocks = [task.dataset(split)[number] for number in range(len(task.dataset(split)))]
    return torch.cat([block["target"] for block in blocks])


@torch.no_grad()
def bits(model, tokens, segment, context=0):
    """Mean over all tokens, of which each segment is predicted from itself and so many tokens before it."""
    inputs = torch.cat([tokens.new_tensor([2]), tokens[:-1]])
    total = 0.0
    for start in range(0, len(tokens), segment):
        end, first = min(start + segment, len(tokens)), max(0, start - context)
        logs = model.get_normalized_probs(model(inputs[None, first:end]), log_probs=True)[0, start - first :]
        total -= logs.gather(1, tokens[start:end, None]).sum().item()
    return total / len(tokens) / math.log(2)


def evaluated(caplog):
    (number,) = re.findall(r"Evaluated ([\d,]+) tokens", caplog.text)
    return int(number.replace(",", ""))


@pytest.mark.parametrize("segment", [5, SEGMENT])
@pytest.mark.parametrize("batch", ["1", "4"])
def test_perplexity_over_all_tokens(text, text_checkpoint, caplog, segment, batch):
    caplog.set_level(logging.INFO)
    found = eval_lm_here(text, text_checkpoint, "--tokens-per-sample", str(segment), "--batch-size", batch)
    tokens = stream(text)
    assert evaluated(caplog) == len(tokens) > 50
    # float32 sums in another order
    assert float(found["loss"]) == pytest.approx(bits(load_lm(text_checkpoint, text), tokens, segment), rel=1e-5)


@pytest.mark.parametrize("batch", ["1", "4"])
def test_perplexity_in_a_window_of_context(text, text_checkpoint, caplog, batch):
    """fairseq takes the window off the segment, so that both together are as long as the model was trained on."""
    caplog.set_level(logging.INFO)
    found = eval_lm_here(text, text_checkpoint, "--context-window", "10", "--batch-size", batch)
    tokens = stream(text)
    assert evaluated(caplog) == len(tokens)
    expected = bits(load_lm(text_checkpoint, text), tokens, SEGMENT - 10, context=10)
    assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
def greedy(model, prefix, most):
    """The likeliest continuation of a prefix, read anew for each word."""
    tokens = [2, *prefix]
    while len(tokens) <= most:
        logits = model(torch.tensor([tokens]))[0][0, -1]
        logits[1] = -math.inf  # the search never takes padding
        tokens.append(logits.argmax().item())
        if tokens[-1] == 2:
            return tokens[1:-1]
    return tokens[1:]


@pytest.mark.parametrize("overrides", ["{}", "{'causal_attention': 'softmax'}", "{'decoding_precision': 'int8'}"])
def test_greedy_continuation_is_that_by_hand(text, text_checkpoint, overrides):
    output = continue_here(text, text_checkpoint, "--beam", "1", "--model-overrides", overrides)
    model = load_lm(text_checkpoint, text, **({"causal_attention": "softmax"} if "softmax" in overrides else {}))
    dictionary, prefixes = task_of_text(text).source_dictionary, results(output, "S")
    assert len(prefixes) == 11
    for (number, (line,)), (_, hypothesis) in zip(prefixes, results(output)):
        words = line.split()
        prefix = [dictionary.index(word) for word in words[:2]]
        # The end of a line of one word is part of its prefix.
        continued = greedy(model, prefix, 12) if len(words) > 1 else prefix
        assert hypothesis[-1] == " ".join(dictionary[word] for word in continued), number


def test_beams_and_samples(text, text_checkpoint):
    sampled = ["--sampling", "--sampling-topk", "4", "--beam", "3", "--nbest", "3"]
    found = results(continue_here(text, text_checkpoint, *sampled, "--seed", "1"))
    assert len(found) == 33 and len({fields[-1] for _, fields in found}) > 11
    assert found == results(continue_here(text, text_checkpoint, *sampled, "--seed", "1"))
    assert found != results(continue_here(text, text_checkpoint, *sampled, "--seed", "2"))
    beams = results(continue_here(text, text_checkpoint, "--beam", "4", "--nbest", "2"))
    assert len(beams) == 22


def test_text_beyond_the_length_of_training(text, text_checkpoint):
    """With another number of positions; without it fairseq stops before."""
    flags = ["--beam", "1", "--max-len-b", "30"]
    longer = ["--min-len", "30", "--model-overrides", "{'max_target_positions': 64}"]
    short, long = (results(continue_here(text, text_checkpoint, *flags, *more)) for more in ([], longer))
    assert max(len(fields[-1].split()) for _, fields in short) < SEGMENT
    assert {len(fields[-1].split()) for _, fields in long} == {1, 30}  # a line of one word is a prefix as a whole


def test_interactive_continues_every_line(text, text_checkpoint, tmp_path):
    flags = ["--user-dir", PLUGIN, "--path", text_checkpoint, "--task", "language_modeling", "--cpu", "--beam", "2"]
    lines = ["a b c", "", "d", "unknown", "a b c"]
    result = command(
        "fairseq-interactive",
        text,
        *flags,
        *("--max-len-b", "12"),
        folder=tmp_path,
        input="".join(f"{line}\n" for line in lines),
    )
    found = results(result.stdout)
    assert [number for number, _ in found] == list(range(len(lines))), result.stderr[-2000:]
    assert found[0][1] == found[-1][1] and found[0][1][-1].startswith("a b c")


def printed_numbers(records):
    kept = r"\b(?:loss|ppl|gnorm|lr|num_updates)[ =]+[^ ,|]+"
    return [re.findall(kept, x.getMessage()) for x in records if x.name in ("train_inner", "valid")]


# Six updates an epoch.
@pytest.mark.parametrize("stop", ["4", "9"])
@pytest.mark.parametrize("more", [(), ADAPTIVE])
def test_stopped_and_resumed_equals_not_stopped(text, tmp_path, caplog, stop, more):
    caplog.set_level(logging.INFO)

    def run(folder, updates):
        flags = ["--dropout", "0.3", "--no-rfa-fixed-matrices", "--log-interval", "1", "--max-update", updates]
        caplog.clear()
        path = train_lm_here(text, tmp_path / folder, *flags, *more, architecture="transformer_lm_rfa_tiny_gate")
        return load_checkpoint_to_cpu(path)["model"], printed_numbers(caplog.records)

    whole, printed = run("whole", "14")
    run("stopped", stop)
    resumed, printed_later = run("stopped", "14")
    assert len(printed_later) > 4 and printed_later == printed[-len(printed_later) :]
    names = [name for name in whole if whole[name].numel() > 1]  # fairseq keeps entries of memory that is not filled
    assert all(torch.equal(resumed[name], whole[name]) for name in names) and len(names) > 20


def test_adaptive_embeddings(text, tmp_path):
    path = train_lm_here(text, tmp_path, "--max-epoch", "6", *ADAPTIVE, architecture="transformer_lm_rfa_tiny_gate")
    model, tokens = load_lm(path, text), random_tokens(task_of_text(text))
    loss = float(eval_lm_here(text, path)["loss"])
    assert loss == pytest.approx(bits(model, stream(text), SEGMENT), rel=1e-5) and loss < 3.0
    assert len(results(continue_here(text, path, "--beam", "2"))) == 11
    # as in the tests of the model
    torch.testing.assert_close(step_by_step(model, tokens), model(tokens)[0], atol=2e-4, rtol=2e-4)


def test_hydra_train(text, tmp_path):
    (tmp_path / "study.yaml").write_text(HYDRA.format(plugin=PLUGIN, data=text, folder=tmp_path))
    result = command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "study", folder=tmp_path)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert {"rfa", "train_inner"} <= {path.name for path in (tmp_path / "tensorboard").iterdir()}
    path = tmp_path / "run" / "checkpoint_last.pt"
    options = torch.load(path, weights_only=True)["cfg"]["model"]
    assert (options["decoder_layers"], options["rfa_gate"], options["rfa_causal_dim"]) == (2, True, 16)
    assert not [name for name in options if "cross" in name or "encoder" in name]
    assert load_lm(path, text).max_positions() == 16
    for overrides in ("{}", "{'causal_attention': 'softmax'}"):
        assert len(results(continue_here(text, path, "--beam", "2", "--model-overrides", overrides))) == 11
    average = tmp_path / "average.pt"
    average_checkpoints.main(["--inputs", str(path), str(path), "--output", str(average)])
    assert eval_lm_here(text, average) == eval_lm_here(text, path)


@pytest.mark.parametrize(
    "overrides, dropped, added",
    [
        ({"causal_attention": "softmax"}, ("sigma", "gate_proj.weight"), ()),
        ({"rfa_feature_map": "learned"}, (), ("feature_weight", "feature_bias")),
        ({"rfa_gate": False}, ("gate_proj.bias",), ()),
    ],
)
def test_checkpoint_with_another_attention(text, text_checkpoint, caplog, overrides, dropped, added):
    caplog.set_level(logging.INFO)
    model = load_lm(text_checkpoint, text, **overrides)
    (line,) = [x.getMessage() for x in caplog.records if "another attention" in x.getMessage()]
    before, after = line.split("; started")
    for layer in (0, 1):
        assert all(f"decoder.layers.{layer}.self_attn.{name}" in before for name in dropped)
        assert all(f"decoder.layers.{layer}.self_attn.{name}" in after for name in added)
    assert model(random_tokens(task_of_text(text)))[0].isfinite().all()


def test_checkpoint_of_fairseq_is_fine_tuned(text, tmp_path):
    """With the weights of its model, and what it lacks started anew."""
    theirs = train_lm_here(text, tmp_path / "theirs", "--max-update", "3", architecture="transformer_lm_big")
    flags = ["--finetune-from-model", str(theirs), "--max-update", "1", "--lr", "1e-9", "--optimizer", "sgd"]
    ours = train_lm_here(text, tmp_path / "ours", *flags, architecture="transformer_lm_rfa_tiny_gate")
    before, after = (load_checkpoint_to_cpu(path)["model"] for path in (theirs, ours))
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, atol=1e-6, rtol=0)  # one step of 1e-9
    assert {name.rsplit(".", 1)[1] for name in after.keys() - before.keys()} == {"sigma", "weight", "bias"}


def test_curves_of_each_layer(text, tmp_path):
    flags = ["--max-update", "4", "--log-interval", "2", "--tensorboard-logdir", str(tmp_path / "tensorboard")]
    train_lm_here(text, tmp_path, *flags, architecture="transformer_lm_rfa_tiny_gate")
    names = ("floored", "gate", "sigma")
    found = scalars(tmp_path / "tensorboard")
    assert {name.split("/")[0] for name in found} == {"causal_layer_0", "causal_layer_1"}
    assert len(found) == 2 * len(names)


def test_layers_to_keep(text, text_checkpoint):
    model = load_lm(text_checkpoint, text, decoder_layers_to_keep="0")
    assert len(model.decoder.layers) == 1
    state = load_checkpoint_to_cpu(text_checkpoint)["model"]
    key = "decoder.layers.0.self_attn.gate_proj.weight"
    assert torch.equal(model.state_dict()[key], state[key])


def test_retained_dropout(text, text_checkpoint):
    flags = ["--beam", "1", "--retain-dropout", "--retain-dropout-modules", "TransformerDecoder", "--seed", "1"]
    flags += ["--model-overrides", "{'dropout': 0.9}"]
    dropped, plain = (results(continue_here(text, text_checkpoint, *more)) for more in (flags, flags[:2]))
    assert dropped != plain


def test_task_with_two_languages_is_refused(data):
    flags = ["--task", "translation", "--user-dir", str(PLUGIN), "--arch", "transformer_lm_rfa_tiny"]
    result = command("fairseq-train", data, *flags, *TRAINING_LM, folder=data)
    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].startswith("ValueError: transformer_lm_rfa") and "use --task language" in (
        result.stderr.splitlines()[-1]
    )


@pytest.mark.parametrize(
    "flag", ["--cross-attention", "--encoder-attention", "--rfa-cross-dim", "--rfa-sentence-gate", "--encoder-layers"]
)
def test_options_of_translation_are_none_of_this_model(text, capsys, flag):
    with pytest.raises(SystemExit):
        parse_lm(text, flag, "1")
    assert flag in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rfa_cross_dim", "cross_attention", "rfa_causal_dims"])
def test_override_of_an_option_that_the_model_lacks_is_refused(text, text_checkpoint, name):
    with pytest.raises(ValueError, match=f"there is no option {name}"):
        checkpoint_utils.load_model_ensemble([str(text_checkpoint)], arg_overrides={"data": str(text), name: 3})


REFUSED = [
    ("--rfa-causal-dim 0", "--rfa-causal-dim is 0; use at least 1"),
    ("--decoder-attention-heads 5", "--decoder-attention-heads is 5; use a divisor"),
    ("--rfa-feature-map elu --rfa-local-window 3", "--rfa-local-window is 3, but the map elu"),
    ("--decoder-xformers-att-config {}", "use --causal-attention softmax$"),
    ("--adaptive-input", "--adaptive-input needs --adaptive-input-cutoff; give both"),
    ("--tie-adaptive-weights", "--tie-adaptive-weights needs --adaptive-input; give both"),
    ("--adaptive-softmax-cutoff 5,4", "--adaptive-softmax-cutoff is '5,4'; use growing numbers"),
    ("--adaptive-softmax-cutoff 0,4", "--adaptive-softmax-cutoff is '0,4'; use growing numbers"),
    ("--adaptive-softmax-cutoff 4,600", "--adaptive-softmax-cutoff is '4,600'; use numbers up to 16, "),
    ("--adaptive-input --adaptive-input-cutoff print(1)", r"--adaptive-input-cutoff is 'print\(1\)'; use growing"),
    ("--character-embeddings --character-filters print(1)", r"--character-filters is 'print\(1\)'; use pairs"),
    (
        "--adaptive-input --adaptive-input-cutoff 5 --tie-adaptive-weights --adaptive-softmax-cutoff 6",
        "--adaptive-softmax-cutoff is '6'; use that of --adaptive-input-cutoff, 5, or drop --tie-adaptive-weights",
    ),
]


@pytest.mark.parametrize("flags, message", REFUSED)
def test_what_makes_no_sense_is_refused_in_one_line(text, flags, message):
    with pytest.raises(ValueError, match=message) as refusal:
        build_lm(text, *flags.split())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "flags, reason",
    [
        ("--causal-attention softmax --rfa-seed 3", "--rfa-seed 3 changes nothing with --causal-attention softmax;"),
        ("--rfa-gate --rfa-denominator-floor 0.3", "--rfa-denominator-floor 0.3 changes nothing with --rfa-gate;"),
        ("--rfa-gate-bias 1", "--rfa-gate-bias 1.0 changes nothing without --rfa-gate;"),
        ("--rfa-denominator-floor 0.3 --rfa-sigma-init 2", None),
    ],
)
def test_option_that_nothing_reads_is_warned_of(text, caplog, flags, reason):
    matrices = [] if "softmax" not in flags else ["--rfa-num-matrices", "200"]
    build_lm(text, *flags.split(), *matrices)
    lines = [x.getMessage() for x in caplog.records if x.levelname == "WARNING" and "rfa" in x.name]
    assert [line.partition(";")[0] + ";" for line in lines] == ([reason] if reason else [])
