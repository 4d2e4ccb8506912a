"""Training and scoring in context with the recipes: sentences and whole documents."""

import json

import pytest
import sacrebleu

import whole_documents
from recipe_data import FLAGS, make_documents
from scripts import refused, succeed, times

TASK = ["--task", "document_translation"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("with spaces") / "the data")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    flags = ["--cpu", "--max-tokens", "400", *FLAGS, *TASK, "--context-sentences", "2"]
    succeed("recipes/train.sh", "--data", data / "binarized", "--out", out, "--max-update", 6, "--", *flags)
    return out


def options(data, trained, out):
    return [
        *("--data", data / "binarized", "--checkpoint", trained / "checkpoint_best.pt", "--beam", 2),
        *("--reference", data / "raw/test.en", "--out", out, "--", *TASK, "--max-len-b", "20"),
    ]


def test_sentences_and_whole_documents_have_their_scores(data, trained, tmp_path):
    out = tmp_path / "test"
    printed = succeed("recipes/score.sh", *options(data, trained, out)).stdout
    report = json.loads((out / "score.json").read_text(encoding="utf-8"))
    found, wanted = (
        file.read_text(encoding="utf-8").splitlines() for file in (out / "hypotheses.txt", data / "raw/test.en")
    )
    assert len(found) == len(wanted) == report["sentences"] == 11
    bleu = sacrebleu.BLEU()
    assert report["score"] == round(bleu.corpus_score(found, [wanted]).score, 2)
    joined = [[" ".join(lines[i:j]) for i, j in ((0, 2), (2, 7), (7, 8), (8, 11))] for lines in (found, wanted)]
    whole = report["documents"]
    assert (whole["score"], whole["number"]) == (round(bleu.corpus_score(joined[0], [joined[1]]).score, 2), 4)
    signature = f"BLEU|{bleu.get_signature().format()}"
    assert report["decoding"]["seconds"] > 0 and report["decoding"]["peak_memory"] > 1e8
    assert whole["signature"] == report["signature"] == signature
    assert f"SacreBLEU test, whole documents, {signature} = {whole['score']} (4 documents)\n" in printed
    before = times(out)
    assert succeed("recipes/score.sh", *options(data, trained, out)).stdout == printed
    assert times(out) == before


def test_a_dry_run_prints_what_is_done_with_documents(data, trained, tmp_path):
    given = options(data, trained, tmp_path / "test")
    before = given.index("--")
    printed = succeed("recipes/score.sh", *given[:before], "--dry-run", *given[before:]).stdout
    lines = printed.replace("\\\n", " ").splitlines()
    assert [sum(name in line for line in lines) for name in ("whole_documents", "documents.reference")] == [2, 2]
    assert not (tmp_path / "test").exists()


def test_lines_and_documents_must_agree():
    assert whole_documents.whole_documents(["a", "b", "c"], [1, 2]) == ["a", "b c"]
    with pytest.raises(ValueError, match="3 lines, but documents of 2 sentences"):
        whole_documents.whole_documents(["a", "b", "c"], [2])


def test_data_without_documents_are_refused_before_training(data, tmp_path):
    plain = tmp_path / "data"
    plain.mkdir()
    for file in (data / "binarized").iterdir():
        if not file.name.endswith(".documents"):
            (plain / file.name).write_bytes(file.read_bytes())
    flags = ["--cpu", *FLAGS, *TASK, "--context-sentences", "2"]
    message = refused("recipes/train.sh", "--data", plain, "--out", tmp_path / "out", "--max-update", 6, "--", *flags)
    assert "fairseq-train stopped" in message
    assert "valid.documents' not found; make the data with data-prep/prepare.sh --documents" in (
        tmp_path / "out/train.log"
    ).read_text(encoding="utf-8")
