"""benchmark decode in few bytes and beside CTranslate2: the same weights, the same words, the same refusals."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from fairseq_rfa.attention import decoding_precision
from fairseq_rfa.attention.packed_linear import precision_of
from fairseq_rfa.benchmark import __main__ as benchmark
from fairseq_rfa.benchmark import ctranslate as benchmark_ctranslate
from fairseq_rfa.benchmark import decode as benchmark_decode
from fairseq_rfa.benchmark import models as benchmark_models
from fairseq_rfa.benchmark.options import parse_arguments
from precisions import here
from scripts import refused_by

CPU = torch.device("cpu")
SMALL = ["--arch", "transformer_rfa_tiny", "--lengths", "6", "--vocabulary", "50", "--repeats", "1", "--no-memory"]
BESIDE = ["--baseline", "ctranslate2"]


@pytest.fixture(scope="module")
def task():
    return benchmark_models.make_task(50)


@pytest.fixture
def short_check(monkeypatch):
    monkeypatch.setattr(benchmark_decode, "CHECKED_LENGTHS", (5,))


def options_of(*arguments):
    return parse_arguments(["decode", *SMALL, *arguments], description=None)


def converted_of(task, *arguments):
    pytest.importorskip("ctranslate2")
    return benchmark_ctranslate.converted(options_of(*BESIDE, *arguments), task, CPU, 30)


@pytest.mark.usefixtures("short_check")
def test_ctranslate2_is_the_baseline(tmp_path, capsys, monkeypatch):
    pytest.importorskip("ctranslate2")
    here("int8", monkeypatch)
    benchmark.main(["decode", *SMALL, *BESIDE, "--decoding-precision", "int8", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "decode.json").read_text(encoding="utf-8"))
    (entry,) = report["measurements"]
    assert entry["baseline"]["state_bytes"] is None and entry["baseline"]["not_attention_share"] is None
    assert entry["rfa"]["state_bytes"]["total"] > 0 and entry["baseline"]["tokens_per_second"]["median"] > 0
    sign = report["signature"]
    assert sign["baseline"] == "ctranslate2" and sign["decoding_precision"] == "int8"
    assert sign["versions"]["ctranslate2"][0].isdecimal()
    *_, row, signature = capsys.readouterr().out.splitlines()
    assert "/ –" in row and "|decoding_precision:int8|" in signature and "|ctranslate2:" in signature
    assert (tmp_path / "decode.png").exists()
    assert "ctranslate2 and fairseq's softmax" in report["checked"]


def test_ctranslate2_decodes_what_fairseq_decodes_with_these_weights(task):
    converted = converted_of(task, "--batch-size", "4", "--seed", "5")
    options = converted.options
    plain = benchmark_decode.prepared_model(
        SimpleNamespace(**{**vars(options), "baseline": "transformer"}), "baseline", task, CPU
    )
    plain.load_state_dict(converted._state())
    _, run = benchmark_decode.decoder_of(plain, task, options, 12, CPU)
    expected = [task.target_dictionary.string(best[0]["tokens"]).split() for best in run()]
    assert benchmark_decode.converted_decoder_of(converted, task, options, 12)() == expected
    assert len(set(map(tuple, expected))) > 1 and set(map(len, expected)) == {12}


def test_ctranslate2_searches_with_a_beam(task):
    """Its hypotheses end without the last word's end, whose score fairseq counts: so they may be others."""
    converted = converted_of(task, "--beam", "3", "--batch-size", "2")
    found = benchmark_decode.converted_decoder_of(converted, task, converted.options, 7)()
    assert list(map(len, found)) == [7, 7]


def test_scores_of_ctranslate2_are_those_of_fairseq_and_other_weights_are_found(task, monkeypatch):
    converted = converted_of(task)
    assert converted.disagreement(2, 9) < 1e-4
    state = converted._state()
    state["decoder.layers.0.self_attn.q_proj.weight"] += 1.0
    monkeypatch.setattr(converted, "_state", lambda: state)
    assert converted.disagreement(2, 9) > benchmark_decode.TOLERANCES["float32"]
    monkeypatch.setattr(benchmark_decode, "CHECKED_LENGTHS", (9,))
    with pytest.raises(ValueError, match="baseline: ctranslate2 and fairseq differ by .* nothing is timed"):
        benchmark_decode.check_agreement({"baseline": converted}, task, converted.options, CPU)


def test_ctranslate2_that_is_missing_is_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = refused_by(benchmark.main, capsys, "decode", *SMALL, *BESIDE, "--out", tmp_path / "out")
    assert "pip install 'fairseq-rfa[ctranslate2]'" in said
    assert not list(tmp_path.iterdir())


def test_a_type_that_ctranslate2_would_replace_is_refused(capsys, monkeypatch, tmp_path):
    made_up = SimpleNamespace(get_supported_compute_types=lambda device: {"float32", "int8"})
    monkeypatch.setitem(sys.modules, "ctranslate2", made_up)
    flags = "--precision", "bfloat16", "--out", tmp_path / "out"
    said = refused_by(benchmark.main, capsys, "decode", *SMALL, *BESIDE, *flags)
    assert "does not compute in bfloat16 on this cpu; use a precision among float32, int8" in said


def test_options_that_ctranslate2_does_not_convert_are_refused(task):
    with pytest.raises(ValueError, match="^--baseline ctranslate2: .*no-token-positional-embeddings"):
        converted_of(task, "--flags", "no_token_positional_embeddings")


def test_both_models_have_the_precision_but_not_that_of_fairseq(task, monkeypatch):
    here("int8", monkeypatch)
    monkeypatch.setattr("fairseq_rfa.attention.packed_linear.LEAST_ENTRIES", 1)

    def precision(name, baseline):
        options = options_of("--decoding-precision", "int8", "--baseline", baseline)
        model = benchmark_decode.prepared_model(options, name, task, CPU)
        return precision_of(model.decoder.layers[0].fc1)

    assert [precision("rfa", "twin"), precision("baseline", "twin")] == ["int8", "int8"]
    assert precision("baseline", "transformer") == "float32"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--decoding-precision", "int4"], "invalid choice: 'int4'"),
        (["--decoding-precision", "int8", "--precision", "float16"], "needs --precision float32 and --device cpu"),
        (["--decoding-precision", "int8", "--device", "cuda"], "needs --precision float32 and --device cpu"),
        (["--flags", "decoding_precision=int8"], "use --decoding-precision of benchmark decode"),
        (["--decoding-precision", "int8"], "--decoding-precision int8: this torch multiplies no 8-bit integers"),
    ],
)
def test_precisions_that_would_mislead_are_refused(capsys, monkeypatch, tmp_path, arguments, said):
    if arguments == ["--decoding-precision", "int8"]:
        monkeypatch.setattr(decoding_precision, "_greatest_integer", lambda: None)
    else:
        here("int8", monkeypatch)
    assert said in refused_by(benchmark.main, capsys, "decode", *SMALL, *arguments, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_training_has_neither(capsys):
    for flags in (BESIDE, ["--decoding-precision", "int8"]):
        assert flags[-1] in refused_by(benchmark.main, capsys, "train", *flags)
