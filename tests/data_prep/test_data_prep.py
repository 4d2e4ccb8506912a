import os
import re
import shutil
import subprocess
from argparse import Namespace

import pytest
from fairseq.data import encoders

import check_parallel
import number_phrases
from scripts import ROOT, checksums, files_below, refused, succeed, times

PREPARE = "data-prep/prepare.sh"

# What Moses treats differently by language, and what it escapes.
AWKWARD = [
    ('Er sagte: "Das ist\'s" & ging <fort>.', 'He said: "That\'s it" & went <away>.'),
    ("Ein 3-jähriges Kind - blond - kam.", "A 3-year-old child - blonde - came."),
    ("Dr. Müller, z.B., zahlt 3,50 € am 3. März.", "Dr. Miller, e.g., pays $3.50 [sic]."),
    ("L'homme d'Avignon isn't |dort|...", "The dogs' owner won't   stop @ 5 p.m."),
]


def write_pairs(folder, name, pairs):
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("de", "en")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw text")
    pairs = number_phrases.sentence_pairs(100, seed=3)
    write_pairs(folder, "train", pairs[:80] + AWKWARD)
    write_pairs(folder, "valid", pairs[80:90])
    write_pairs(folder, "test", AWKWARD)
    write_pairs(folder, "test1", pairs[90:])
    return folder


def options(raw, out, merges=60):
    return ["--raw", raw, "--source", "de", "--target", "en", "--out", out, "--merges", merges]


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared")
    succeed(PREPARE, *options(raw, out))
    return out


@pytest.mark.parametrize("character", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\0")
def test_separators_inside_a_line_are_refused(tmp_path, character):
    file = tmp_path / "train.de"
    file.write_text(f"eins\nzwei{character}drei\n", encoding="utf-8", newline="\n")
    with pytest.raises(ValueError, match=rf"train\.de:2: .*\(U\+{ord(character):04X}\)"):
        check_parallel.check_file(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"eins\n\nzwei\n", "train.de:2: empty line"),
        (b"eins\n \t\n", "train.de:2: empty line"),
        (b"eins\nzw\xe4i\n", "train.de:2: byte 0xe4 at column 3 is not UTF-8"),
        (b"\xef\xbb\xbfeins\n", "train.de:1: byte order mark"),
    ],
)
def test_unreadable_lines_are_refused(tmp_path, content, message):
    file = tmp_path / "train.de"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        check_parallel.check_file(str(file))


def test_ordinary_text_passes(tmp_path):
    file = tmp_path / "train.de"
    file.write_text("ein\tTab \u00a0\nkein Zeilenende", encoding="utf-8")
    assert check_parallel.check_file(str(file)) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("test.en", "a\n" * 3, "has 4 lines.*has 3"),
        ("valid.de", "a\nb\u2028c\n", r"valid\.de:2: line separator \(U\+2028\)"),
        ("train.en", "a\x85b\n", r"train\.en:1: next line \(U\+0085\)"),
        ("test1.de", "a\n\nb\n", r"test1\.de:2: empty line"),
        ("test3.de", "a\n", "test3.de' is out of order"),
    ],
)
def test_prepare_refuses_bad_text_and_writes_nothing(raw, tmp_path, name, text, message):
    bad = tmp_path / "bad"
    shutil.copytree(raw, bad)
    (bad / name).write_text(text, encoding="utf-8")
    assert re.search(message, refused(PREPARE, *options(bad, tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_prepare_makes_what_it_documents(raw, prepared):
    subsets = ["train", "valid", "test", "test1"]
    for folder in ("tokenized", "bpe"):
        for subset in subsets:
            for language in ("de", "en"):
                assert len((prepared / folder / f"{subset}.{language}").read_text().split("\n")) == len(
                    (raw / f"{subset}.{language}").read_text().split("\n")
                )
    names = set(files_below(prepared / "binarized"))
    assert names == {"code", "dict.de.txt", "dict.en.txt", "preparation"} | {
        f"{subset}.de-en.{language}.{kind}"
        for subset in subsets
        for language in ("de", "en")
        for kind in ("bin", "idx")
    }
    kept = checksums(prepared)
    assert kept["binarized/dict.de.txt"] == kept["binarized/dict.en.txt"]
    assert kept["binarized/code"] == kept["bpe/code"]
    assert (prepared / "binarized/preparation").read_text() == (
        "tokenizer=moses\nbpe=subword_nmt\ncase=mixed\n"
    )
    assert checksums(prepared / "raw") == checksums(raw)
    assert not [name for name in kept if "partial" in name]


def test_a_second_run_repeats_nothing(raw, prepared):
    before = times(prepared)
    assert "is complete" in succeed(PREPARE, *options(raw, prepared)).stdout
    assert times(prepared) == before


def test_an_interrupted_run_is_finished_from_another_folder(raw, prepared, tmp_path):
    """With relative paths that hold spaces; all files equal those of a run in one go."""
    out = tmp_path / "a copy"
    shutil.copytree(prepared, out)
    expected = checksums(out / "binarized")
    shutil.rmtree(out / "binarized")
    (out / "bpe/train.en").unlink()
    (out / "bpe/train.en.partial").write_text("half a line")
    (out / "binarized.partial").mkdir()
    (out / "binarized.partial/dict.de.txt").write_text("half a dictionary")
    before = times(out)
    relative = os.path.relpath(raw, tmp_path)
    succeed(PREPARE, *options(relative, "a copy"), "--jobs", 2, cwd=tmp_path)
    assert checksums(out / "binarized") == expected
    assert (out / "bpe/train.en").read_bytes() == (prepared / "bpe/train.en").read_bytes()
    repeated = {name for name, time in times(out).items() if before.get(name, time) != time}
    assert repeated == {"preprocess.log"}


def test_a_folder_of_an_older_version_learns_how_it_was_prepared(raw, prepared, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(prepared, out)
    (out / "binarized/preparation").unlink()
    assert "is complete" in succeed(PREPARE, *options(raw, out)).stdout
    assert checksums(out) == checksums(prepared)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--subword", "words"], "--subword 'words' is not one of bpe, sentencepiece"),
        (["--subword", "sentencepiece", "--lowercase"], "--lowercase: sentencepiece takes the text as it is"),
        (["--jobs", "0"], "--jobs '0' is not a whole number above 0"),
    ],
)
def test_prepare_refuses_what_makes_no_sense(raw, tmp_path, flags, message):
    assert message in refused(PREPARE, *options(raw, tmp_path / "out"), *flags)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--lowercase", "--no-dash-splits", "--separate-dictionaries"])
def test_the_same_folder_with_another_flag_is_refused(raw, prepared, flag):
    before = times(prepared)
    assert flag.removeprefix("--") in refused(PREPARE, *options(raw, prepared), flag)
    assert times(prepared) == before


def test_pieces_that_the_text_does_not_have_are_refused(raw, tmp_path):
    arguments = [*options(raw, tmp_path), "--subword", "sentencepiece", "--vocabulary-size", 9000]
    message = refused(PREPARE, *arguments)
    assert "cannot learn 9000 pieces: Vocabulary size too high" in message
    assert not files_below(tmp_path / "bpe")


def test_the_same_folder_with_other_settings_is_refused(raw, prepared):
    before = times(prepared)
    message = refused(PREPARE, *options(raw, prepared, merges=61))
    assert "merges=60 merges=61" in message and "another --out" in message
    assert times(prepared) == before


@pytest.mark.parametrize("language", ["de", "en"])
def test_fairseq_sees_the_words_of_the_training(raw, prepared, language):
    """What --tokenizer moses and --bpe subword_nmt make of raw text is what the model was trained on."""
    tokenizer = encoders.build_tokenizer(
        Namespace(
            tokenizer="moses",
            source_lang=language,
            target_lang=language,
            moses_no_dash_splits=False,
            moses_no_escape=False,
        )
    )
    bpe = encoders.build_bpe(
        Namespace(bpe="subword_nmt", bpe_codes=str(prepared / "binarized/code"), bpe_separator="@@")
    )
    for subset in ("train", "test"):
        lines = (raw / f"{subset}.{language}").read_text(encoding="utf-8").splitlines()
        tokenized = [tokenizer.encode(line) for line in lines]
        name = f"{subset}.{language}"
        assert (prepared / "tokenized" / name).read_text(encoding="utf-8").splitlines() == tokenized
        assert (prepared / "bpe" / name).read_text(encoding="utf-8").splitlines() == [
            bpe.encode(line) for line in tokenized
        ]


@pytest.mark.parametrize("script", ["iwslt14-de-en.sh", "wmt14.sh --target de"])
def test_what_is_not_installed_is_named_before_any_work(tmp_path, script):
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("bash", "dirname", "getconf", "gzip", "python", "sha256sum", "tar"):
        (commands / name).symlink_to(shutil.which(name))
    name, *options = script.split()
    result = subprocess.run(
        ["bash", ROOT / "data-prep" / name, *options, "--from", tmp_path, "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        env={"PATH": str(commands)},
    )
    assert result.returncode == 1 and "'sacremoses' not found; activate the environment" in result.stderr
    assert not (tmp_path / "out").exists()
