"""The benchmark as a command: its numbers, its files, its refusals. No test expects a speed."""

import json
import struct
import sys

import pytest
import torch

from fairseq_rfa.benchmark import __main__ as benchmark
from fairseq_rfa.benchmark import decode as benchmark_decode
from fairseq_rfa.benchmark import plot as benchmark_plot
from fairseq_rfa.benchmark.memory import measure_here
from fairseq_rfa.model.transformer import TransformerRFADecoder
from scripts import refused_by

SMALL = ["--vocabulary", "50", "--repeats", "3", "--threads", "1"]
ONCE = ["--lengths", "4", "--vocabulary", "50", "--repeats", "1", "--threads", "1", "--no-memory"]
TINY = ["--arch", "transformer_rfa_tiny"]
BATCH, LAYERS, EMBED, BYTES = 2, 3, 128, 4


def run(out, *arguments):
    """The report that was written."""
    benchmark.main([*arguments, "--out", str(out)])
    return json.loads((out / f"{arguments[0]}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def decode_out(tmp_path_factory):
    """The folder, with peak memory measured in this process to save the start of others."""
    folder = tmp_path_factory.mktemp("decode") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "peak_memory", measure_here)
        run(folder, "decode", *TINY, *SMALL, "--lengths", "8", "4", "8", "--batch-size", str(BATCH))
    return folder


@pytest.fixture(scope="module")
def decoded(decode_out):
    return json.loads((decode_out / "decode.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    arguments = ["train", "--arch", "transformer_rfa_tiny_arccos", *SMALL, "--lengths", "4", "16"]
    return run(tmp_path_factory.mktemp("train"), *arguments, "--tokens", "8", "--no-memory")


def check_seconds(model, tokens):
    seconds, speed = model["seconds"], model["tokens_per_second"]
    measured = sorted(seconds["all"])
    assert [seconds[key] for key in ("minimum", "median", "maximum")] == measured
    for key, opposite in (("minimum", "maximum"), ("median", "median"), ("maximum", "minimum")):
        assert speed[key] == pytest.approx(tokens / seconds[opposite])


def test_numbers_of_decoding_belong_together(decoded):
    assert [entry["length"] for entry in decoded["measurements"]] == [4, 8]
    for entry in decoded["measurements"]:
        for name in ("rfa", "baseline", "without_attention"):
            check_seconds(entry[name], BATCH * entry["length"])
        speeds = [entry[name]["tokens_per_second"]["median"] for name in ("rfa", "baseline")]
        assert entry["ratio"]["median"] == pytest.approx(speeds[0] / speeds[1])
        assert entry["ratio"]["minimum"] <= entry["ratio"]["median"] <= entry["ratio"]["maximum"]
        for name in ("rfa", "baseline"):
            share = entry["without_attention"]["seconds"]["median"] / entry[name]["seconds"]["median"]
            assert entry[name]["not_attention_share"] == pytest.approx(share)
            peak = entry[name]["peak_memory"]
            assert peak["total"] > peak["increase"] >= 0


def test_numbers_of_training_belong_together(trained):
    assert [entry["sentences"] for entry in trained["measurements"]] == [2, 1]
    for entry in trained["measurements"]:
        for name in ("rfa", "baseline"):
            check_seconds(entry[name], entry["sentences"] * entry["length"])
            assert "peak_memory" not in entry[name]
        seconds = [entry[name]["seconds"]["median"] for name in ("rfa", "baseline")]
        assert entry["ratio"]["median"] == pytest.approx(seconds[0] / seconds[1])
    assert trained["check"]["rfa"] > 0 and trained["check"]["baseline"] > 0


def test_state_of_softmax_grows_with_the_length_and_that_of_rfa_does_not(decoded):
    short, long = decoded["measurements"]
    for entry in (short, long):
        keys_and_values = 2 * LAYERS * BATCH * entry["length"] * EMBED * BYTES
        assert entry["baseline"]["state_bytes"]["causal"] == keys_and_values
        assert entry["baseline"]["state_bytes"]["cross"] >= keys_and_values
        for name in ("rfa", "baseline"):
            state = entry[name]["state_bytes"]
            assert state["other"] == 0 and state["total"] == state["causal"] + state["cross"]
    causal = [entry["rfa"]["state_bytes"]["causal"] for entry in (short, long)]
    assert causal[0] == causal[1] > 0


def test_report_says_what_it_was_made_with(decoded, trained):
    sign = decoded["signature"]
    assert (sign["arch"], sign["baseline"]) == ("transformer_rfa_tiny", "transformer")
    assert (sign["map"], sign["directions"], sign["gate"]) == ("gaussian", "64/128", "no")
    assert (sign["batch_size"], sign["beam"], sign["repeats"], sign["threads"]) == (BATCH, 1, 3, 1)
    assert sign["precision"] == "float32" and sign["device"].startswith("cpu (") and sign["seed"] == 1
    assert sign["versions"]["torch"] == torch.__version__
    assert {"fairseq", "fairseq_rfa", "python"} <= set(sign["versions"])
    assert decoded["signature_line"].count("\n") == 0
    assert "|beam:1|" in decoded["signature_line"] and "|commit:" in decoded["signature_line"]
    assert decoded["check"]["rfa"] <= decoded["check"]["tolerance"] == 1e-3
    assert trained["signature"]["map"] == "arccos" and trained["signature"]["tokens"] == 8


def test_picture_is_wide_and_nothing_else_is_left(decode_out):
    assert sorted(file.name for file in decode_out.iterdir()) == ["decode.json", "decode.png"]
    width, height = struct.unpack(">II", (decode_out / "decode.png").read_bytes()[16:24])
    assert width >= 800 and height >= 400


@pytest.mark.parametrize(
    "arguments",
    [
        ["--arch", "transformer_rfa_tiny_gate_arccos", "--baseline", "twin", "--beam", "2"],
        [*TINY, "--flags", "rfa_gate", "rfa_causal_dim=8", "decoder_layers=1", "--precision", "bfloat16"],
    ],
)
def test_variants_are_decoded_and_a_table_is_printed(tmp_path, capsys, monkeypatch, arguments):
    monkeypatch.setattr(benchmark_decode, "CHECKED_LENGTHS", (5,))
    report = run(tmp_path / "out", "decode", *ONCE, *arguments)
    assert report["signature"]["gate"] == "yes"
    *_, heading, row, signature = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["length", "tokens/s", "ratio"] and "state" in heading
    assert row.split()[0] == "4"
    assert signature == report["signature_line"]


def test_sources_may_all_have_one_length(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_decode, "CHECKED_LENGTHS", (5,))
    report = run(tmp_path, "decode", *TINY, *ONCE, "--source-length", "9", "--batch-size", str(BATCH))
    (entry,) = report["measurements"]
    assert report["signature"]["source_length"] == 9 and entry["length"] == 4
    per_position = 2 * LAYERS * BATCH * EMBED * BYTES
    state = entry["baseline"]["state_bytes"]
    assert state["causal"] == 4 * per_position and state["cross"] >= 9 * per_position
    assert (tmp_path / "decode.png").exists()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["decode", "--lengths", "8", "1"], "'1' is not a whole number from 2"),
        (["train", "--lengths", "-4"], "'-4' is not a whole number from 2"),
        (["train", "--source-length", "1"], "'1' is not a whole number from 2"),
        (["decode", "--arch", "transformer"], "transformer_rfa_tiny_gate_arccos"),
        (["decode", "--baseline", "linear"], "'transformer', 'twin'"),
        (["decode", "--repeat", "1"], "unrecognized arguments"),
        (["train", "--beam", "2"], "unrecognized arguments"),
        (["decode", "--vocabulary", "10", "--beam", "5"], "--vocabulary 10: use at least 14"),
        (["decode", "--device", "nowhere"], "use --device cpu"),
        (["decode", "--flags", "rfa_gat"], "--flags: unrecognized arguments: --rfa-gat; use"),
        (["decode", "--flags", "rfa_feature_map=none"], "invalid choice: 'none'"),
        (["decode", *TINY, *ONCE, "--flags", "rfa_causal_dim=0"], "--rfa-causal-dim is 0; use at least 1"),
        (["train", "--tokens", "0"], "'0' is not a whole number from 1"),
        ([], "decode|train"),
    ],
)
def test_bad_options_are_refused_in_one_line(capsys, tmp_path, arguments, said):
    out = ["--out", tmp_path / "out"] if arguments else []
    assert said in refused_by(benchmark.main, capsys, *arguments, *out)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_absent_cuda_is_refused(capsys, tmp_path):
    said = refused_by(benchmark.main, capsys, "decode", "--device", "cuda", "--out", tmp_path / "out")
    assert "--device cuda" in said and "use --device cpu" in said


def test_missing_matplotlib_names_the_remedy(capsys, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "fairseq_rfa.benchmark.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused_by(benchmark.main, capsys, "decode", "--out", tmp_path / "out")
    assert "matplotlib" in said and "pip install 'fairseq-rfa[recipes]'" in said


def test_a_model_that_decodes_otherwise_with_its_state_is_not_timed(capsys, monkeypatch, tmp_path):
    right = TransformerRFADecoder.extract_features

    def wrong(self, tokens, encoder_out=None, incremental_state=None, **options):
        features, extra = right(self, tokens, encoder_out, incremental_state, **options)
        return features if incremental_state is None else 1.01 * features, extra

    monkeypatch.setattr(TransformerRFADecoder, "extract_features", wrong)
    monkeypatch.delattr(benchmark_decode, "in_turn")
    said = refused_by(benchmark.main, capsys, "decode", *TINY, *ONCE, "--out", tmp_path / "out")
    assert "rfa: cached and uncached decoding differ by 1.0e-02" in said and "more than 0.001" in said
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_earlier_results_and_nothing_of_its_own(capsys, monkeypatch, tmp_path, decoded):
    def fail(report, path):
        open(path, "w").close()
        raise OSError("no space left")

    monkeypatch.setattr(benchmark_plot, "plot", fail)
    monkeypatch.setattr(benchmark, "study", lambda options: decoded)
    assert "no space left" in refused_by(benchmark.main, capsys, "decode", "--out", tmp_path / "new" / "out")
    assert not list(tmp_path.iterdir())
    (tmp_path / "decode.json").write_text("earlier")
    refused_by(benchmark.main, capsys, "decode", "--out", tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["earlier"]
