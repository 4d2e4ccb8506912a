"""benchmark lm: language models that generate, RFA and softmax by the length of the text. No test expects a speed."""

import json

import pytest
import torch

from fairseq_rfa.benchmark import __main__ as benchmark
from fairseq_rfa.benchmark import generate
from fairseq_rfa.benchmark.memory import measure_here
from fairseq_rfa.benchmark.models import LANGUAGE_MODEL_BASELINES, MODELS, make_language_model_task
from fairseq_rfa.benchmark.options import parse_arguments
from fairseq_rfa.model.parameters import RFA_PARAMETERS
from fairseq_rfa.model.transformer import TransformerRFADecoder
from scripts import refused_by

CPU = torch.device("cpu")
SMALL = ["--arch", "transformer_lm_rfa_tiny", "--vocabulary", "50", "--threads", "1", "--flags", "decoder_layers=1"]
BATCH, EMBED, BYTES = 2, 128, 4


def options_of(*arguments):
    return parse_arguments(["lm", *SMALL, "--lengths", "4", *arguments], description=None)


def run(out, *arguments):
    """The report that was written."""
    benchmark.main(["lm", *SMALL, *arguments, "--out", str(out)])
    return json.loads((out / "lm.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def task():
    return make_language_model_task(50)


@pytest.fixture
def short_check(monkeypatch):
    monkeypatch.setattr(generate, "CHECKED_LENGTHS", (6,))


def test_the_text_has_its_length_and_takes_a_step_for_each_token(task):
    options = options_of("--batch-size", str(BATCH), "--lengths", "3", "9")
    for name in MODELS:
        model = generate.language_model(options, name, task, CPU)
        lengths = []
        forward = model.decoder.forward

        def count(tokens, *args, forward=forward, lengths=lengths, **options):
            lengths.append(tokens.size(1))
            return forward(tokens, *args, **options)

        model.decoder.forward = count
        for length in options.lengths:
            lengths.clear()
            (first, *_), *others = generate.generator_of(model, task, options, length, CPU)[1]()
            assert lengths == list(range(1, length + 1))
            tokens = first["tokens"].tolist()
            assert len(tokens) == length and tokens.index(task.target_dictionary.eos()) == length - 1
            assert len(others) == BATCH - 1


@pytest.mark.parametrize("baseline", LANGUAGE_MODEL_BASELINES)
def test_baseline_has_the_sizes_of_the_model_and_no_features(task, baseline):
    shapes = {}
    for name in MODELS:
        model = generate.language_model(options_of("--baseline", baseline), name, task, CPU)
        shapes[name] = {key: value.shape for key, value in model.named_parameters()}
        assert ("RFA" in type(model.decoder.layers[0].self_attn).__name__) == (name == "rfa")
        assert isinstance(model.decoder, TransformerRFADecoder) == (name == "rfa" or baseline == "twin")
    own = {key for key in shapes["rfa"] if key.endswith(RFA_PARAMETERS)}
    assert own and {key: shapes["rfa"][key] for key in shapes["rfa"].keys() - own} == shapes["baseline"]


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_state_is_seen(monkeypatch, task, name):
    model = generate.language_model(options_of(), name, task, CPU)
    assert generate.disagreement(model, task, 6, 1, CPU) < 1e-5
    forward = model.decoder.forward

    def forget(tokens, *args, incremental_state=None, **options):
        state = None if incremental_state is None else {}
        return forward(tokens, *args, incremental_state=state, **options)

    monkeypatch.setattr(model.decoder, "forward", forget)
    assert generate.disagreement(model, task, 6, 1, CPU) > 1e-3


@pytest.mark.usefixtures("short_check")
def test_numbers_belong_together(tmp_path, capsys, monkeypatch):
    weighed = []

    def weigh(options, name, length):
        weighed.append((length, name))
        return measure_here(options, name, length)

    monkeypatch.setattr(benchmark, "peak_memory", weigh)
    arguments = ["--lengths", "8", "3", "8", "--softmax-most", "5", "--repeats", "3", "--batch-size", str(BATCH)]
    report = run(tmp_path, *arguments)
    assert weighed == [(3, "rfa"), (3, "baseline"), (8, "rfa")]
    short, long = report["measurements"]
    assert (short["length"], long["length"]) == (3, 8)
    assert long["baseline"] is None and long["ratio"] is None
    for entry in (short, long):
        for name in filter(entry.get, generate.NAMES):
            seconds = entry[name]["seconds"]["median"]
            assert len(entry[name]["seconds"]["all"]) == 3
            assert entry[name]["tokens_per_second"]["median"] == pytest.approx(BATCH * entry["length"] / seconds)
            per_token = [x[name]["seconds_per_token"]["median"] for x in (short, entry)]
            assert per_token[1] == pytest.approx(seconds / entry["length"])
            assert entry[name]["growth"]["median"] == pytest.approx(per_token[1] / per_token[0])
    speeds = [short[name]["tokens_per_second"]["median"] for name in MODELS]
    assert short["ratio"]["median"] == pytest.approx(speeds[0] / speeds[1])
    # The last token is chosen and not read any more.
    assert short["baseline"]["state_bytes"]["total"] == 2 * BATCH * (3 - 1) * EMBED * BYTES
    assert short["rfa"]["state_bytes"] == long["rfa"]["state_bytes"] and short["rfa"]["state_bytes"]["causal"] > 0
    assert "peak_memory" in long["rfa"] and "peak_memory" not in long["without_attention"]
    sign = report["signature"]
    assert (sign["directions"], sign["softmax_most"], sign["baseline"]) == ("64", 5, "transformer_lm")
    assert "source_length" not in sign and set(report["check"]["models"]) == set(MODELS)
    *_, limit, heading, one, two, three, four, five, signature = capsys.readouterr().out.splitlines()
    assert limit.startswith("softmax is measured up to length 5 (--softmax-most)")
    assert heading.split()[:3] == ["length", "model", "ms/token"]
    rows = [line.split()[:2] for line in (one, two, three, four, five)]
    expected = [["3", "baseline"], ["3", "rfa"], ["3", "without"], ["8", "rfa"], ["8", "without"]]
    assert rows == expected and signature == report["signature_line"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lm.json", "lm.png"]


@pytest.mark.usefixtures("short_check")
def test_a_twin_and_a_beam_without_memory(tmp_path, capsys):
    arguments = ["--lengths", "4", "--repeats", "1", "--no-memory", "--baseline", "twin", "--beam", "2"]
    (entry,) = run(tmp_path, *arguments)["measurements"]
    assert entry["baseline"]["growth"]["median"] == 1 and entry["ratio"]["median"] > 0
    assert "--softmax-most" not in capsys.readouterr().out and (tmp_path / "lm.png").exists()


def test_only_its_own_measurement_runs_without_attention(monkeypatch, task):
    options = options_of("--repeats", "1")
    models = {name: generate.language_model(options, name, task, CPU) for name in MODELS}
    layer, seen = models["rfa"].decoder.layers[0], {}
    attention = layer.self_attn

    def watch(runs, repeats, device, advance):
        for name, run in runs.items():
            hook = layer.fc1.register_forward_hook(
                lambda *_, name=name: seen.setdefault(name, set()).add(layer.self_attn is attention)
            )
            run()
            hook.remove()
        return {name: [1.0] * repeats for name in runs}

    monkeypatch.setattr(generate, "in_turn", watch)
    advanced = []
    generate.measure(models, task, options, CPU, advanced.append)
    assert seen == {(4, "rfa"): {True}, (4, "without_attention"): {False}}
    assert layer.self_attn is attention and len(advanced) + 3 == generate.num_runs(options)


def test_a_model_that_is_otherwise_step_by_step_is_not_timed(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(generate, "disagreement", lambda model, task, length, seed, device: 0.01)
    monkeypatch.delattr(generate, "in_turn")
    said = refused_by(benchmark.main, capsys, "lm", *SMALL, "--lengths", "4", "--out", tmp_path / "out")
    assert "rfa: step by step and teacher forcing differ by 1.0e-02" in said and "nothing is timed" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--lengths", "1"], "'1' is not a whole number from 2"),
        (["--softmax-most", "255"], "--softmax-most 255: use at least 256"),
        (["--source-length", "4"], "unrecognized arguments: --source-length"),
        (["--baseline", "transformer"], "'transformer_lm', 'twin'"),
        (["--arch", "transformer_rfa"], "transformer_lm_rfa_tiny_gate_arccos"),
        (["--flags", "causal_attention=softmax"], "--flags causal_attention=softmax: RFA is compared with softmax"),
        (["--flags", "cross_attention=rfa"], "--flags: unrecognized arguments: --cross-attention=rfa"),
        (["--flags", "rfa_sentence_gate"], "unrecognized arguments: --rfa-sentence-gate"),
    ],
)
def test_bad_options_are_refused_in_one_line(capsys, tmp_path, arguments, said):
    assert said in refused_by(benchmark.main, capsys, "lm", *arguments, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())
