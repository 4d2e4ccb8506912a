"""A model trained with softmax, with features in place of it: what is measured, and the program."""

import json
import shutil
from argparse import Namespace

import pytest
import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from sacrebleu.metrics import BLEU

from fairseq_rfa import TransformerRFAModel
from fairseq_rfa.model.parameters import PLACES
from fairseq_rfa.programs.trained_model import readable_sentences
from fairseq_rfa.transfer.constants import measure_moments
from fairseq_rfa.transfer.temperature import fit_sigma
from fairseq_rfa.zero_shot import __main__ as zero_shot
from fairseq_rfa.zero_shot.cases import SITES, Case, cases
from fairseq_rfa.zero_shot.logits import compare, hidden_states, make_batches
from fairseq_rfa.zero_shot.models import Trained, converted
from fairseq_rfa.zero_shot.verdict import best, curves
from scripts import refused_by
from tiny_data import SMALL, build, generate_here, parse, results, train_here

SOFTMAX = ("--causal-attention", "softmax", "--cross-attention", "softmax")
NO_FLOOR = 1e-20
each_site = pytest.mark.parametrize("sites", SITES)
ROUNDING = 1e-5
"""Distances are of float32 models of two layers: some 1e-7 of rounding, enlarged by the layers."""


class Measured:
    """A softmax model with random weights, and the numbers of cases on sentences of different lengths."""

    def __init__(self, data):
        task = tasks.setup_task(convert_namespace_to_omegaconf(parse(data)).task)
        task.load_dataset("valid")
        model = build(data, *SOFTMAX)
        options = vars(parse(data, *SMALL, *SOFTMAX))
        self.trained = Trained(model, options, task)
        self.batches = make_batches(task.dataset("valid"), range(8), torch.device("cpu"))
        self.states = hidden_states(model, self.batches)
        self.fitted = fit_sigma(model, self.batches, tuple(PLACES))

    def numbers(self, *case, **options):
        case = Case("logits", *case, **options)
        moments = None
        if case.map == "oprf" and case.kind == "features":
            student = converted(self.trained, case, self.fitted)
            moments = measure_moments(self.trained.model, student, self.batches, SITES[case.sites])
        model = converted(self.trained, case, self.fitted, moments)
        return compare(model, self.trained.model, self.states, self.batches)

    def distance(self, *case, **options):
        return self.numbers(*case, **options)["distance"]


@pytest.fixture(scope="module")
def measured(data):
    return Measured(data)


MORE = [(sites, *of) for sites in SITES for of in (("positive", None), ("oprf", None), ("gaussian", 0.1))]
MORE.remove(("encoder", "positive", None))  # whose seeds differ too much at the one layer of this encoder


@pytest.mark.parametrize("sites, name, floor", MORE)
def test_more_directions_come_nearer_to_softmax(measured, sites, name, floor):
    """16 times the directions leave a quarter of the error, and less where few let denominators meet the floor; a mean
    over 3 seeds may miss that by a factor of 2.
    """
    few, many = (
        sum(measured.distance("features", sites, name, "softmax", floor, number, seed) for seed in (1, 2, 3)) / 3
        for number in (64, 1024)
    )
    assert 0.12 < many / few < 0.5


@pytest.mark.parametrize("name", ["positive", "oprf", "gaussian", "cosine"])
@each_site
def test_the_limit_of_imitating_softmax_is_softmax(measured, sites, name):
    assert measured.distance("limit", sites, name, "softmax", NO_FLOOR) < ROUNDING


@each_site
def test_fitted_oprf_is_nearer_than_positive(measured, sites):
    distances = {
        name: sum(measured.distance("features", sites, name, "softmax", None, 128, seed) for seed in (1, 2, 3))
        for name in ("positive", "oprf")
    }
    assert distances["oprf"] < 0.9 * distances["positive"]


def test_a_great_floor_leads_to_another_limit(measured):
    assert measured.distance("limit", "both", "gaussian", "softmax", 3.0) > 100 * ROUNDING


@pytest.mark.parametrize("name", ["positive", "gaussian"])
def test_features_of_unit_length_approach_their_own_limit(measured, name):
    """With 4,096 directions the error is 1/64 of that with one, so less than a tenth of what unit length costs."""
    limit = measured.distance("limit", "both", name, "unit-length", 0.001)
    features = measured.distance("features", "both", name, "unit-length", 0.001, 4096, 1)
    assert limit > 100 * ROUNDING
    assert abs(features / limit - 1) < 0.2


@pytest.mark.parametrize("name", ["positive", "gaussian", "arccos"])
def test_the_limit_in_causal_attention_is_a_window_over_all(measured, name, monkeypatch):
    way = "own" if name == "arccos" else "unit-length"
    limit = measured.numbers("limit", "causal", name, way, 0.1)
    case = Case("logits", "features", "causal", name, way, 0.1, 1, 1)
    build_model = TransformerRFAModel.build_model

    def with_window(options, task):
        return build_model(Namespace(**vars(options) | {"rfa_local_window": 20}), task)

    monkeypatch.setattr(TransformerRFAModel, "build_model", with_window)
    model = converted(measured.trained, case, measured.fitted)
    expected = compare(model, measured.trained.model, measured.states, measured.batches)
    assert limit == pytest.approx(expected, rel=1e-4)


def test_fitted_sigma_is_nearer_than_none(measured):
    """Here σ = 1 is too small."""
    own = measured.distance("limit", "both", "positive", "own")
    assert measured.distance("limit", "both", "positive", "unit-length") < own
    assert own < measured.distance("equal", "both")


def test_the_model_itself_is_at_no_distance(measured):
    numbers = measured.numbers("softmax")
    assert numbers["distance"] == numbers["divergence"] == 0
    assert numbers["agreement"] == 1


def test_numbers_are_those_of_each_sentence_alone(measured):
    """What stands in the padding counts for nothing; perplexity is that of the words."""
    task, model = measured.trained.task, measured.trained.model
    alone = [make_batches(task.dataset("valid"), [i], torch.device("cpu"))[0] for i in range(8)]
    loss, words = 0.0, 0
    for batch in alone:
        with torch.no_grad():
            logits, _ = model(**batch["net_input"])
        loss += torch.nn.functional.cross_entropy(logits[0], batch["target"][0], reduction="sum").item()
        words += batch["target"].numel()
    case = Case("logits", "features", "both", "gaussian", "softmax", 0.1, 16, 1)
    expected = compare(converted(measured.trained, case), model, hidden_states(model, alone), alone)
    assert measured.numbers("features", "both", "gaussian", "softmax", 0.1, 16, 1) == pytest.approx(expected, rel=1e-4)
    assert measured.numbers("softmax")["perplexity"] == pytest.approx(torch.tensor(loss / words).exp().item(), rel=1e-4)
    assert expected["words"] == words


def test_parameters_stay(measured):
    case = Case("logits", "features", "both", "cosine", "softmax", 0.1, 16, 1)
    parameters = converted(measured.trained, case).state_dict()
    for name, value in measured.trained.model.state_dict().items():
        assert torch.equal(parameters[name], value), name


def test_first_sentences_leave_out_those_too_long(measured):
    dataset = measured.trained.task.dataset("valid")
    model = Namespace(max_positions=lambda: (4, 4))
    found = readable_sentences(dataset, model, 3, "there is none")
    assert found == [index for index in range(8) if dataset.num_tokens(index) <= 4][:3]


def test_maps_with_kernels_of_their_own_are_not_said_to_imitate():
    options = Namespace(
        maps=["elu", "arccos", "gaussian"], directions=[16, 32], seeds=[1], imitate=["softmax"], sites=["both"],
        floors=[0.1, 0.01], bleu_directions=[16], distill_updates=None,
    )  # fmt: skip
    found = list(cases(options))
    assert len(set(found)) == len(found)
    assert {case.imitate for case in found if case.map in ("elu", "arccos")} == {"own"}
    assert [case.directions for case in found if case.map == "elu" and case.measure == "logits"] == [None]
    assert [case.directions for case in found if case.map == "gaussian" and case.floor == 0.01] == [None, 32]
    assert [case.map for case in found if case.measure == "bleu"] == [None, "elu", "arccos", "gaussian"]


def row(name, directions, seed, distance, kind="features"):
    case = Case("logits", kind, "both", name, "softmax", None, directions, seed)
    return {"case": case._asdict(), "distance": distance}


def test_curves_find_slope_and_best_map():
    rows = [row("positive", number, seed, seed * number**-0.5) for number in (4, 16, 64) for seed in (1, 2, 3)]
    rows += [row("gaussian", number, 1, 4 * number**-0.25) for number in (4, 16, 64)]
    rows += [row("positive", None, None, 0.25, kind="limit")]
    positive, gaussian = curves(rows)
    assert positive["slope"] == pytest.approx(-0.5)
    assert gaussian["slope"] == pytest.approx(-0.25)
    assert positive["limit"] == {"distance": 0.25}
    assert positive["points"][1]["distance"] == {"median": 0.5, "least": 0.25, "greatest": 0.75}
    assert best([gaussian, positive], "both", 64) == positive


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Prepared data, and a checkpoint of fairseq's own architecture."""
    folder = tmp_path_factory.mktemp("softmax")
    binary = shutil.copytree(data, folder / "binary")
    (folder / "raw").mkdir()
    shutil.copy(data.parent / "valid.en", folder / "raw")
    (binary / "code").write_text("#version: 0.2\nA B</w>\n")
    (binary / "preparation").write_text("tokenizer=none\n")
    return binary, train_here(data, folder / "run", "--max-update", "100", architecture="transformer")


@pytest.fixture
def run(trained, tmp_path):
    data, checkpoint = trained

    def run(*arguments, imitate="softmax"):
        settings = ["--directions", 4, 16, "--seeds", 1, "--imitate", imitate, "--floors", 0.1, "--fit-sentences", 8]
        arguments = [data, "--checkpoint", checkpoint, "--out", tmp_path / "out", *settings, *arguments]
        zero_shot.main([str(argument) for argument in arguments])
        return tmp_path / "out"

    return run


def lines_of(folder):
    return (folder / "rows.jsonl").read_text().splitlines()


def test_the_program_writes_its_files_and_finishes_only_what_is_missing(run, capsys):
    out = run("--maps", "positive", "elu")
    report = json.loads((out / "zero_shot.json").read_text())
    assert {curve["map"] for curve in report["curves"]} == {"positive", "elu"}
    assert report["signature"]["arch"] == "transformer"
    assert (out / "zero_shot.md").read_text() == capsys.readouterr().out
    assert len((out / "zero_shot.csv").read_text().splitlines()) == 1 + len(report["rows"])
    assert (out / "zero_shot.png").read_bytes().startswith(b"\x89PNG")

    finished = lines_of(out)
    unfinished = "\n".join(finished[:-1]) + "\n" + finished[-1][:20]
    (out / "rows.jsonl").write_text(unfinished)
    run("--maps", "positive", "elu", imitate="unit-length")
    again = lines_of(out)
    assert again[: len(finished) - 1] == finished[:-1]
    found = [json.loads(line)["case"] for line in again[len(finished) - 1 :]]
    assert {(case["map"], case["imitate"]) for case in found} == {("elu", "own"), ("positive", "unit-length")}


def test_sites_with_the_encoder(run, monkeypatch):
    """Each has its table; σ of the decoder is that of a study without the encoder."""
    fitted = []

    def fit(*arguments):
        fitted.append(fit_sigma(*arguments))
        return fitted[-1]

    monkeypatch.setattr(zero_shot, "fit_sigma", fit)
    run("--maps", "positive", "--sites", "both", imitate="unit-length")
    out = run("--maps", "positive", "oprf", "--sites", "encoder", "all", imitate="unit-length")
    table = (out / "zero_shot.md").read_text()
    assert "Features in the encoder (with equal weights" in table
    assert "Features in encoder, causal and cross attention (with equal weights" in table
    rows = json.loads((out / "zero_shot.json").read_text())["rows"]
    assert {row["case"]["sites"] for row in rows} == {None, "encoder", "all"}
    only, more = fitted
    assert list(only) == ["causal", "cross"] and list(more) == ["causal", "cross", "encoder"]
    assert all(torch.equal(*pair) for place in only for pair in zip(only[place], more[place]))


def test_rows_of_other_sentences_are_not_mixed_in(run, capsys):
    out = run("--maps", "elu")
    before = lines_of(out)
    with pytest.raises(SystemExit, match="was made with another sentences; use another --out"):
        run("--maps", "elu", "--sentences", "3")
    assert lines_of(out) == before


def test_the_score_is_that_of_fairseq_generate(run, trained, capsys):
    data, checkpoint = trained
    out = run("--maps", "elu", "--bleu-directions", "16", "--beam", "1")
    rows = json.loads((out / "zero_shot.json").read_text())["rows"]
    scores = {row["case"]["kind"]: row["bleu"] for row in rows if "bleu" in row}
    translations = results(generate_here(data, checkpoint, "--gen-subset", "valid", "--beam", "1"))
    references = (data.parent / "raw" / "valid.en").read_text().splitlines()
    expected = BLEU().corpus_score([fields[-1] for _, fields in translations], [references])
    assert scores["softmax"] == pytest.approx(expected.score)
    assert expected.score > 1
    assert scores["features"] != scores["softmax"]


def test_what_makes_no_sense_is_refused(trained, checkpoint, tmp_path, capsys):
    data, softmax = trained
    (tmp_path / "text").write_text("no checkpoint")
    (tmp_path / "reference").write_text("one line\n")

    def refused(*arguments, checkpoint=softmax):
        arguments = [data, "--checkpoint", checkpoint, "--out", tmp_path / "out", *arguments]
        return refused_by(zero_shot.main, capsys, *arguments)

    assert "has random feature attention already" in refused(checkpoint=checkpoint)
    encoder = train_here(data, tmp_path / "run", "--max-update", "1", "--encoder-attention", "rfa", *SOFTMAX)
    capsys.readouterr()  # what torch says of the training
    assert "--encoder-attention softmax" in refused(checkpoint=encoder)
    assert "cannot load" in refused(checkpoint=tmp_path / "text")
    assert "use some of --directions 4" in refused("--directions", 4, "--bleu-directions", 8)
    assert "1 lines and 'valid' 8" in refused("--bleu-directions", 16, "--reference", tmp_path / "reference")
    assert "not found; correct --reference" in refused("--bleu-directions", 16, "--reference", tmp_path / "none")
    assert not (tmp_path / "out").exists()
