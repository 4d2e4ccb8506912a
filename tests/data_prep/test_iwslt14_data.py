import html
import os
import re
import shutil
import signal
import subprocess
import sys
from argparse import Namespace

import pytest
from fairseq.data import encoders
from sacremoses import MosesTokenizer

import made_archives
from made_archives import IWSLT_TESTS, SEPARATORS, iwslt_files, web_server, write_tar
from scripts import (
    PATIENCE,
    checksums,
    files_below,
    locked,
    refused,
    run_script,
    start,
    succeed,
    times,
    wait_until,
    write_executable,
)

IWSLT = "data-prep/iwslt14-de-en.sh"
SIZES = "train pairs", "valid pairs", "test pairs", "German types", "English types"

# Kept, with a separator of lines on one side.
ODD = [(f"Nummer {n}{c}zwei Wörter", f"number {n} two words") for n, c in enumerate(SEPARATORS)]
ODD += [(f"Zahl {n} zwei Wörter", f"figure {n}{c}two words") for n, c in enumerate(SEPARATORS)]
# What the cleaning must drop, and what is just good enough.
BAD = [
    ("", "nothing on the other side"),
    ("nichts auf der anderen Seite", ""),
    ("eins zwei drei vier", "one two"),
    ("eins", "one two"),
    ("wort " * 151, "word " * 100),
    ("wort " * 176, "word " * 150),
    ("\u2028", "a separator alone"),
]
JUST_GOOD = [("eins zwei drei", "one two"), ("wort " * 175, "word " * 117), ("A-B, C!", "A-B, C!")]


def training_pairs():
    pairs = [list(pair) for pair in made_archives.sentence_pairs(560, seed=5)]
    extra = ODD + BAD + JUST_GOOD
    for number, pair in enumerate(extra):
        pairs.insert(20 * number + 7, pair)
    return pairs


def held_out():
    pairs = made_archives.sentence_pairs(640, seed=5)[560:]
    tests = [pairs[16 * number : 16 * (number + 1)] for number in range(5)]
    tests[1][3] = ("Das ist’s: <5 & »mehr«", "That’s it: <5 & “more”")
    return tests


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("the archives")
    write_tar(folder / "de-en.tgz", iwslt_files(training_pairs(), held_out()))
    return folder


def options(made, out, jobs=1):
    return ["--from", made, "--out", out, "--merges", 150, "--jobs", jobs]


@pytest.fixture(scope="module")
def prepared(made, tmp_path_factory):
    """The folder with the data; what was printed is kept beside it."""
    out = tmp_path_factory.mktemp("iwslt") / "out"
    result = succeed(IWSLT, *options(made, out))
    (out.parent / "printed").write_text(result.stdout, encoding="utf-8")
    return out


def read(file):
    return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def read_pairs(folder, split):
    return list(zip(read(folder / f"{split}.de"), read(folder / f"{split}.en"), strict=True))


def mended(text):
    return re.sub(f"[{SEPARATORS}]", " ", text).strip()


def kept_pairs():
    """The pairs that the cleaning keeps, found in another way."""
    moses = {language: MosesTokenizer(language) for language in ("de", "en")}
    kept = []
    for german, english in training_pairs():
        lengths = len(moses["de"].tokenize(german)), len(moses["en"].tokenize(english))
        ratio = max(lengths) / min(lengths) if min(lengths) else 9
        if ratio <= 1.5 and max(lengths) <= 175:
            kept.append((mended(german), mended(english)))
    return kept


def test_each_kept_pair_is_in_one_split_and_every_23rd_in_valid(prepared):
    kept = kept_pairs()
    assert read_pairs(prepared / "raw", "valid") == kept[22::23]
    del kept[22::23]
    assert read_pairs(prepared / "raw", "train") == kept
    both = set(kept)
    assert {(mended(german), mended(english)) for german, english in ODD} & both
    assert not {(german.strip(), english.strip()) for german, english in BAD} & both
    assert {(german.strip(), english.strip()) for german, english in JUST_GOOD} <= both | set(
        read_pairs(prepared / "raw", "valid")
    )


def test_the_test_is_the_five_sets_in_their_order_with_entities_as_they_stand(prepared):
    expected = [pair for pairs in held_out() for pair in pairs]
    expected = [tuple(html.escape(text, quote=False).replace("’", "'") for text in pair) for pair in expected]
    assert read_pairs(prepared / "raw", "test") == expected


def test_no_metadata_is_left(prepared):
    text = "".join(file.read_text(encoding="utf-8") for file in files_below(prepared / "raw").values())
    assert not re.search("</?[a-z]", text)
    assert "Speaker" not in text and "talks" not in text


@pytest.mark.parametrize("language", ["de", "en"])
def test_words_are_moses_tokens_in_small_letters(prepared, language):
    tokenizer = encoders.build_tokenizer(
        Namespace(
            tokenizer="moses",
            source_lang=language,
            target_lang=language,
            moses_no_dash_splits=True,
            moses_no_escape=False,
        )
    )
    bpe = encoders.build_bpe(
        Namespace(bpe="subword_nmt", bpe_codes=str(prepared / "binarized/code"), bpe_separator="@@")
    )
    for split in ("train", "valid", "test"):
        words = [tokenizer.encode(line).lower() for line in read(prepared / f"raw/{split}.{language}")]
        assert read(prepared / f"tokenized/{split}.{language}") == words
        assert read(prepared / f"bpe/{split}.{language}") == list(map(bpe.encode, words))
    assert "a-b , c !" in read(prepared / f"tokenized/train.{language}")


def test_dictionaries_are_separate_and_the_preparation_is_written_down(prepared):
    for language in ("de", "en"):
        dictionary = read(prepared / f"binarized/dict.{language}.txt")
        pieces = {line.split()[0] for line in dictionary if not line.startswith("madeupword")}
        lines = read(prepared / f"bpe/train.{language}")
        assert pieces == {piece for line in lines for piece in line.split()}
    assert (prepared / "binarized/preparation").read_text() == (
        "tokenizer=moses\nbpe=subword_nmt\ncase=lowercase\n"
    )


def test_counts_are_printed_beside_the_published_ones(prepared):
    printed = (prepared.parent / "printed").read_text(encoding="utf-8")
    counts = {split: len(read(prepared / f"raw/{split}.de")) for split in ("train", "valid", "test")}
    for split, published in (("train", 160239), ("valid", 7283), ("test", 6750)):
        assert re.search(rf"^{split} pairs +{counts[split]}, published +{published}$", printed, re.M)
    log = (prepared / "preprocess.log").read_text(encoding="utf-8")
    types = dict(re.findall(r"\[(de|en)\] Dictionary: (\d+) types", log))
    assert re.search(rf"^German types +{types['de']}, published +8848$", printed, re.M)
    assert re.search(rf"^English types +{types['en']}, published +6632$", printed, re.M)
    assert f"warning: {', '.join(SIZES)} differ from the published preparation" in printed
    assert re.search(r"^588 pairs read, \d+ dropped \(3 empty, 1 too long, \d+ too unequal,", printed, re.M)
    # A separator at the end of a side is none inside a line.
    assert re.search(r"in 18 of those kept odd separators became spaces$", printed, re.M)


def test_a_second_run_repeats_nothing_with_the_archive_and_without(made, prepared, tmp_path):
    before = times(prepared)
    assert "is complete" in succeed(IWSLT, *options(made, prepared)).stdout
    assert "is complete" in succeed(IWSLT, *options(tmp_path, prepared)).stdout
    assert times(prepared) == before


def test_another_machine_makes_the_same(made, prepared, tmp_path, monkeypatch):
    """Another folder, locale, hash seed and number of processes."""
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    monkeypatch.setenv("LC_ALL", "POSIX")
    shutil.copytree(made, tmp_path / "elsewhere")
    (tmp_path / "work").mkdir()
    succeed(IWSLT, *options("../elsewhere", "other out", jobs=2), cwd=tmp_path / "work")
    found = checksums(tmp_path / "work/other out")
    expected = checksums(prepared)
    for name in ("preprocess.log",):
        del found[name], expected[name]
    assert found == expected


def test_the_other_direction_in_the_same_folder_is_refused(made, prepared):
    arguments = [*options(made, prepared), "--source", "en", "--target", "de"]
    assert "source=de" in refused(IWSLT, *arguments)


def run_until(moments, out, arguments, first):
    """Start the script, and end it with all its processes as soon as one of these files in `out` exists."""
    process = start(IWSLT, *arguments, first=first, start_new_session=True)
    wait_until(lambda: any((out / moment).exists() for moment in moments), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with locked(out):
        pass


def test_an_interrupted_run_is_continued(made, prepared, tmp_path):
    out, commands = tmp_path / "out", tmp_path / "commands"
    commands.mkdir()
    # However late the test sees it, the binarized data are not complete yet.
    real = shutil.which("fairseq-preprocess", path=os.path.dirname(sys.executable))
    write_executable(commands / "fairseq-preprocess", f"#!/bin/bash\n'{real}' \"$@\" && sleep {PATIENCE}\n")
    # The first is there for a moment only, which a test on a busy machine may miss.
    for moment in ("raw.partial/train.de.partial raw", "tokenized/test.de", "bpe/code", "binarized.partial"):
        run_until(moment.split(), out, options(made, out), commands)
        assert not (out / "binarized").exists()
    before = times(out)
    succeed(IWSLT, *options(made, out))
    assert checksums(out / "binarized") == checksums(prepared / "binarized")
    assert not [name for name in files_below(out) if "partial" in name]
    after = times(out)
    assert all(after[name] == before[name] for name in before if name.startswith(("raw", "tokenized")))


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many KiB, or makes it larger."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small disk"
    folder.mkdir()

    def mount(kib):
        again = ",remount" if os.path.ismount(folder) else ""
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k{again}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no small file system can be mounted here")
        return folder

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_and_the_run_continues_on_a_larger_one(
    made, prepared, small_disk
):
    """Room for a part of the text, of the tokens, of the pieces and of the binarized data."""
    sizes = {
        folder: sum(4 + file.stat().st_size // 1024 for file in files_below(prepared / folder).values())
        for folder in ("raw", "tokenized", "bpe")
    }
    room = 0
    for folder, message in (
        ("raw", r"/out/raw.partial/.*: No space left on device"),
        ("tokenized", r"/out/tokenized/.*: No space left on device"),
        ("bpe", r"/out/bpe/.*: No space left on device"),
        ("binarized", r"no space left in .*/out$"),
    ):
        disk = small_disk(16 + room + sizes.get(folder, 12) // 2)
        line = refused(IWSLT, *options(made, disk / "out"))
        assert re.search(message, line), line
        assert not (disk / "out/binarized").exists()
        assert not [name for name in files_below(disk / "out") if "partial" in name]
        room += sizes.get(folder, 0)
    disk = small_disk(4000)
    succeed(IWSLT, *options(made, disk / "out"))
    assert checksums(disk / "out/binarized") == checksums(prepared / "binarized")


def test_a_closed_port_is_reported(tmp_path):
    message = refused(IWSLT, "--out", tmp_path / "out", "--url", "http://127.0.0.1:1/")
    assert "cannot download http://127.0.0.1:1/de-en.tgz" in message and "--from" in message
    assert set(files_below(tmp_path / "out")) == {"corpus"}


def test_an_archive_is_downloaded_once(made, prepared, tmp_path):
    """A page in its place is not kept; what was downloaded is not fetched again."""
    served, out = tmp_path / "served", tmp_path / "out"
    served.mkdir()
    (served / "de-en.tgz").write_text("<html>Sign in</html>")
    with web_server(served) as url:
        arguments = ["--out", out, "--url", url, "--merges", 150]
        assert f"{url}/de-en.tgz is not a whole tar archive" in refused(IWSLT, *arguments)
        assert set(files_below(out)) == {"corpus"}
        write_tar(served / "de-en.tgz", {"de-en/README": "not the data"})
        assert "holds no 'de-en/train.tags.de-en.de'" in refused(IWSLT, *arguments)
    assert set(files_below(out)) == {"corpus", "download/de-en.tgz"}
    assert "holds no 'de-en/train.tags.de-en.de'" in refused(IWSLT, *arguments)


def test_a_truncated_archive_is_refused(made, tmp_path):
    data = (made / "de-en.tgz").read_bytes()
    (tmp_path / "de-en.tgz").write_bytes(data[: len(data) // 2])
    message = refused(IWSLT, *options(tmp_path, tmp_path / "out"))
    assert f"'{tmp_path}/de-en.tgz' is not a whole tar archive; fetch it again" in message
    assert set(files_below(tmp_path / "out")) == {"corpus"}


def test_another_archive_than_at_first_is_refused(made, prepared, tmp_path):
    recorded = (prepared / "archives.sha256").read_text()
    sum_now = checksums(made)["de-en.tgz"]
    assert recorded == f"{sum_now}  de-en.tgz\n"
    write_tar(tmp_path / "de-en.tgz", iwslt_files(training_pairs()[:300], held_out()))
    before = times(prepared)
    message = refused(IWSLT, *options(tmp_path, prepared))
    assert f"not {sum_now} as at its first use" in message
    assert times(prepared) == before


def test_checksums_of_a_list_are_demanded(made, prepared, tmp_path):
    wanted = tmp_path / "list"
    arguments = [*options(made, tmp_path / "out"), "--checksums", wanted]
    assert f"file '{wanted}' not found" in refused(IWSLT, *arguments)
    wanted.write_text(f"{'0' * 64}  other.tgz\n")
    assert "has no line for de-en.tgz" in refused(IWSLT, *arguments)
    wanted.write_text(f"{'0' * 64} *de-en.tgz\n")
    assert re.search(rf"has the sha256 [0-9a-f]{{64}}, not {'0' * 64} as", refused(IWSLT, *arguments))
    assert not (tmp_path / "out/archives.sha256").exists() and not (tmp_path / "out/raw").exists()
    succeed(IWSLT, *options(made, prepared), "--checksums", prepared / "archives.sha256")


def changed_archive(folder, change):
    """The archive with one file changed; `change` maps its name to a function of its text."""
    files = iwslt_files(training_pairs()[:60], held_out())
    for name, function in change.items():
        files[f"de-en/{name}"] = function(files[f"de-en/{name}"])
    return write_tar(folder / "de-en.tgz", files).parent


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("train.tags.de-en.en", lambda text: text + "one more\n", r"\.de has 60 lines .*\.en has 61;"),
        ("train.tags.de-en.de", lambda text: text + "eins\x85\nzwei\n", r"\.de has 62 .*\.en has 60;"),
        (
            f"IWSLT14.{IWSLT_TESTS[2]}.de-en.de.xml",
            lambda text: text.replace('<seg id="2">', "<seg>", 1).replace("<seg>", "<none>"),
            r"tst2010\.de-en\.de\.xml has 15 segments, .*tst2010\.de-en\.en\.xml has 16",
        ),
        (
            f"IWSLT14.{IWSLT_TESTS[4]}.de-en.en.xml",
            lambda text: text.replace('docid="1"', 'docid="9"'),
            r"tst2012\.de-en\.en\.xml has no segment 1 of document '1'",
        ),
    ],
)
def test_unequal_sides_are_refused_with_both_numbers(tmp_path, name, function, message):
    folder = changed_archive(tmp_path / "from", {name: function})
    assert re.search(message, refused(IWSLT, *options(folder, tmp_path / "out")))
    assert not [name for name in files_below(tmp_path / "out") if "raw" in name]


def test_data_of_another_kind_in_the_folder_are_left_alone(made, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.de").write_text("eins\n")
    assert "holds other data; use another --out" in refused(IWSLT, *options(made, tmp_path))
    assert set(files_below(tmp_path)) == {"raw/train.de"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nonsense"], "unknown option '--nonsense'"),
        (["--source", "fr"], "--source 'fr' --target 'en' are not de and en"),
        (["--merges", "many"], "--merges 'many' is not a whole number above 0"),
        (["--from", "/nowhere"], "--from '/nowhere' is not a folder"),
        (["--from", "."], "/de-en.tgz' not found; put it there or leave --from away to download"),
    ],
)
def test_bad_options_are_refused(tmp_path, arguments, message):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert message in refused(IWSLT, "--out", tmp_path / "out", *arguments, cwd=empty)
    assert not (tmp_path / "out/raw").exists()


def test_help_shows_the_options():
    text = run_script(IWSLT, "--help").stdout
    assert "--from DIR" in text and "--checksums FILE" in text and not text.startswith("#")
