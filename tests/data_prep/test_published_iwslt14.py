"""IWSLT14 is prepared as fairseq's prepare-iwslt14.sh does; expected words are those of Moses' tokenizer.perl."""

import hashlib
import re

import pytest

import clean_pairs
import made_archives
import moses
import published
from made_archives import iwslt_files, write_tar
from scripts import succeed

LINES = [
    ("de", "Er wohnt in den U.S.A.", "Er wohnt in den U.S.A ."),
    ("de", "Das gilt nach Art.", "Das gilt nach Art ."),
    ("de", "Die U.S.A. und Dr. Koch, usw.", "Die U.S.A. und Dr. Koch , usw ."),
    ("de", "Am 3. Mai um 70.", "Am 3. Mai um 70 ."),
    ("en", "We met at 5 p.m.", "We met at 5 p.m ."),
    ("en", "No. 5 is a No.", "No. 5 is a No ."),
    ("en", "Wait...", "Wait ..."),
    ("en", "Wait .", "Wait ."),
    ("en", "They're the dogs.'", "They &apos;re the dogs . &apos;"),
    ("de", "R&amp;D", "R &amp; amp ; D"),
    ("de", "Es heißt 中国, Dr. 中国", "Es heißt 中国 , Dr. 中国"),
    ("en", "It's '中国' at No. 中国.", "It &apos;s &apos; 中国 &apos; at No . 中国 ."),
]
KEPT_FOR_ITS_FULL_STOP = ("in den U.S.A.", "in the U.S. of A.")


@pytest.mark.parametrize(("language", "line", "words"), LINES)
def test_words_are_those_of_tokenizer_perl(language, line, words):
    assert moses.split_words(line, language, perl=True) == words


def test_words_of_sacremoses_stay_where_perls_are_not_asked_for():
    assert moses.split_words("in den U.S.A.", "de") == "in den U.S.A."


def test_small_letters_are_perls():
    assert moses.to_lower("ΟΔΟΣ ÄÖ İx") == "οδοσ äö i̇x"


def test_the_cleaning_counts_the_last_full_stop():
    pair = [line.encode() + b"\n" for line in KEPT_FOR_ITS_FULL_STOP]
    kept, _ = clean_pairs.clean_chunk([pair], ("de", "en"), clean_pairs.moses_tokens, 175)
    assert kept == [KEPT_FOR_ITS_FULL_STOP]
    longer = [pair[0], b"in the big U.S. of A.\n"]
    assert clean_pairs.clean_chunk([longer], ("de", "en"), clean_pairs.moses_tokens, 175)[0] == []


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder with the data; what was printed is kept beside it."""
    folder = tmp_path_factory.mktemp("published")
    pairs = made_archives.sentence_pairs(90, seed=2)
    train = [*pairs[:60], KEPT_FOR_ITS_FULL_STOP, ("R&amp;D \ufeffheißt 中国", "R&amp;D is called 中国")]
    tests = [pairs[60 + 6 * number : 66 + 6 * number] for number in range(5)]
    tests[2][1] = ("Das war R&D, usw.", "That’s R&D, etc.")
    write_tar(folder / "de-en.tgz", iwslt_files(train, tests))
    result = succeed("data-prep/iwslt14-de-en.sh", "--from", folder, "--out", folder / "out", "--merges", 40)
    (folder / "printed").write_text(result.stdout, encoding="utf-8")
    return folder / "out"


def lines_of(file):
    return file.read_text(encoding="utf-8").split("\n")


def test_words_of_the_prepared_text(prepared):
    german, english = (lines_of(prepared / f"tokenized/train.{language}") for language in ("de", "en"))
    place = german.index("in den u.s.a .")
    assert english[place] == "in the u.s. of a ."
    assert german[place + 1] == "r &amp; amp ; d \ufeff heißt 中国"


def test_entities_of_the_tests_stay_as_they_stand(prepared):
    assert "Das war R&amp;D, usw." in lines_of(prepared / "raw/test.de")
    assert "das war r &amp; amp ; d , usw ." in lines_of(prepared / "tokenized/test.de")
    assert "that &apos;s r &amp; amp ; d , etc ." in lines_of(prepared / "tokenized/test.en")


def test_a_warning_names_the_files_that_are_not_the_published_ones(prepared):
    printed = (prepared.parent / "printed").read_text(encoding="utf-8")
    assert "equals the published" not in printed
    names = re.search(r"^warning: (.*) are not the published files;", printed, re.M)[1]
    assert names.split(", ") == list(published.PUBLISHED)
    assert all((prepared / name).exists() for name in published.PUBLISHED)


def test_published_files_are_recognised(prepared, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["published", str(prepared)])
    sums = {name: hashlib.sha256((prepared / name).read_bytes()).hexdigest() for name in published.PUBLISHED}
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in published.PUBLISHED.values())
    monkeypatch.setattr(published, "PUBLISHED", {**sums, "bpe/code": "0" * 64})
    published.main()
    *equal, warning = capsys.readouterr().out.splitlines()
    assert equal == [f"{name} equals the published preparation" for name in sums if name != "bpe/code"]
    assert warning.startswith("warning: bpe/code are not the published files")
    monkeypatch.setattr(published, "PUBLISHED", sums)
    published.main()
    assert "warning" not in capsys.readouterr().out
