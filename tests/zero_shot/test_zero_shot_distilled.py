"""zero_shot --distill-updates: rows of models that softmax has taught, beside those that it has not."""

import json
from argparse import Namespace

import pytest

from fairseq_rfa.transfer import __main__ as transfer
from fairseq_rfa.zero_shot import __main__ as zero_shot
from fairseq_rfa.zero_shot.cases import Case, cases
from scripts import refused_by
from tiny_data import generate_here, results, train_here

LEARNING = ["--distill-tokens", 64, "--distill-lr", 0.05]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    return train_here(data, tmp_path_factory.mktemp("run"), "--max-update", "60", architecture="transformer")


@pytest.fixture
def run(data, trained, tmp_path):
    def run(*arguments):
        size = ["--directions", 16, "--seeds", 1, "--floors", 0.1, "--fit-sentences", 8, "--imitate", "unit-length"]
        arguments = [data, "--checkpoint", trained, "--out", tmp_path / "out", *size, *arguments]
        zero_shot.main([str(argument) for argument in arguments])
        return json.loads((tmp_path / "out" / "zero_shot.json").read_text())

    return run


def features(report):
    """Rows by map and updates."""
    rows = [row for row in report["rows"] if row["case"]["kind"] == "features"]
    return {(row["case"]["map"], row["case"]["updates"]): row for row in rows}


def test_distilled_rows_stand_beside_the_others(run, tmp_path, capsys):
    plain = features(run("--maps", "learned", "positive"))
    rows = tmp_path / "out" / "rows.jsonl"
    rows.write_text(rows.read_text().replace(', "updates": null', ""))  # as before there was distillation
    report = run("--maps", "learned", "positive", *LEARNING, "--distill-updates", 40)
    found = features(report)
    assert found.keys() == {(name, updates) for name in ("learned", "positive") for updates in (None, 40)}
    for name in ("learned", "positive"):
        assert found[name, None] == plain[name, None]
        assert found[name, 40]["distill_lr"] == 0.05
    assert found["learned", 40]["distance"] < 0.8 * found["learned", None]["distance"]
    table = (tmp_path / "out" / "zero_shot.md").read_text().splitlines()
    assert sum(line.startswith("| learned | own | 0.1 | 40 |") for line in table) == 1
    assert sum(line.startswith("| learned | own | 0.1 | no |") for line in table) == 1
    assert any("distill_updates:40|distill_tokens:64|distill_lr:0.05" in line for line in table)
    lines = rows.read_text()
    run("--maps", "learned", "positive", *LEARNING, "--distill-updates", 40)
    assert rows.read_text() == lines
    again = run("--maps", "learned", "--distill-tokens", 64, "--distill-lr", 0.01, "--distill-updates", 40)
    assert features(again)["learned", 40]["distance"] != found["learned", 40]["distance"]


def test_it_is_the_model_that_transfer_makes(data, run, trained, tmp_path, capsys):
    """The same seeds, so the same translations."""
    found = {}
    class Scorer:
        signature = "BLEU"

        def score(self, model, task, batches, beam):
            generator = task.build_generator([model], zero_shot.bleu.GenerationConfig(beam=beam))
            for batch in batches:
                for number, best in zip(batch["id"].tolist(), task.inference_step(generator, [model], batch)):
                    found[number] = task.target_dictionary.string(best[0]["tokens"])
            return 0.0

        def digest(self):
            return "none"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zero_shot.bleu, "make_scorer", lambda *arguments: Scorer())
        run("--maps", "learned", *LEARNING, "--distill-updates", 20, "--bleu-directions", 16)
    sizes = ["--rfa-feature-map", "learned", "--rfa-causal-dim", 16, "--rfa-cross-dim", 16]
    flags = ["--to", "rfa", *sizes, "--distill-data", data, "--distill-updates", 20, *LEARNING]
    transfer.main([str(flag) for flag in (*flags, trained, tmp_path / "rfa.pt")])
    output = results(generate_here(data, tmp_path / "rfa.pt", "--gen-subset", "valid", "--beam", "1"))
    assert [found[number] for number in sorted(found)] == [fields[1] for _, fields in output]


def test_only_the_first_floor_is_distilled_and_no_limit():
    options = Namespace(
        maps=["gaussian", "positive", "elu"], directions=[16, 32], seeds=[1], imitate=["unit-length"],
        sites=["both"], floors=[0.1, 0.01], bleu_directions=[32], distill_updates=7,
    )  # fmt: skip
    found = list(cases(options))
    assert len(set(found)) == len(found)
    assert Case("bleu", "features", "both", "positive", "unit-length", None, 32, 1, 7) in found
    distilled = [case for case in found if case.updates]
    assert {case.kind for case in distilled} == {"features"} and {case.floor for case in distilled} == {0.1, None}
    others = {case for case in found if case.updates is None}
    assert {case._replace(updates=None) for case in distilled} < others


def test_learning_without_updates_is_refused(data, trained, tmp_path, capsys):
    line = refused_by(zero_shot.main, capsys, data, "--checkpoint", trained, "--distill-lr", 0.1)
    assert "--distill-lr needs --distill-updates" in line
