"""benchmark documents: sentences after others of their window, softmax and RFA in decoder and encoder."""

import json

import pytest
import torch

from fairseq_rfa.benchmark import __main__ as benchmark
from fairseq_rfa.benchmark import windows
from fairseq_rfa.benchmark.memory import measure_here
from fairseq_rfa.benchmark.options import parse_arguments
from fairseq_rfa.documents import generator
from fairseq_rfa.documents.windows import SEPARATOR
from scripts import refused_by

CPU = torch.device("cpu")
SMALL = ["--arch", "transformer_rfa_tiny", "--vocabulary", "50", "--batch-size", "2", "--sentence-length", "5"]
ONCE = [*SMALL, "--repeats", "1", "--no-memory", "--windows", "2", "--flags", "decoder_layers=1", "encoder_layers=1"]
NAMES = list(windows.MODELS)


def options_of(*arguments):
    return parse_arguments(["documents", *SMALL, *arguments], description=None)


def run(out, *arguments):
    """The report that was written."""
    benchmark.main(["documents", *arguments, "--out", str(out)])
    return json.loads((out / "documents.json").read_text(encoding="utf-8"))


@pytest.fixture
def short_check(monkeypatch):
    monkeypatch.setattr(windows, "CHECKED_LENGTH", 6)


def test_windows_have_sentences_of_one_length():
    task = windows.window_task(50)
    dictionary = task.target_dictionary
    assert len(dictionary) == 50 and task.source_dictionary is dictionary
    tokens = windows.random_windows(task, 40, 3, 5, 1, CPU)
    separator = dictionary.index(SEPARATOR)
    assert tokens.shape == (40, 15) and separator != dictionary.unk()
    assert tokens.eq(separator).nonzero()[:, 1].tolist() == [4, 9] * 40
    assert tokens.eq(dictionary.eos()).nonzero()[:, 1].tolist() == [14] * 40
    words = tokens[tokens.ne(separator) & tokens.ne(dictionary.eos())]
    assert dictionary.nspecial <= words.min() and words.max() < 49


@pytest.mark.parametrize("window", [1, 3])
def test_the_prefix_is_read_in_one_chunk_and_the_last_sentence_is_translated(monkeypatch, window):
    options = options_of("--beam", "2", "--windows", str(window))
    task = windows.window_task(50)
    model = windows.window_model(options, "rfa", task, CPU)
    read, seen = generator.read_prefix, []

    def read_prefix(decoder, tokens, encoder_out):
        seen.append((tokens.shape, encoder_out["encoder_out"][0].shape[:2]))
        return read(decoder, tokens, encoder_out)

    monkeypatch.setattr(generator, "read_prefix", read_prefix)
    hypotheses = windows.translator_of(model, task, options, window, CPU)()
    # Of each sentence before the last 5 tokens; the last separator begins the search, in place of the end of all.
    assert seen == ([((2, 10), (15, 2))] if window == 3 else [])
    assert [len(best[0]["tokens"]) for best in hypotheses] == [5, 5]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_prefix_is_seen(monkeypatch, name):
    task = windows.window_task(50)
    model = windows.window_model(options_of(), name, task, CPU)
    assert windows.disagreement(model, task, 1, CPU) < 1e-5
    read = generator.read_prefix
    monkeypatch.setattr(generator, "read_prefix", lambda decoder, tokens, out: read(decoder, tokens[:, 1:], out))
    assert windows.disagreement(model, task, 1, CPU) > 1e-3


def test_models_differ_in_the_places_of_attention():
    task = windows.window_task(50)
    kinds = {}
    for name in NAMES:
        model = windows.window_model(options_of(), name, task, CPU)
        layer = model.decoder.layers[0]
        places = layer.self_attn, layer.encoder_attn, model.encoder.layers[0].self_attn
        kinds[name] = ["RFA" in type(place).__name__ for place in places]
    assert kinds == {
        "softmax": [False, False, False],
        "rfa": [True, True, False],
        "softmax_encoder_rfa": [False, False, True],
        "rfa_encoder_rfa": [True, True, True],
    }


@pytest.mark.usefixtures("short_check")
def test_numbers_belong_together(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "peak_memory", measure_here)
    few = ["--flags", "decoder_layers=1", "encoder_layers=1"]
    report = run(tmp_path, *SMALL, *few, "--windows", "3", "1", "3", "--repeats", "3", "--threads", "1")
    assert [(entry["window"], entry["length"]) for entry in report["measurements"]] == [(1, 5), (3, 15)]
    first = report["measurements"][0]
    for entry in report["measurements"]:
        for name in NAMES:
            found, seconds = entry[name], entry[name]["seconds"]
            assert len(seconds["all"]) == 3
            assert found["seconds_per_sentence"]["median"] == seconds["median"] / 2
            for ratio, other in (("ratio", entry["softmax"]), ("growth", first[name])):
                assert found[ratio]["median"] == pytest.approx(seconds["median"] / other["seconds"]["median"])
            assert found["peak_memory"]["total"] > found["peak_memory"]["increase"] >= 0
    sign = report["signature"]
    assert (sign["models"], sign["sentence_length"], sign["directions"]) == (NAMES, 5, "64/128/128")
    assert set(report["check"]["models"]) == set(NAMES) and report["check"]["prefix"] == 18
    *_, heading, one, two, three, four, five, six, seven, eight, signature = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["window", "model", "s/sentence"]
    rows = [line.split()[:2] for line in (one, two, three, four, five, six, seven, eight)]
    assert rows == [[window, name] for window in ("1", "3") for name in NAMES]
    assert signature == report["signature_line"] and f"|models:{','.join(NAMES)}|" in signature
    assert sorted(file.name for file in tmp_path.iterdir()) == ["documents.json", "documents.png"]


@pytest.mark.usefixtures("short_check")
def test_some_models_and_a_twin(tmp_path):
    report = run(tmp_path, *ONCE, "--models", "rfa", "softmax", "--baseline", "twin", "--beam", "2")
    (entry,) = report["measurements"]
    assert set(entry) == {"window", "length", "softmax", "rfa"} and report["signature"]["models"] == ["softmax", "rfa"]
    assert report["signature"]["directions"] == "64/128" and (tmp_path / "documents.png").exists()


def test_a_model_that_reads_a_prefix_otherwise_is_not_timed(capsys, monkeypatch, tmp_path):
    read = generator.read_prefix
    monkeypatch.setattr(generator, "read_prefix", lambda decoder, tokens, out: read(decoder, tokens[:, 1:], out))
    monkeypatch.delattr(windows, "in_turn")
    said = refused_by(benchmark.main, capsys, "documents", *ONCE, "--models", "softmax", "--out", tmp_path / "out")
    assert "softmax: a prefix in one chunk and teacher forcing differ by " in said and "nothing is timed" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--windows", "0"], "'0' is not a whole number from 1"),
        (["--sentence-length", "1"], "'1' is not a whole number from 2"),
        (["--models", "rfa"], "--models rfa: add softmax, which the others are compared with"),
        (["--models", "linear"], "invalid choice: 'linear'"),
        (["--lengths", "4"], "unrecognized arguments: --lengths"),
        (["--flags", "encoder_attention=rfa"], "--flags encoder_attention=rfa: --models says where"),
        (["--vocabulary", "6"], "--vocabulary 6: use at least 7"),
        (["--baseline", "ctranslate2"], "invalid choice: 'ctranslate2'"),
    ],
)
def test_bad_options_are_refused_in_one_line(capsys, tmp_path, arguments, said):
    assert said in refused_by(benchmark.main, capsys, "documents", *arguments, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())
