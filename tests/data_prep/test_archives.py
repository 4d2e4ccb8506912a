import http.server
import os
import re
import shutil
import subprocess
import threading
from collections import Counter

import numpy
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

import archive_text
import check_binarized
import clean_pairs
import programs
from made_archives import SEPARATORS, write_tar
from scripts import ROOT, environment, files_below

SEGMENTS = """<srcset setid="s" srclang="any">
<DOC docid="first" genre="news">
<hl><seg id="1"> Ein Titel </seg></hl>
<p><seg id="2">Fisch &amp; Brot &lt;5 &#8364; AT&T&quot;</seg>
<seg id="10">zwei
Zeilen</seg></p></DOC>
<doc sysid="x" docid="second"><seg id='1'>noch\u2028eine\x85Zeile </seg></doc></srcset>"""


def test_segments_are_decoded_and_known_by_document_and_id():
    assert archive_text.read_segments(SEGMENTS, "a.sgm") == {
        ("first", "1"): "Ein Titel",
        ("first", "2"): 'Fisch & Brot <5 € AT&T"',
        ("first", "10"): "zwei Zeilen",
        ("second", "1"): "noch eine Zeile",
    }


def test_segments_in_another_order_are_aligned():
    documents = [f'<doc docid="{d}"><seg id="2">{d}2</seg><seg id="1">{d}1</seg></doc>' for d in "ab"]
    second = "".join(reversed(documents))
    first = '<doc docid="a"><seg id="1">A1</seg><seg id="2">A2</seg></doc>'
    first += '<doc docid="b"><seg id="1">B1</seg><seg id="2">B2</seg></doc>'
    pairs = list(archive_text.matched_segments(first, second, ["x", "y"]).values())
    assert pairs == [("A1", "a1"), ("A2", "a2"), ("B1", "b1"), ("B2", "b2")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('<seg id="1"> Ein Titel </seg>', ""), "x has 4 segments, y has 3"),
        (lambda text: text.replace('id="10"', 'id="3"'), "y has no segment 10 of document 'first'"),
        (lambda text: text.replace("second", "third"), "y has no segment 1 of document 'second'"),
        (lambda text: text.replace('id="10"', 'id="2"'), "y: segment 2 of document 'first' occurs twice"),
    ],
)
def test_segments_that_do_not_match_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        archive_text.matched_segments(SEGMENTS, change(SEGMENTS), ["x", "y"])


@pytest.mark.parametrize(("first", "second"), [(5, 3), (0, 2), (4, 5)])
def test_unequal_numbers_of_lines_are_refused_with_both(first, second):
    streams = iter([b"a\n"] * first), iter([b"b\n"] * second)
    with pytest.raises(ValueError, match=f"x has {first} lines of text, y has {second};"):
        list(archive_text.paired_lines(*streams, ["x", "y"]))


@pytest.mark.parametrize("character", SEPARATORS + "\0")
def test_a_separator_becomes_a_space_and_is_counted(character):
    pairs = [(f"eins{character}zwei drei\n".encode(), b"one two three\n"), (b"vier\r\n", b"four\n")]
    kept, found = clean_pairs.clean_chunk(pairs, ("de", "en"), clean_pairs.words_and_marks, 9)
    assert kept == [("eins zwei drei", "one two three"), ("vier", "four")]
    assert found["mended"] == 1


def test_pairs_are_dropped_for_a_reason_that_is_counted():
    pairs = [
        (b"\n", b"one\n"),
        (b"eins \xe2\x80\xa8\n", b" \n"),
        (b"eins\n", b"\xff one\n"),
        (b"eins zwei drei\n", b"one two\n"),
        (b"eins zwei drei vier\n", b"one two\n"),
        (b"eins zwei drei vier f\xc3\xbcnf\n", b"one two three four\n"),
        (b"eins zwei drei vier\n", b"one two three four five\n"),
    ]
    kept, found = clean_pairs.clean_chunk(pairs, ("de", "en"), clean_pairs.words_and_marks, 4)
    assert kept == [("eins zwei drei", "one two")]
    expected = {"read": 7, "empty": 2, "not UTF-8": 1, "too unequal": 1, "too long": 2, "mended": 0}
    assert found == Counter(expected)
    assert "7 pairs read, 6 dropped" in clean_pairs.cleaning_report(found)


def test_marks_count_and_moses_tokens_are_those_of_moses():
    assert clean_pairs.words_and_marks("Grüß Gott, Welt-Raum!", "de") == 7
    assert clean_pairs.moses_tokens("Grüß Gott, Welt-Raum!", "de") == 5


def double(numbers):
    return [2 * number for number in numbers]


@pytest.mark.parametrize("jobs", [1, 2])
def test_chunks_keep_their_order_and_few_are_read_ahead(jobs):
    read = Counter()

    def numbers():
        for number in range(20 * programs.CHUNK):
            read["numbers"] += 1
            yield number

    result = []
    for part in programs.map_chunks(double, numbers(), jobs):
        result += part
        assert read["numbers"] - len(result) <= (2 * jobs + 2) * programs.CHUNK
    assert result == list(range(0, 40 * programs.CHUNK, 2))


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(KeyError), programs.writing(tmp_path / "text") as stream:
        stream.write("half")
        raise KeyError
    assert not files_below(tmp_path)
    with programs.writing(tmp_path / "text") as stream:
        stream.write("whole\n")
        assert not (tmp_path / "text").exists()
    assert (tmp_path / "text").read_bytes() == b"whole\n"


def test_training_pairs_that_are_in_other_splits_are_counted(tmp_path):
    splits = {"train": ["a", "b", "c", "b"], "valid": ["b", "x"], "test": ["d", "c", "y"]}
    for split, texts in splits.items():
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{t} {language}\n" for t in texts))
    (tmp_path / "test.en").write_text("d en\nanother translation\ny en\n")
    report = clean_pairs.splits_report(tmp_path, ("de", "en"))
    assert "train 4, valid 2, test 3 pairs; 2 pairs of train" in report
    assert "of valid, 0 as one of test" in report


@pytest.fixture
def binarized(tmp_path):
    builder = MMapIndexedDatasetBuilder(tmp_path / "x.bin", dtype=numpy.uint16)
    for length in (3, 1):
        builder.add_item(torch.ones(length))
    builder.finalize(tmp_path / "x.idx")
    (tmp_path / "text").write_text("a b\n\n")
    return tmp_path


def test_binarized_data_that_lack_something_are_refused(binarized):
    text, name = binarized / "text", binarized / "x"
    check_binarized.check_binarized(text, name)
    data = (binarized / "x.bin").read_bytes()
    (binarized / "x.bin").write_bytes(data[:-2])
    with pytest.raises(ValueError, match="x.bin has 6 bytes, not 8"):
        check_binarized.check_binarized(text, name)
    text.write_text("a\nb\nc\n")
    with pytest.raises(ValueError, match="x.idx has 2 sentences, .*text has 3 lines"):
        check_binarized.check_binarized(text, name)


def in_archives_shell(command, *arguments):
    """Run a line of shell with the functions of archives.sh."""
    text = f'set -euo pipefail; source "$0/recipes/lib/common.sh"; source "$0/data-prep/lib/archives.sh"; {command}'
    return subprocess.run(
        ["bash", "-c", text, str(ROOT), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
    )


@pytest.fixture
def continuing_server(tmp_path):
    """Serves one archive, from any byte on; the ranges that were asked for, and the address."""
    data = write_tar(tmp_path / "served.tgz", {"text": os.urandom(5000)}).read_bytes()
    ranges = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            ranges.append(asked)
            start = int(re.search(r"\d+", asked)[0]) if asked else 0
            self.send_response(416 if start >= len(data) else 206 if asked else 200)
            if start < len(data):
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(max(0, len(data) - start)))
            self.end_headers()
            self.wfile.write(data[start:])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield data, ranges, f"http://127.0.0.1:{running.server_port}/served.tgz"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("there", [0, 1000, None])
def test_an_interrupted_download_is_continued(continuing_server, tmp_path, there):
    data, ranges, url = continuing_server
    file = tmp_path / "download/served.tgz"
    file.parent.mkdir()
    (tmp_path / "download/served.tgz.partial").write_bytes(data[:there])
    result = in_archives_shell('download "$1" "$2"', url, file)
    assert result.returncode == 0, result.stderr
    assert file.read_bytes() == data
    assert set(files_below(file.parent)) == {"served.tgz"}
    begun = [] if there == 0 else [f"bytes={there or len(data)}-"]
    assert ranges == (begun or [None])


def test_what_continues_another_file_is_refused_and_then_fetched_anew(continuing_server, tmp_path):
    data, _, url = continuing_server
    file = tmp_path / "served.tgz.new"
    (tmp_path / "served.tgz.new.partial").write_bytes(b"something else")
    result = in_archives_shell('download "$1" "$2"', url, file)
    assert result.returncode != 0 and "is not a whole tar archive" in result.stderr
    assert set(files_below(tmp_path)) == {"served.tgz"}
    assert in_archives_shell('download "$1" "$2"', url, file).returncode == 0
    assert file.read_bytes() == data


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.gz"])
def test_what_is_not_whole_is_known(tmp_path, name):
    file = tmp_path / name
    mode = "w" if name.endswith(".tar") else "w:gz"
    write_tar(file, {"text": os.urandom(3000), "more": os.urandom(3000)}, mode)
    whole = file.read_bytes()

    def is_whole():
        return in_archives_shell('is_whole "$1" "$1"', file).returncode == 0

    assert is_whole()
    for broken in (whole[: len(whole) // 2], b"", b"<html>Sign in</html>" * 100):
        file.write_bytes(broken)
        assert not is_whole()


def test_checksums_are_found_by_the_name_of_the_file(tmp_path):
    (tmp_path / "list").write_text("aa  other.tgz\nbb *folder/x.tgz\ncc  xx.tgz\n")
    assert in_archives_shell('checksum_in "$1" x.tgz', tmp_path / "list").stdout == "bb\n"


def test_the_disk_is_checked_with_what_is_there_already(tmp_path):
    free = shutil.disk_usage(tmp_path).free // 1024
    new = tmp_path / "not/made/yet"
    assert in_archives_shell('need_disk "$1" "$2"', new, free // 2).returncode == 0
    result = in_archives_shell('need_disk "$1" "$2"', new, 4 * free)
    assert result.returncode != 0
    assert re.search(r"not/made/yet' needs about \d.*B of disk, and .*B are free there", result.stderr)
    assert not (tmp_path / "not").exists()
