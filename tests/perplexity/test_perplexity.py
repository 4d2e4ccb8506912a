"""python -m fairseq_rfa.perplexity: the numbers of fairseq-eval-lm, and those of a state that is carried on."""

import json
import math
import shutil

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq_cli import preprocess

from fairseq_rfa.perplexity import __main__ as perplexity
from fairseq_rfa.perplexity import scores
from language_model_data import eval_lm_here, train_lm_here

UPDATES = ("--max-update", "30")
WHOLE = 10_000
"""A segment that is longer than any text here."""


@pytest.fixture(scope="module")
def rfa(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rfa")
    return train_lm_here(text, folder, *UPDATES, architecture="transformer_lm_rfa_tiny_gate")


@pytest.fixture(scope="module")
def softmax(text, tmp_path_factory):
    return train_lm_here(text, tmp_path_factory.mktemp("softmax"), *UPDATES, "--causal-attention", "softmax")


def report_of(text, checkpoint, *flags, tmp_path):
    file = tmp_path / "report.json"
    arguments = [text, "--checkpoint", checkpoint, "--out", file, *flags]
    perplexity.main([str(argument) for argument in arguments])
    return json.loads(file.read_text())


def by_fairseq(text, checkpoint, length, window=0):
    """The perplexity of fairseq-eval-lm, which takes the window off the length."""
    lengths = "--tokens-per-sample", str(length + window), "--context-window", str(window), "--batch-size", "1"
    return float(eval_lm_here(text, checkpoint, *lengths)["perplexity"])


@pytest.mark.parametrize("window", [0, 5, 8])
@pytest.mark.parametrize("attention", ["rfa", "softmax"])
def test_windows_are_those_of_fairseq(text, request, attention, window, tmp_path):
    checkpoint = request.getfixturevalue(attention)
    found = report_of(text, checkpoint, "--segment", 8, "--context", window, tmp_path=tmp_path)
    assert found["perplexity"] == pytest.approx(by_fairseq(text, checkpoint, 8, window), rel=1e-5)


@pytest.mark.parametrize("segment", [1, 7, 16, 33])
def test_a_carried_state_is_one_long_segment(text, rfa, segment, tmp_path):
    found = report_of(text, rfa, "--segment", segment, "--continue-positions", tmp_path=tmp_path)
    whole = report_of(text, rfa, "--segment", WHOLE, "--context", 0, tmp_path=tmp_path)
    assert found["tokens"] == whole["tokens"] == sum(len(line.split()) + 1 for line in raw(text))
    assert found["loss"] == pytest.approx(whole["loss"], rel=1e-5)


def raw(text, subset="test"):
    return (text.parent / subset).read_text().splitlines()


def test_a_carried_state_is_context(text, rfa, tmp_path):
    """What it is worth depends on the training; that it counts does not."""
    carried = report_of(text, rfa, "--segment", 4, tmp_path=tmp_path)
    alone = report_of(text, rfa, "--segment", 4, "--context", 0, tmp_path=tmp_path)
    assert abs(carried["loss"] - alone["loss"]) > 1e-3
    continued = report_of(text, rfa, "--segment", 4, "--continue-positions", tmp_path=tmp_path)
    assert abs(carried["loss"] - continued["loss"]) > 1e-4


def write_lines(folder, lines):
    """The same words in other lines, with the dictionary of the text."""
    (folder / "lines").write_text("".join(line + "\n" for line in lines))
    arguments = ["--only-source", "--destdir", str(folder / "binary"), "--testpref", str(folder / "lines")]
    arguments += ["--srcdict", str(folder / "dict.txt")]
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(arguments))
    return folder / "binary"


@pytest.mark.parametrize("reset", ["documents", "empty-lines"])
@pytest.mark.parametrize("context", ["carried", "3"])
def test_texts_are_scored_apart(text, rfa, reset, context, tmp_path):
    """As if each were the only one."""
    texts = [raw(text)[:3], raw(text)[3:4], raw(text)[4:9]]
    if reset == "empty-lines":
        texts = [[*lines, ""] for lines in texts[:2]] + texts[2:]
    flags = "--segment", 4, "--context", context
    losses = []
    for number, lines in enumerate(texts):
        (tmp_path / str(number)).mkdir()
        shutil.copy(text / "dict.txt", tmp_path / str(number))
        one = report_of(write_lines(tmp_path / str(number), lines), rfa, *flags, tmp_path=tmp_path)
        losses.append(one["loss"] * one["tokens"])
    shutil.copy(text / "dict.txt", tmp_path)
    together = write_lines(tmp_path, [line for lines in texts for line in lines])
    (together / "test.documents").write_text("".join(f"{len(lines)}\n" for lines in texts))
    found = report_of(together, rfa, *flags, "--reset-at", reset, tmp_path=tmp_path)
    assert found["texts"] == 3
    assert found["loss"] * found["tokens"] == pytest.approx(sum(losses), rel=1e-6)


@pytest.mark.parametrize("kind", ["subword_nmt", "sentencepiece"])
def test_words_are_counted(text, tmp_path, kind):
    """A model whose letters are parts of words."""
    marks = {"subword_nmt": "{}@@", "sentencepiece": "\u2581{}"}[kind]
    folder = tmp_path / "text"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        lines = (line.replace("a", marks.format("a")).replace("b", marks.format("b")) for line in raw(text, split))
        (folder / split).write_text("".join(line + "\n" for line in lines))
    arguments = ["--only-source", "--destdir", f"{folder}/binary"]
    for split in ("train", "valid", "test"):
        arguments += [f"--{split}pref", f"{folder}/{split}"]
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(arguments))
    checkpoint = train_lm_here(folder / "binary", tmp_path, "--max-update", "2")
    found = report_of(folder / "binary", checkpoint, "--remove-bpe", kind, tmp_path=tmp_path)
    marked = sum(line.count("a") + line.count("b") for line in raw(text))
    lines = len(raw(text))
    words = found["tokens"] - marked if kind == "subword_nmt" else marked + lines
    assert found["words"] == words
    assert found["word_perplexity"] == pytest.approx(math.exp(found["loss"] * found["tokens"] / words))


def test_words_of_a_raw_text(text, rfa, tmp_path, capsys):
    found = report_of(text, rfa, "--raw", text.parent / "test", tmp_path=tmp_path)
    assert found["words"] == found["tokens"] and found["word_perplexity"] == pytest.approx(found["perplexity"])
    assert "|words:raw|" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="has 9 lines, and the data have 11"):
        report_of(text, rfa, "--raw", text.parent / "valid", tmp_path=tmp_path)


def test_many_words_are_scored_in_parts(text, rfa, tmp_path, monkeypatch):
    whole = report_of(text, rfa, tmp_path=tmp_path)
    monkeypatch.setattr(scores, "MOST_ENTRIES", 40)
    assert report_of(text, rfa, tmp_path=tmp_path)["loss"] == pytest.approx(whole["loss"], rel=1e-6)


def test_an_adaptive_softmax(text, tmp_path):
    flags = "--adaptive-softmax-cutoff 6 --criterion adaptive_loss --ddp-backend legacy_ddp".split()
    checkpoint = train_lm_here(text, tmp_path, *UPDATES, *flags)
    found = report_of(text, checkpoint, "--segment", 8, "--context", 0, tmp_path=tmp_path)
    assert found["perplexity"] == pytest.approx(by_fairseq(text, checkpoint, 8), rel=1e-5)


def test_options_of_the_training_are_taken_over(text, tmp_path):
    flags = "--task stateful_language_modeling --continue-positions --tokens-per-sample 12".split()
    checkpoint = train_lm_here(text, tmp_path, "--max-update", "3", *flags)
    sign = report_of(text, checkpoint, tmp_path=tmp_path)["signature"]
    assert (sign["segment"], sign["positions"], sign["context"]) == (12, "continued", "carried")
    sign = report_of(text, checkpoint, "--no-continue-positions", tmp_path=tmp_path)["signature"]
    assert sign["positions"] == "restarted"


def test_the_output_ends_with_the_signature(text, rfa, tmp_path, capsys):
    found = report_of(text, rfa, "--segment", 8, tmp_path=tmp_path)
    line, signature = capsys.readouterr().out.strip().splitlines()[-2:]
    assert line.startswith(f"perplexity {found['perplexity']:.2f} over {found['tokens']} tokens")
    assert "|subset:test|segment:8|context:carried|positions:restarted|reset:never|words:none|" in signature


def test_a_checkpoint_with_nan_is_refused(text, rfa, tmp_path):
    checkpoint = torch.load(rfa)
    checkpoint["model"]["decoder.layers.0.fc1.bias"].fill_(float("nan"))
    torch.save(checkpoint, tmp_path / "nan.pt")
    with pytest.raises(SystemExit, match="perplexity: the model's probabilities are not finite"):
        report_of(text, tmp_path / "nan.pt", tmp_path=tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_what_makes_no_sense_is_refused(text, data, checkpoint, softmax, rfa, tmp_path):
    def refused(*arguments, data=text, message):
        with pytest.raises(SystemExit, match=message) as error:
            report_of(data, *arguments, tmp_path=tmp_path)
        assert "\n" not in str(error.value)

    refused(softmax, message="use --context 0, or the number of tokens")
    refused(checkpoint, data=data, message="is no language model")
    refused(rfa, "--subset", "other", message="has no 'other'")
    refused(rfa, "--reset-at", "documents", message="test.documents' not found")
    learned = train_lm_here(text, tmp_path / "learned", "--max-update", "1", "--decoder-learned-pos")
    refused(learned, "--continue-positions", message="without --decoder-learned-pos")
    refused(learned, "--segment", 16, "--context", 1, message="make 17 tokens, and the model has learned 16 positions")
    assert report_of(text, learned, tmp_path=tmp_path)["tokens"] > 0
