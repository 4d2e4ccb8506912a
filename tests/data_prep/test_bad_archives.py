"""An archive, or text, that proved unusable binds no later run: the right one takes its place in the same --out."""

import gzip

import pytest

import made_archives
from made_archives import iwslt_files, write_tar
from scripts import checksums, files_below, refused, run_script, write_executable

IWSLT = "data-prep/iwslt14-de-en.sh"
WMT = "data-prep/wmt14.sh"
MULTI30K = "data-prep/multi30k.sh"


def small_archive(folder, change=None):
    pairs = made_archives.sentence_pairs(70, seed=9)
    files = iwslt_files(pairs[:60], [pairs[60 + 2 * number : 62 + 2 * number] for number in range(5)])
    if change is not None:
        change(files)
    return write_tar(folder / "de-en.tgz", files)


@pytest.fixture
def stopped_early(tmp_path):
    """Commands with which a run ends where the text was taken and split."""
    folder = tmp_path / "commands"
    folder.mkdir()
    write_executable(folder / "fairseq-preprocess", "#!/bin/bash\nexit 3\n")
    return folder


def without_a_test(files):
    del files["de-en/IWSLT14.TED.tst2011.de-en.en.xml"]


def with_an_empty_training_text(files):
    files["de-en/train.tags.de-en.en"] = ""


@pytest.mark.parametrize("change", [without_a_test, with_an_empty_training_text])
def test_the_right_archive_takes_the_place_of_an_unusable_one(tmp_path, stopped_early, change):
    out = tmp_path / "out"
    arguments = ["--from", tmp_path, "--out", out, "--merges", 40]
    archive = small_archive(tmp_path, change)
    assert str(archive) in refused(IWSLT, *arguments)
    assert not (out / "archives.sha256").exists() and not (out / "raw").exists()
    small_archive(tmp_path)
    assert "fairseq-preprocess failed" in run_script(IWSLT, *arguments, first=stopped_early).stderr
    assert (out / "archives.sha256").read_text() == f"{checksums(tmp_path)['de-en.tgz']}  de-en.tgz\n"
    small_archive(tmp_path, lambda files: files.update(README="another"))
    assert "as at its first use" in refused(IWSLT, *arguments)


def test_a_checksum_that_was_kept_without_text_binds_nobody(tmp_path, stopped_early):
    out = tmp_path / "out"
    out.mkdir()
    (out / "archives.sha256").write_text(f"{'0' * 64}  de-en.tgz\n")
    small_archive(tmp_path)
    result = run_script(IWSLT, "--from", tmp_path, "--out", out, "--merges", 40, first=stopped_early)
    assert "fairseq-preprocess failed" in result.stderr
    assert (out / "archives.sha256").read_text() == f"{checksums(tmp_path)['de-en.tgz']}  de-en.tgz\n"


def test_a_corpus_of_which_nothing_was_taken_binds_nobody(tmp_path):
    empty, out = tmp_path / "empty", tmp_path / "out"
    empty.mkdir()
    for target in ("de", "fr"):
        assert "not found; put it there" in refused(WMT, "--target", target, "--from", empty, "--out", out)
    assert "not found; put it there" in refused(IWSLT, "--from", empty, "--out", out)
    assert set(files_below(out)) == {"corpus"}


def test_text_that_was_refused_can_be_replaced(tmp_path, stopped_early):
    pairs = made_archives.sentence_pairs(40, seed=9)
    for number, split in enumerate(("train", "val", "test_2016_flickr", "test_2017_flickr")):
        for side, language in enumerate(("de", "en")):
            text = "".join(pair[side] + "\n" for pair in pairs[10 * number :][:10])
            (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    good = (tmp_path / "val.de.gz").read_bytes()
    (tmp_path / "val.de.gz").write_bytes(gzip.compress("Über\n".encode("latin-1") * 10))
    arguments = ["--from", tmp_path, "--out", tmp_path / "out", "--merges", 40]
    assert "valid.de:1: byte 0xdc" in refused(MULTI30K, *arguments)
    (tmp_path / "val.de.gz").write_bytes(good)
    assert "fairseq-preprocess failed" in run_script(MULTI30K, *arguments, first=stopped_early).stderr
    (tmp_path / "val.de.gz").write_bytes(gzip.compress(b"etwas\n" * 10))
    assert "is not the text of --from" in refused(MULTI30K, *arguments)
