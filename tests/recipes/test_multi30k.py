import gzip
import os
import re
import shutil
import socket
from pathlib import Path

import pytest

import check_parallel
import number_phrases
from made_archives import web_server
from scripts import files_below, refused, run_script, succeed

MULTI30K = "data-prep/multi30k.sh"
SPLITS = ["train", "val", "test_2016_flickr", "test_2017_flickr"]


def archive(folder, name, lines):
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / f"{name}.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(line + "\n" for line in lines)


@pytest.fixture
def part(tmp_path):
    """A small part of a data set under Multi30K's names: some packed, one not, one name of ours."""
    pairs = number_phrases.sentence_pairs(40, seed=4)
    folder = tmp_path / "part"
    for number, split in enumerate(SPLITS):
        for side, language in enumerate(("de", "en")):
            archive(folder, f"{split}.{language}", [p[side] for p in pairs[10 * number :][:10]])
    (folder / "train.de").write_bytes(gzip.decompress((folder / "train.de.gz").read_bytes()))
    (folder / "train.de.gz").unlink()
    (folder / "val.en.gz").rename(folder / "valid.en.gz")
    return folder


def test_multi30k_from_a_folder(part, tmp_path):
    arguments = ["--source", "de", "--target", "en", "--merges", 30, "--from", part]
    arguments += ["--out", tmp_path / "out"]
    succeed(MULTI30K, *arguments)
    expected = {"train": "train", "val": "valid", "test_2016_flickr": "test", "test_2017_flickr": "test1"}
    assert set(files_below(tmp_path / "out/raw")) == {
        f"{name}.{language}" for name in expected.values() for language in ("de", "en")
    }
    for name, ours in expected.items():
        if name != "val":
            text = gzip.decompress((part / f"{name}.en.gz").read_bytes())
            assert (tmp_path / f"out/raw/{ours}.en").read_bytes() == text
    assert (tmp_path / "out/binarized/test1.de-en.en.bin").exists()
    archive(part, "test_2016_flickr.en", ["something else"] * 10)
    assert "is not the text of --from" in refused(MULTI30K, *arguments)


def test_multi30k_names_what_is_wrong_with_a_folder(part, tmp_path):
    arguments = ["--out", tmp_path / "out", "--from", part]
    archive(part, "val.de", ["ein Satz"] * 9)
    assert re.search(r"valid\.en has 10 lines, .*valid\.de has 9", refused(MULTI30K, *arguments))
    (part / "val.de.gz").write_text("<html>not an archive</html>")
    message = refused(MULTI30K, "--out", tmp_path / "other", "--from", part)
    assert "val.de.gz' is not a whole gzip file" in message
    (part / "val.de.gz").unlink()
    message = refused(MULTI30K, "--out", tmp_path / "third", "--from", part)
    assert "val.de' found" in message
    for out in ("out", "other", "third"):
        assert not [name for name in files_below(tmp_path / out) if "partial" in name or "new" in name]
        assert not (tmp_path / out / "binarized").exists()


@pytest.fixture
def server(tmp_path):
    """A web server on this machine; what lies in its folder, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()

    with web_server(folder) as url:
        yield folder, url


def test_a_page_in_place_of_an_archive_is_refused(server, tmp_path):
    folder, url = server
    (folder / "train.en.gz").write_text("<html>Sign in</html>")
    message = refused_download(url, tmp_path)
    assert "train.en.gz is not a whole gzip file" in message


def test_a_short_archive_is_refused(server, tmp_path):
    folder, url = server
    archive(folder, "train.en", ["a line"] * 5)
    assert "train.en.gz has 5 lines, not 29000" in refused_download(url, tmp_path)


def test_a_truncated_archive_is_refused(server, tmp_path):
    folder, url = server
    archive(folder, "train.en", map(str, range(29000)))
    (folder / "train.en.gz").write_bytes((folder / "train.en.gz").read_bytes()[:-100])
    assert "train.en.gz is not a whole gzip file" in refused_download(url, tmp_path)


def test_a_missing_file_and_a_closed_port_are_reported(server, tmp_path):
    _, url = server
    assert f"cannot download {url}/train.en.gz" in refused_download(url, tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot download {url}/train.en.gz" in refused_download(url, tmp_path)


def refused_download(url, tmp_path):
    """The last line of a refusal; nothing is left behind."""
    result = run_script(MULTI30K, "--out", tmp_path / "out", "--url", url)
    assert result.returncode != 0
    assert not files_below(tmp_path / "out")
    return result.stderr.strip().splitlines()[-1]


def test_downloads_are_kept_and_not_repeated(server, tmp_path):
    """Two languages of the right sizes, with an empty line at the end of the last file."""
    folder, url = server
    for name, lines in zip(SPLITS, (29000, 1014, 1000, 1000)):
        for language in ("de", "en"):
            archive(folder, f"{name}.{language}", [f"{language} {line}" for line in range(lines)])
    archive(folder, "test_2017_flickr.de", ["satz"] * 999 + [""])
    arguments = ["--out", tmp_path / "out", "--url", url]
    for _ in range(2):
        result = run_script(MULTI30K, *arguments)
        assert result.returncode != 0
        assert "test1.de:1000: empty line" in result.stderr
        shutil.rmtree(folder, ignore_errors=True)
    assert "downloading" not in result.stderr
    downloaded = set(files_below(tmp_path / "out/download"))
    assert downloaded == {f"{name}.{language}.gz" for name in SPLITS for language in ("de", "en")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "cs"], "--source 'cs' is not one of de, en, fr"),
        (["--source", "de", "--target", "de"], "both 'de'"),
        (["--merges", "0"], "--merges '0' is not a whole number above 0"),
        (["--from", "/nowhere"], "--from '/nowhere' is not a folder"),
    ],
)
def test_multi30k_refuses_bad_options(tmp_path, arguments, message):
    assert message in refused(MULTI30K, "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif("MULTI30K_DIR" not in os.environ, reason="MULTI30K_DIR is not set")
@pytest.mark.parametrize("language", ["de", "fr"])
def test_the_real_corpus_passes_the_checks(tmp_path, language):
    for name, lines in zip(SPLITS, (29000, 1014, 1000, 1000)):
        files = []
        for side in ("en", language):
            packed = Path(os.environ["MULTI30K_DIR"]) / f"{name}.{side}.gz"
            files.append(tmp_path / f"{name}.{side}")
            files[-1].write_bytes(gzip.decompress(packed.read_bytes()))
        assert check_parallel.check_pair(*map(str, files)) == lines
