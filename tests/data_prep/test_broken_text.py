"""Text of archives that is not as it should be is refused before hours are spent on it, with archive and line."""

import itertools
import re
from collections import Counter

import pytest

import clean_pairs
import made_archives
from made_archives import iwslt_files, wmt_archives, write_archives, write_tar
from scripts import files_below, refused, run_helper

PAIRS = made_archives.sentence_pairs(200, seed=11)
GOOD, NOT_UTF8 = (b"eins zwei drei\n", b"one two three\n"), (b"f\xfcnf\n", b"five\n")
NULLS, UNEQUAL = (b"e\0i\0n\0s\0\n", b"o\0n\0e\0\n"), (b"eins zwei drei vier\n", b"one\n")
FLAG = "--allow-broken-text"


def clean(pairs, **more):
    """The pairs that are kept."""
    found = Counter()
    settings = {"languages": ("de", "en"), "count_tokens": clean_pairs.words_and_marks, "longest": 50, "jobs": 1}
    return list(clean_pairs.clean_pairs(iter(pairs), found=found, name="a.tgz: train", **settings, **more))


@pytest.mark.parametrize(
    ("bad", "most", "message"),
    [
        (NOT_UTF8, 5, "a.tgz: train: 6 of 100 pairs are not UTF-8 or hold null characters; put .* or use --allow"),
        (NULLS, 5, "a.tgz: train: 6 of 100 pairs are not UTF-8 or hold null characters; put .* or use --allow"),
        (UNEQUAL, 50, r"a.tgz: train: 51 of 100 pairs were dropped \(0 empty, 0 too long, 51 too unequal, 0 not"),
    ],
)
def test_pairs_that_are_mostly_broken_are_refused(bad, most, message):
    clean([bad] * most + [GOOD] * (100 - most))
    with pytest.raises(ValueError, match=message):
        clean([bad] * (most + 1) + [GOOD] * (99 - most))
    kept = clean([bad] * (most + 1) + [GOOD] * (99 - most), allow_broken=True)
    assert len(kept) >= 99 - most


def test_a_large_corpus_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(clean_pairs, "ENOUGH", 1000)
    with pytest.raises(ValueError, match=r"1,000 of 1,000 pairs are not UTF-8"):
        clean(itertools.repeat(NOT_UTF8))


@pytest.mark.parametrize("pairs", [[], [UNEQUAL] * 3])
def test_a_training_text_of_which_nothing_is_left_is_refused_even_so(pairs):
    with pytest.raises(ValueError, match=f"a.tgz: train: no pair is left of {len(pairs)};"):
        clean(pairs, allow_broken=True)


def iwslt_archive(folder, train=lambda text, side: text, test=lambda text, side: text):
    """Both functions get a text and its side, the last of the five tests and all of the training."""
    tests = [PAIRS[150 + 10 * number : 160 + 10 * number] for number in range(5)]
    files = iwslt_files(PAIRS[:150], tests)
    for side, language in enumerate(("de", "en")):
        for stem, change in (("train.tags.de-en.{}", train), ("IWSLT14.TED.tst2012.de-en.{}.xml", test)):
            name = f"de-en/{stem.format(language)}"
            files[name] = change(files[name], side)
    return write_tar(folder / "de-en.tgz", files)


@pytest.mark.parametrize(
    "encode",
    [
        lambda text, side: text.encode("latin-1") if side == 0 else text,
        lambda text, side: text.encode("utf-16"),
        lambda text, side: text.encode("utf-16-le"),
        lambda text, side: text.encode("utf-32-be"),
    ],
)
def test_a_training_text_in_another_encoding_is_refused(tmp_path, encode):
    archive = iwslt_archive(tmp_path, encode)
    line = refused("data-prep/iwslt14-de-en.sh", "--from", tmp_path, "--out", tmp_path / "out")
    assert line.startswith(f"{archive}: de-en/train.tags.de-en.de and de-en/train.tags.de-en.en: ")
    assert re.search(r": \d+ of \d+ pairs are not UTF-8 or hold null characters; .*, or use --allow-broken-text$", line)
    assert not [name for name in files_below(tmp_path / "out") if "raw" in name]


def test_a_flag_allows_it(tmp_path):
    archive = iwslt_archive(tmp_path, lambda text, side: text.encode("latin-1") if side == 0 else text)
    arguments = ["--archive", archive, "--out", tmp_path / "out"]
    assert run_helper("data-prep", "iwslt14_text", *arguments).returncode == 1
    result = run_helper("data-prep", "iwslt14_text", *arguments, FLAG)
    assert result.returncode == 0 and re.search(r"[1-9]\d* not UTF-8", result.stdout)
    more = ["--from", tmp_path, "--out", tmp_path / "out", FLAG, "--target", "xx"]
    assert "are not de and en" in refused("data-prep/iwslt14-de-en.sh", *more)


def test_an_empty_segment_is_found_before_the_training_text_is_cleaned(tmp_path):
    def without_words(text, side):
        return re.sub('(<seg id="3">).*?(</seg>)', r"\1 \2", text, count=1) if side else text

    archive = iwslt_archive(tmp_path, test=without_words)
    result = run_helper("data-prep", "iwslt14_text", "--archive", archive, "--out", tmp_path / "out")
    name = "de-en/IWSLT14.TED.tst2012.de-en.en.xml"
    assert result.stderr == f"{archive}: {name}: segment 3 of document '0' is empty\n"
    assert not [name for name in files_below(tmp_path / "out") if "train" in name]


def wmt_folder(folder, change):
    """Archives of English and German, of which `change` gets the files by archive and name."""
    pairs = made_archives.swapped(PAIRS)
    archives = wmt_archives([pairs[:60], pairs[60:90], pairs[90:120]], pairs[120:140], pairs[140:160], "de")
    change(archives)
    return write_archives(folder / "from", archives)


def refused_wmt(tmp_path, change):
    folder = wmt_folder(tmp_path, change)
    line = refused("data-prep/wmt14.sh", "--target", "de", "--from", folder, "--out", tmp_path / "out")
    assert not [name for name in files_below(tmp_path / "out") if "raw" in name]
    return line


def test_a_corpus_in_another_encoding_is_refused(tmp_path):
    def change(archives):
        files = archives["training-parallel-commoncrawl.tgz"]
        files["commoncrawl.de-en.de"] = files["commoncrawl.de-en.de"].encode("utf-16-be")

    line = refused_wmt(tmp_path, change)
    assert "/training-parallel-commoncrawl.tgz: commoncrawl.de-en.en and commoncrawl.de-en.de: 30 of 30 pairs" in line


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("de", b"f\xfcnf\n", r"dev/newstest2013\.de:7: byte 0xfc is not UTF-8; put the archive"),
        ("en", b"f\0i\0v\0e\0\n", r"dev/newstest2013\.en:7: null character; put the archive"),
        ("en", b" \t\n", r"dev/newstest2013\.en:7: empty line; put the archive"),
        ("de", "\u00a0\n".encode(), r"dev/newstest2013\.de:7: empty line; put the archive"),
        ("de", b"eins\nzwei\n", r"newstest2013\.en has 20 lines of text, \S+/dev\.tgz: \S+\.de has 21;"),
    ],
)
def test_a_bad_line_of_the_validation_is_named_with_its_archive_before_the_cleaning(tmp_path, language, text, message):
    def change(archives):
        files, name = archives["dev.tgz"], f"dev/newstest2013.{language}"
        lines = files[name].encode().splitlines(keepends=True)
        files[name] = b"".join([*lines[:6], text, *lines[7:]])

    line = refused_wmt(tmp_path, change)
    assert re.match(rf"{tmp_path}/from/dev\.tgz: ", line) and re.search(message, line), line
