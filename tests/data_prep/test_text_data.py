"""Text for language models: subwords, empty lines, documents; WikiText-103 from made archives."""

import hashlib
import re
import zipfile

import pytest
from fairseq.data import Dictionary, data_utils

import number_phrases
from made_archives import web_server
from scripts import checksums, files_below, refused, succeed, times

TEXT, WIKITEXT = "data-prep/text.sh", "data-prep/wikitext103.sh"
SPLITS = ("train", "valid", "test")
SIZES = {"train": [1, 30, 9], "valid": [4, 1], "test": [5]}
# What Unicode alone takes for the end of a line parts words in the release.
WIKI = {
    "train": " \n = Title = \n \n The <unk> end\u2028down @-@ again . \n",
    "valid": " \n The end . \n",
    "test": " The\x85end\u00a0<unk> \n",
}


def write_text(folder, empty=False):
    lines = iter(english for _, english in number_phrases.sentence_pairs(60, seed=5))
    for split, sizes in SIZES.items():
        documents = ["".join(next(lines) + "\n" for _ in range(size)) for size in sizes]
        (folder / f"{split}.txt").write_text(("\n" if empty else "").join(documents))
    return folder


def read_tokens(folder, split):
    """The lines of a binarized file in words, without the symbol at their ends."""
    dictionary = Dictionary.load(str(folder / "binarized/dict.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"binarized/{split}"), dictionary)
    return [dictionary.string(line) for line in data]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("raw text"))


def test_bpe_of_moses_tokens(raw, tmp_path):
    arguments = ["--raw", raw, "--language", "en", "--merges", 40, "--out", tmp_path / "out"]
    succeed(TEXT, *arguments)
    names = {f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx")}
    assert set(files_below(tmp_path / "out/binarized")) == names | {"code", "dict.txt", "preparation"}
    for split in SPLITS:
        pieces = (tmp_path / f"out/bpe/{split}.txt").read_text().splitlines()
        # Some capitals stand in one part of the text only.
        known = read_tokens(tmp_path / "out", split)
        assert len(known) == len(pieces) and (known == pieces or split != "train")
        tokens = [line.replace("@@ ", "") for line in pieces]
        assert tokens == (tmp_path / f"out/tokenized/{split}.txt").read_text().splitlines()
    assert (tmp_path / "out/binarized/preparation").read_text() == "tokenizer=moses\nbpe=subword_nmt\ncase=mixed\n"
    before = times(tmp_path / "out")
    assert "is complete" in succeed(TEXT, *arguments).stdout
    assert times(tmp_path / "out") == before
    assert "other settings" in refused(TEXT, *arguments, "--merges", 41)


def test_pieces_of_raw_text(raw, tmp_path):
    succeed(TEXT, "--raw", raw, "--subword", "sentencepiece", "--vocabulary-size", 60, "--out", tmp_path / "out")
    assert read_tokens(tmp_path / "out", "test")[0].startswith("▁")
    assert "bpe=sentencepiece" in (tmp_path / "out/binarized/preparation").read_text()


def test_documents_stand_between_empty_lines_or_in_lists(raw, tmp_path):
    (tmp_path / "text").mkdir()
    written = write_text(tmp_path / "text", empty=True)
    succeed(TEXT, "--raw", written, "--subword", "none", "--documents", "--out", tmp_path / "out")
    for split, sizes in SIZES.items():
        assert (tmp_path / f"out/raw/{split}.txt").read_bytes() == (raw / f"{split}.txt").read_bytes()
        listed = (tmp_path / f"out/binarized/{split}.documents").read_text()
        assert [int(line) for line in listed.split()] == sizes
    succeed(TEXT, "--raw", tmp_path / "out/raw", "--subword", "none", "--documents", "--out", tmp_path / "again")
    assert checksums(tmp_path / "again/binarized") == checksums(tmp_path / "out/binarized")


def test_an_empty_line_is_a_line_without_documents(raw, tmp_path):
    for split in SPLITS:
        (tmp_path / f"{split}.txt").write_text("one two\n\n\nthree\n")
    succeed(TEXT, "--raw", tmp_path, "--subword", "none", "--out", tmp_path / "out")
    assert read_tokens(tmp_path / "out", "train") == ["one two", "", "", "three"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("valid.txt", "a\nb\u2028c\n", r"valid\.txt:2: line separator"),
        ("test.txt", "\n \n", r"test\.txt has no words"),
        ("train.txt", None, r"train\.txt' not found"),
    ],
)
def test_bad_text_is_refused_and_nothing_written(raw, tmp_path, name, text, message):
    write_text(tmp_path)
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)
    assert re.search(message, refused(TEXT, "--raw", tmp_path, "--subword", "none", "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_go_together_are_refused(raw, tmp_path):
    arguments = ["--raw", raw, "--out", tmp_path / "out"]
    assert "--language is missing" in refused(TEXT, *arguments)
    assert "is for Moses tokens" in refused(TEXT, *arguments, "--subword", "none", "--language", "en")
    assert "not one of bpe, sentencepiece, none" in refused(TEXT, *arguments, "--subword", "words")


def write_archive(folder, text=WIKI):
    with zipfile.ZipFile(folder / "wikitext-103-v1.zip", "w") as archive:
        for split, content in text.items():
            archive.writestr(f"wikitext-103/wiki.{split}.tokens", content)
    return folder


def test_wikitext103_keeps_words_and_lines(tmp_path):
    write_archive(tmp_path)
    arguments = ["--from", tmp_path, "--out", tmp_path / "out", "--jobs", 1]
    printed = succeed(WIKITEXT, *arguments).stdout
    train = WIKI["train"]
    assert re.search(rf"words +{len({*train.split(), 'end of a line'})}, published +267735", printed)
    assert re.search(r"train lines +4, published +1801350", printed)
    assert re.search(rf"train tokens +{len(train.split()) + 4}, published +103227021", printed)
    assert "warning: words, train lines" in printed and "published archive" not in printed
    assert read_tokens(tmp_path / "out", "train") == ["", "= Title =", "", "The <unk> end down @-@ again ."]
    assert read_tokens(tmp_path / "out", "test") == ["The end <unk>"]
    assert "is complete" in succeed(WIKITEXT, *arguments).stdout


def test_wikitext103_is_downloaded_and_its_checksum_kept(tmp_path):
    (tmp_path / "served").mkdir()
    archive = write_archive(tmp_path / "served") / "wikitext-103-v1.zip"
    out = tmp_path / "out"
    with web_server(tmp_path / "served") as url:
        succeed(WIKITEXT, "--url", url, "--out", out, "--jobs", 1)
    assert (out / "archives.sha256").read_text().split() == [
        hashlib.sha256(archive.read_bytes()).hexdigest(),
        archive.name,
    ]
    write_archive(tmp_path / "served", {**WIKI, "test": " another \n"})
    arguments = ["--from", tmp_path / "served", "--out", out]
    assert "as at its first use" in refused(WIKITEXT, *arguments)


@pytest.mark.parametrize("fault", ["cut", "other"])
def test_other_archives_are_refused(tmp_path, fault):
    archive = write_archive(tmp_path, WIKI if fault == "cut" else {"train": "a\n"}) / "wikitext-103-v1.zip"
    if fault == "cut":
        archive.write_bytes(archive.read_bytes()[:-30])
    message = refused(WIKITEXT, "--from", tmp_path, "--out", tmp_path / "out", "--jobs", 1)
    assert ("is not a whole zip archive" if fault == "cut" else "holds no 'wikitext-103/wiki.valid.tokens'") in message
    assert not (tmp_path / "out/raw").exists()
