import importlib.metadata
import json
import re
import shutil
import signal

import pytest

import hypotheses
import number_phrases
from scripts import (
    PATIENCE,
    checksums,
    programs_with,
    refused,
    run_script,
    start,
    succeed,
    times,
    wait_until,
    write_executable,
)

SCORE = "recipes/score.sh"
SMALL = "--cpu --encoder-layers 1 --decoder-layers 1 --max-tokens 400 --warmup-updates 4".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared data with two tests; their sizes are no multiples of 8."""
    folder = tmp_path_factory.mktemp("with spaces") / "the data"
    pairs = number_phrases.sentence_pairs(140, seed=6)
    parts = {"train": pairs[:110], "valid": pairs[110:120], "test": pairs[120:133]}
    parts["test1"] = pairs[133:]
    (folder / "raw").mkdir(parents=True)
    for name, part in parts.items():
        for side, language in enumerate(("de", "en")):
            lines = "".join(pair[side] + "\n" for pair in part)
            (folder / f"raw/{name}.{language}").write_text(lines, encoding="utf-8")
    options = ["--source", "de", "--target", "en", "--out", folder, "--merges", 80]
    succeed("data-prep/prepare.sh", "--raw", folder / "raw", *options)
    return folder


def train_and_score(data, out, updates, *flags, **options):
    arguments = ["--data", data, "--out", out, "--max-update", updates, "--", *SMALL, *flags]
    return succeed("recipes/multi30k.sh", *arguments, **options)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run from another folder with relative paths; what it printed is kept beside it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "data").symlink_to(data)
    result = train_and_score("data", "the run", 6, cwd=folder)
    (folder / "printed").write_text(result.stdout, encoding="utf-8")
    return folder / "the run"


def test_training_leaves_a_folder_that_decodes_by_itself(data, trained):
    for name in ("code", "dict.de.txt", "dict.en.txt"):
        assert (trained / name).read_bytes() == (data / "binarized" / name).read_bytes()
    assert (trained / "checkpoint_last.pt").exists()
    log = (trained / "train.log").read_text(encoding="utf-8")
    assert "num_updates 6" in log
    assert log in (trained.parent / "printed").read_text(encoding="utf-8")


def test_from_pretrained_splits_raw_text_as_in_training(data, trained):
    """The folder of the run is enough: words, pieces and numbers come out as in the prepared data."""
    from fairseq_rfa import TransformerRFAModel

    model = TransformerRFAModel.from_pretrained(
        str(trained), "checkpoint_best.pt", data_name_or_path=".", tokenizer="moses", bpe="subword_nmt"
    )
    raw = (data / "raw/test.de").read_text(encoding="utf-8").splitlines()
    prepared = (data / "bpe/test.de").read_text(encoding="utf-8").splitlines()
    for line, pieces in zip(raw, prepared):
        numbers = model.src_dict.encode_line(pieces, add_if_not_exist=False, append_eos=True)
        assert model.encode(line).tolist() == numbers.tolist()
    assert isinstance(model.translate(raw[0]), str)


@pytest.mark.parametrize(
    "own, kept", [({}, "4294967296 68719476736"), ({"MALLOC_TRIM_THRESHOLD_": "1000"}, "4294967296 1000")]
)
def test_a_training_keeps_its_memory(data, tmp_path, monkeypatch, own, kept):
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "bin").mkdir()
    write_executable(
        tmp_path / "bin/fairseq-train",
        "#!/usr/bin/env bash\n"
        'echo "kept $MALLOC_MMAP_THRESHOLD_ $MALLOC_TRIM_THRESHOLD_"\n'
        f'touch "{tmp_path}/run/checkpoint_best.pt"\n',
    )
    options = ["--data", data / "binarized", "--out", tmp_path / "run"]
    printed = succeed("recipes/train.sh", *options, first=tmp_path / "bin").stdout
    assert f"kept {kept}\n" in printed


@pytest.mark.parametrize("subset", ["test", "test1"])
def test_the_score_is_sacrebleus_on_raw_text(data, trained, subset):
    import sacrebleu

    report = json.loads((trained / subset / "score.json").read_text(encoding="utf-8"))
    found = (trained / subset / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
    wanted = (data / f"raw/{subset}.en").read_text(encoding="utf-8").splitlines()
    assert len(found) == len(wanted)
    bleu = sacrebleu.BLEU()
    expected = bleu.corpus_score(found, [wanted])
    assert report["score"] == round(expected.score, 2)
    assert report["signature"] == f"BLEU|{bleu.get_signature().format()}"
    lines = (trained.parent / "printed").read_text(encoding="utf-8").splitlines()
    start = f"SacreBLEU {subset} {report['signature']} = {report['score']} ({len(wanted)} sentences"
    assert sum(line.startswith(start) for line in lines) == 1


def test_a_report_says_how_the_score_came_about(trained):
    report = json.loads((trained / "test/score.json").read_text(encoding="utf-8"))
    assert report["checkpoints"] == ["checkpoint_best.pt"]
    assert report["architectures"] == ["transformer_rfa_tiny"]
    assert (report["subset"], report["beam"], report["sentences"]) == ("test", 5, 13)
    assert report["versions"]["torch"] == importlib.metadata.version("torch")
    assert report["versions"]["sacrebleu"] == importlib.metadata.version("sacrebleu")
    assert all(report["versions"].values())


def test_a_second_run_repeats_nothing(data, trained):
    before = times(trained)
    again = train_and_score(data, trained, 6).stdout
    assert times(trained) == before
    printed = (trained.parent / "printed").read_text(encoding="utf-8")
    scores = [line for line in printed.splitlines() if line.startswith("SacreBLEU")]
    assert [line for line in again.splitlines() if line.startswith("SacreBLEU")] == scores


def test_more_updates_continue_and_the_scores_follow(data, trained, tmp_path):
    out = tmp_path / "longer"
    shutil.copytree(trained, out)
    train_and_score(data, out, 9)
    log = (out / "train.log").read_text(encoding="utf-8")
    assert "(epoch 2 @ 6 updates)" in log or "@ 6 updates" in log.split("num_updates 6")[1]
    assert "num_updates 9" in log
    assert (out / "test/settings").read_bytes() != (trained / "test/settings").read_bytes()


def test_another_model_in_the_same_folder_is_refused(data, trained):
    before = checksums(trained)
    arguments = ["--data", data, "--out", trained, "--max-update", 6, "--arch"]
    message = refused("recipes/multi30k.sh", *arguments, "transformer_rfa_tiny_gate", "--", *SMALL)
    assert "arch=transformer_rfa_tiny_gate" in message and "another --out" in message
    assert checksums(trained) == before


def score_arguments(data, trained, *more):
    return [
        *("--data", data / "binarized", "--checkpoint", trained / "checkpoint_best.pt"),
        *("--reference", data / "raw/test.en", *more),
    ]


def test_an_ensemble_is_scored_elsewhere_and_nothing_else_is_written(data, trained, tmp_path):
    arguments = score_arguments(data, trained, "--beam", 2, "--json", tmp_path / "kept.json")
    arguments[3] = f"{trained}/checkpoint_best.pt:{trained}/checkpoint_last.pt"
    before = checksums(trained)
    line = succeed(SCORE, *arguments, "--", "--cpu", "--lenpen", "0.6").stdout
    report = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))
    assert report["checkpoints"] == ["checkpoint_best.pt", "checkpoint_last.pt"]
    assert report["architectures"] == ["transformer_rfa_tiny"] * 2
    assert report["flags"] == ["--cpu", "--lenpen", "0.6"]
    assert report["beam"] == 2
    assert f"= {report['score']} " in line
    assert checksums(trained) == before
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]


def lines_of(texts):
    """What fairseq-generate prints, the last sentence first."""
    result = []
    for number, text in reversed(list(enumerate(texts))):
        result += [f"S-{number}\tquelle", f"H-{number}\t-0.5\t@@ {text}", f"D-{number}\t-0.5\t{text}"]
    return [line + "\n" for line in result]


def test_hypotheses_are_put_in_order():
    texts = [f"sentence {number}" for number in range(12)]
    texts[3], texts[7] = "", "D-1 is a name"
    assert hypotheses.in_order(hypotheses.read_hypotheses(lines_of(texts)), 12) == texts


FAULTS = [
    (lambda lines: lines + ["D-2\t-0.5\tagain\n"], "sentence 2 occurs twice; .*--nbest 1"),
    (lambda lines: lines[:3] + lines[6:], "1 of 13 sentences are missing, the first is 11"),
    (lambda lines: lines[3:], "1 of 13 sentences are missing, the first is 12"),
    (lambda lines: ["D-13\t-0.5\tmore\n"] + lines, "14 translations for a reference of 13 lines"),
    (lambda lines: lines[:2] + ["D-12\t-0.5\tse@@ ven\n"] + lines[3:], "sentence 12 has BPE marks"),
    (lambda lines: lines[:2] + ["D-12\t-0.5\tse@@\n"] + lines[3:], "sentence 12 has BPE marks"),
    (lambda lines: [], "no translations"),
]


@pytest.mark.parametrize(("spoil", "message"), FAULTS)
def test_faulty_output_gets_no_score(data, trained, tmp_path, spoil, message):
    output = tmp_path / "output"
    output.write_text("".join(spoil(lines_of(["seven"] * 13))), encoding="utf-8")
    write_executable(tmp_path / "fairseq-generate", f"#!/bin/bash\ncat '{output}'\n")
    arguments = score_arguments(data, trained, "--out", tmp_path / "out")
    result = run_script(SCORE, *arguments, first=tmp_path)
    assert result.returncode != 0
    assert "SacreBLEU" not in result.stdout
    error = result.stderr.splitlines()[-1]
    assert re.search(message, error), error
    assert not (tmp_path / "out/score.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "/nowhere.pt"], "file '/nowhere.pt' not found"),
        (["--reference", "/nowhere.en"], "file '/nowhere.en' not found"),
        (["--subset", "test7"], "does not hold 'test7'"),
        (["--beam", "0"], "--beam '0' is not a whole number above 0"),
        (["--", "--nbest", "2"], "flag '--nbest' after -- is set by this script"),
        (["--", "--gen-subset=valid"], "flag '--gen-subset=valid' after --"),
    ],
)
def test_score_refuses_bad_options(data, trained, arguments, message):
    assert message in refused(SCORE, *score_arguments(data, trained, *arguments))


def test_a_failing_fairseq_is_reported(data, trained, tmp_path):
    write_executable(tmp_path / "fairseq-generate", "#!/bin/bash\necho 'no such model' >&2\nexit 3\n")
    arguments = score_arguments(data, trained, "--out", tmp_path / "out")
    result = run_script(SCORE, *arguments, first=tmp_path)
    assert result.returncode != 0
    assert result.stderr.splitlines()[-1] == "score.sh: fairseq-generate stopped: no such model"
    write_executable(tmp_path / "fairseq-train", "#!/bin/bash\nexit 3\n")
    result = run_script(
        "recipes/train.sh", "--data", data / "binarized", "--out", tmp_path / "run", first=tmp_path
    )
    assert result.returncode != 0
    assert "fairseq-train stopped; see" in result.stderr
    assert not (tmp_path / "run/trained").exists()


def test_nothing_outlives_a_training_and_a_file_is_no_folder(data, tmp_path):
    text = f"#!/bin/bash\ntouch '{tmp_path}/started'\nbash -c 'sleep 300; true' '{tmp_path}'\n"
    write_executable(tmp_path / "fairseq-train", text)
    arguments = ["--data", data / "binarized", "--out"]
    process = start("recipes/train.sh", *arguments, tmp_path / "run", first=tmp_path)
    wait_until((tmp_path / "started").exists, process)
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM and errors == ""
    assert programs_with(tmp_path) == []
    assert "started' is not a folder" in refused("recipes/train.sh", *arguments, tmp_path / "started", first=tmp_path)
