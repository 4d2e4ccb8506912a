import json
import shutil

import pytest
import sacrebleu

from recipe_data import FLAGS, flag_values, make_data
from scripts import refused, run_script, succeed, write_executable

WMT14 = "recipes/wmt14.sh"
TINY = ["--arch", "transformer_rfa_tiny", "--device", "cpu", "--update-tokens", 1024]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces") / "data"
    return make_data(folder, "en-de", bpe="sentencepiece", joined=True)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Trained and averaged; decoding is left to the tests."""
    folder = tmp_path_factory.mktemp("wmt14")
    write_executable(folder / "fairseq-generate", "#!/bin/bash\nexit 3\n")
    arguments = ["--data", data, "--out", folder / "run", *TINY, "--max-update", 41, "--"]
    arguments += [*FLAGS, "--save-interval-updates", "5"]
    result = run_script(WMT14, *arguments, first=folder)
    assert "fairseq-generate stopped" in result.stderr.splitlines()[-1]
    assert "averaging the last 5 checkpoints" in result.stdout
    return folder / "run"


def test_the_last_checkpoints_by_updates_are_kept_and_averaged(trained):
    names = {file.name for file in trained.glob("checkpoint*.pt")}
    numbered = {name for name in names if name[10] == "_" and name[11].isdigit()}
    assert names - numbered == {"checkpoint_best.pt", "checkpoint_last.pt"}
    assert len(numbered) == 5 and any(name.endswith("_40.pt") for name in numbered)
    assert (trained / "average.pt").exists()


def test_pieces_are_joined_for_the_score(data, trained, tmp_path):
    """The folder holds the model of the pieces, and the score is that of the raw text with capitals."""
    name = "sentencepiece.model"
    assert (trained / name).read_bytes() == (data / "binarized" / name).read_bytes()
    arguments = ["--data", data / "binarized", "--checkpoint", trained / "average.pt", "--beam", 1]
    arguments += ["--reference", data / "raw/test.de", "--out", tmp_path, "--", "--cpu"]
    line = succeed("recipes/score.sh", *arguments).stdout
    found = (tmp_path / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
    wanted = (data / "raw/test.de").read_text(encoding="utf-8").splitlines()
    report = json.loads((tmp_path / "score.json").read_text(encoding="utf-8"))
    score = round(sacrebleu.BLEU().corpus_score(found, [wanted]).score, 2)
    assert 20 < score == report["score"]
    assert report["case"] == "mixed" and "|case:mixed|" in line and "lowercased" not in line


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
def test_the_tokens_of_an_update_stay(data, workers):
    arguments = ["--data", data, "--out", "/nowhere/run", "--dry-run", "--workers", workers]
    flags = flag_values(succeed(WMT14, *arguments).stdout)
    tokens, steps = int(flags["--max-tokens"]), int(flags["--update-freq"])
    assert workers * tokens * steps == 32768
    assert tokens <= 4096
    assert "--share-all-embeddings" in flags and "--share-decoder-input-output-embed" not in flags


def test_the_usual_beam_has_a_length_penalty_and_greedy_search_none(data):
    printed = succeed(WMT14, "--data", data, "--out", "/nowhere/run", "--dry-run").stdout
    commands = printed.replace("\\\n", " ").splitlines()
    beams = [" ".join(line.split()) for line in commands if line.startswith("fairseq-generate")]
    assert len(beams) == 2
    assert "--beam 4 " in beams[0] and "--lenpen 0.6" in beams[0]
    assert "--beam 1 " in beams[1] and "--lenpen" not in beams[1]
    assert all("--bpe sentencepiece" in line and "--tokenizer" not in line for line in beams)
    assert '"beam": 4, "lenpen": 0.6' in printed and "--num-update-checkpoints 5" in printed


def test_steps_too_small_for_a_sentence_are_refused(data):
    arguments = ["--data", data, "--out", "/nowhere/run", "--dry-run", "--workers", 64]
    assert "use one of 1 2 4 8 16 32\n" in refused(WMT14, *arguments)


def test_separate_dictionaries_are_refused(data, tmp_path):
    copy = shutil.copytree(data, tmp_path / "data")
    with open(copy / "binarized/dict.de.txt", "a", encoding="utf-8") as stream:
        stream.write("more 1\n")
    message = refused(WMT14, "--data", copy, "--out", tmp_path / "run", "--device", "cpu")
    assert "this recipe needs a joined one" in message
    assert not (tmp_path / "run").exists()
