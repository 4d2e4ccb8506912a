import gzip
import re
import shutil
import subprocess
from argparse import Namespace

import pytest
from fairseq.data import encoders
from test_iwslt14_data import read, small_disk  # noqa: F401

import made_archives
from made_archives import SEPARATORS, swapped, web_server, wmt_archives, write_archives
from scripts import checksums, files_below, refused, run_script, succeed, times

WMT = "data-prep/wmt14.sh"
ARCHIVES = {
    "training-parallel-europarl-v7.tgz",
    "training-parallel-commoncrawl.tgz",
    "training-parallel-nc-v9.tgz",
    "dev.tgz",
    "test-full.tgz",
}
ODD = [(f"number {n} two words", f"Nummer {n}{c}zwei Wörter") for n, c in enumerate(SEPARATORS)]
ODD += [(f"figure {n}{c}two words", f"Zahl {n} zwei Wörter") for n, c in enumerate(SEPARATORS)]
JUST_GOOD = [("one two three four five six", "eins, zwei drei!"), ("word " * 250, "wort " * 200)]
BAD = [("one two three four five", "eins zwei drei"), ("word " * 251, "wort " * 251)]
BAD += [("one", ""), ("", "eins")]


def parts():
    """Five corpora, the fourth and fifth for French only; validation and test."""
    pairs = [(e.capitalize(), g) for e, g in swapped(made_archives.sentence_pairs(700, seed=8))]
    corpora = [pairs[:300], pairs[300:420], pairs[420:520], pairs[520:580], pairs[580:640]]
    corpora[1] = corpora[1][:60] + ODD + BAD + JUST_GOOD + corpora[1][60:]
    test = pairs[660:700]
    test[5] = ('He said: "It’s <5 & more"', "Er sagte: »Es ist <5 & mehr«")
    return corpora, pairs[640:660], test


def archives(target):
    corpora, valid, test = parts()
    return wmt_archives(corpora[: {"de": 3, "fr": 5}[target]], valid, test, target)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return {
        target: write_archives(tmp_path_factory.mktemp(f"archives {target}"), archives(target))
        for target in ("de", "fr")
    }


def options(made, out, target="de", jobs=1):
    sizes = ["--vocabulary-size", 250, "--merges", 150]
    return ["--target", target, "--from", made[target], "--out", out, "--jobs", jobs, *sizes]


@pytest.fixture(scope="module")
def prepared(made, tmp_path_factory):
    """The folder with the data; what was printed is kept beside it."""
    out = tmp_path_factory.mktemp("wmt") / "out"
    result = succeed(WMT, *options(made, out))
    (out.parent / "printed").write_text(result.stdout, encoding="utf-8")
    return out


def read_pairs(folder, split, target):
    return list(zip(read(folder / f"{split}.en"), read(folder / f"{split}.{target}"), strict=True))


def kept_pairs(corpora):
    kept = []
    for pair in (pair for corpus in corpora for pair in corpus):
        pair = tuple(re.sub(f"[{SEPARATORS}]", " ", text).strip() for text in pair)
        lengths = [len(re.sub(r"([^\w\s])", r" \1 ", text).split()) for text in pair]
        if min(lengths) >= 1 and max(lengths) <= 250 and 2 * max(lengths) <= 3 * min(lengths):
            kept.append(pair)
    return kept


def test_text_is_what_the_archives_hold_in_their_order(prepared):
    corpora, valid, test = parts()
    kept = kept_pairs(corpora[:3])
    assert read_pairs(prepared / "raw", "train", "de") == kept
    assert read_pairs(prepared / "raw", "valid", "de") == valid
    assert read_pairs(prepared / "raw", "test", "de") == test
    wanted = {tuple(text.strip() for text in pair) for pair in JUST_GOOD}
    assert wanted <= set(kept) and not set(BAD) & set(kept)


def test_what_was_read_and_dropped_is_printed(prepared):
    printed = (prepared.parent / "printed").read_text(encoding="utf-8")
    assert "about 4,500,000 pairs are expected" in printed
    found = re.search(
        r"^training-parallel-commoncrawl.tgz: (\d+) pairs read, (\d+) dropped "
        r"\(2 empty, 1 too long, (\d+) too unequal, 0 not UTF-8\); in 18 of",
        printed,
        re.M,
    )
    assert found and int(found[1]) == 144 and int(found[2]) == 3 + int(found[3])
    assert f"train {len(read(prepared / 'raw/train.de'))}, valid 20, test 40 pairs;" in printed
    assert re.search(r"^valid pairs +20, published +3000$", printed, re.M)
    assert re.search(r"^test pairs +40, published +3003$", printed, re.M)
    assert "warning: valid pairs, test pairs differ" in printed
    for corpus, read_pairs_of, published in (
        ("europarl-v7", 300, 1920209),
        ("commoncrawl", 144, 2399123),
        ("nc-v9", 100, 201288),
    ):
        assert re.search(rf"^{corpus} +{read_pairs_of}, published +{published}$", printed, re.M)
    assert "warning: europarl-v7, commoncrawl, nc-v9 differ from the published preparation" in printed


@pytest.mark.parametrize("language", ["en", "de"])
def test_fairseq_sees_the_pieces_of_the_training(prepared, language):
    model = str(prepared / "binarized/sentencepiece.model")
    bpe = encoders.build_bpe(
        Namespace(
            bpe="sentencepiece",
            sentencepiece_model=model,
            sentencepiece_enable_sampling=False,
            sentencepiece_alpha=None,
        )
    )
    for split in ("train", "valid", "test"):
        raw = read(prepared / f"raw/{split}.{language}")
        pieces = read(prepared / f"bpe/{split}.{language}")
        assert pieces == list(map(bpe.encode, raw))
        if split == "valid":
            assert list(map(bpe.decode, pieces)) == raw


def test_the_dictionary_is_joined_and_the_preparation_is_written_down(prepared):
    folder = prepared / "binarized"
    dictionary = (folder / "dict.en.txt").read_bytes()
    assert (folder / "dict.de.txt").read_bytes() == dictionary
    assert 200 < len(dictionary.splitlines()) <= 256
    assert (folder / "preparation").read_text() == "tokenizer=none\nbpe=sentencepiece\ncase=mixed\n"
    assert not (folder / "code").exists() and not (prepared / "tokenized").exists()


def test_another_machine_makes_the_same(made, prepared, tmp_path, monkeypatch):
    """Another folder, locale, hash seed and number of processes."""
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    monkeypatch.setenv("LC_ALL", "POSIX")
    shutil.copytree(made["de"], tmp_path / "elsewhere")
    succeed(WMT, *options({"de": "elsewhere"}, "other out", jobs=2), cwd=tmp_path)
    found, expected = checksums(tmp_path / "other out"), checksums(prepared)
    assert found.pop("preprocess.log") and expected.pop("preprocess.log")
    assert found == expected


def test_a_second_run_repeats_nothing(made, prepared, tmp_path):
    before = times(prepared)
    for folder in (made, {"de": tmp_path}):
        assert "is complete" in succeed(WMT, *options(folder, prepared)).stdout
    assert times(prepared) == before
    recorded = (prepared / "archives.sha256").read_text()
    assert {line.split()[1] for line in recorded.splitlines()} == ARCHIVES


def test_other_choices_in_the_same_folder_are_refused(made, prepared):
    before = times(prepared)
    assert "corpus=wmt14-en-fr" in refused(WMT, *options(made, prepared, target="fr"))
    assert "merges=150" in refused(WMT, *options(made, prepared), "--subword", "bpe")
    assert times(prepared) == before


@pytest.fixture(scope="module")
def french(made, tmp_path_factory):
    out = tmp_path_factory.mktemp("wmt") / "french"
    succeed(WMT, *options(made, out, "fr"), "--subword", "bpe")
    return out


def test_french_has_two_corpora_more_and_bpe_is_of_moses_tokens(french):
    corpora, valid, test = parts()
    assert read_pairs(french / "raw", "train", "fr") == kept_pairs(corpora)
    assert read_pairs(french / "raw", "test", "fr") == test
    assert (french / "binarized/preparation").read_text() == (
        "tokenizer=moses\nbpe=subword_nmt\ncase=mixed\n"
    )
    assert (french / "binarized/code").read_bytes() == (french / "bpe/code").read_bytes()
    dictionaries = [(french / f"binarized/dict.{language}.txt").read_bytes() for language in ("en", "fr")]
    assert dictionaries[0] == dictionaries[1]
    assert "He said : &quot; It ’ s &lt; 5 &amp; more &quot;" in read(french / "tokenized/test.en")


def changed(folder, target, archive, change):
    """The archives with one changed; `change` gets and returns its files by name."""
    made = archives(target)
    made[archive] = change(made[archive])
    return {target: write_archives(folder, made)}


def with_file(name, function):
    return lambda files: {**files, name: function(files[name])}


def in_gzip(function):
    return lambda data: gzip.compress(function(gzip.decompress(data)))


@pytest.mark.parametrize(
    ("target", "archive", "change", "message"),
    [
        (
            "fr",
            "training-giga-fren.tar",
            with_file("giga-fren.release2.fixed.fr.gz", in_gzip(lambda text: text + b"encore un\n")),
            r"fixed\.en\.gz has 60 lines of text, .*fixed\.fr\.gz has 61;",
        ),
        (
            "fr",
            "training-giga-fren.tar",
            with_file("giga-fren.release2.fixed.en.gz", lambda data: data[:-100]),
            r"training-giga-fren\.tar cannot be read at 'giga-fren\.release2\.fixed\.en\.gz' "
            r"\(Compressed file ended before .*\); fetch it again",
        ),
        (
            "de",
            "training-parallel-nc-v9.tgz",
            with_file("training/news-commentary-v9.de-en.de", lambda text: text.replace("\n", " ", 1)),
            r"commentary-v9\.de-en\.en has 100 lines .*v9\.de-en\.de has 99;",
        ),
        (
            "de",
            "dev.tgz",
            with_file("dev/newstest2013.de", lambda text: text + "mehr\n"),
            r"newstest2013\.en has 20 lines .*newstest2013\.de has 21;",
        ),
        (
            "de",
            "dev.tgz",
            with_file("dev/newstest2013.de", lambda text: text.encode("latin-1")),
            r"newstest2013\.de:\d+: byte 0x[0-9a-f]{2} is not UTF-8",
        ),
        (
            "de",
            "test-full.tgz",
            with_file(
                "test-full/newstest2014-deen-ref.de.sgm", lambda text: text.replace("<seg", "<gone", 1)
            ),
            r"src\.en\.sgm has 40 segments, .*ref\.de\.sgm has 39",
        ),
        (
            "de",
            "training-parallel-commoncrawl.tgz",
            lambda files: {"commoncrawl.cs-en.cs": "text\n"},
            r"commoncrawl\.tgz holds no 'commoncrawl\.de-en\.en'",
        ),
    ],
)
def test_archives_that_do_not_fit_are_refused(tmp_path, target, archive, change, message):
    made = changed(tmp_path / "from", target, archive, change)
    assert re.search(message, refused(WMT, *options(made, tmp_path / "out", target)))
    assert not [name for name in files_below(tmp_path / "out") if "raw" in name]


def test_training_lines_that_are_not_utf8_are_dropped_with_their_translation(tmp_path):
    def broken(text):
        return text.encode().replace(b"\n", b"\xff\n", 1)

    name = "training/europarl-v7.de-en.de"
    change = with_file(name, broken)
    made = changed(tmp_path / "from", "de", "training-parallel-europarl-v7.tgz", change)
    # A size that sentencepiece cannot reach ends the run after the text is made.
    arguments = [*options(made, tmp_path / "out"), "--vocabulary-size", 30000]
    result = run_script(WMT, *arguments)
    assert "sentencepiece cannot learn 30000 pieces" in result.stderr
    assert re.search(r"europarl-v7\.tgz: 300 pairs read, .* 1 not UTF-8\)", result.stdout)
    corpora, *_ = parts()
    del corpora[0][0]
    assert read_pairs(tmp_path / "out/raw", "train", "de") == kept_pairs(corpora[:3])


def test_the_disk_is_checked_before_anything_is_written(made, small_disk):  # noqa: F811
    disk = small_disk(64)
    line = refused(WMT, *options(made, disk / "out"))
    assert re.search(r"small disk/out' needs about \d+K?B of disk, and \d+K?B are free there", line)
    assert set(files_below(disk / "out")) == {"corpus"}
    line = refused(WMT, "--target", "fr", "--out", disk / "real", "--jobs", 1)
    assert re.search(r"needs about \d+GB of disk", line)
    assert set(files_below(disk / "real")) == {"corpus"}


def test_archives_are_downloaded_in_their_order_and_kept(made, tmp_path):
    out, served = tmp_path / "out", tmp_path / "served"
    arguments = ["--target", "de", "--out", out, "--vocabulary-size", 30000, "--url"]
    message = refused(WMT, *arguments, "http://127.0.0.1:1")
    assert "cannot download http://127.0.0.1:1/training-parallel-europarl-v7.tgz" in message
    shutil.copytree(made["de"], served)
    page = served / "dev.tgz"
    archive = page.read_bytes()
    page.write_text("<html>Sign in</html>")
    with web_server(served) as url:
        assert f"{url}/dev.tgz is not a whole tar archive" in refused(WMT, *arguments, url)
        page.write_bytes(archive)
        (served / "training-parallel-europarl-v7.tgz").unlink()
        assert "cannot learn 30000 pieces" in refused(WMT, *arguments, url)
    assert set(files_below(out / "download")) == ARCHIVES
    listed = subprocess.run(
        ["sha256sum", "--check", "--quiet", "../archives.sha256"], cwd=out / "download"
    )
    assert listed.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "option --target is missing"),
        (["--target", "cs"], "--target 'cs' is not one of de, fr"),
        (["--target", "de", "--subword", "words"], "--subword 'words' is not one of bpe, sentencepiece"),
        (["--target", "de", "--from", "/nowhere"], "--from '/nowhere' is not a folder"),
    ],
)
def test_bad_options_are_refused(tmp_path, arguments, message):
    assert message in refused(WMT, "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_help_says_what_it_takes():
    text = run_script(WMT, "--help").stdout
    assert "GB" in text and "hours" in text and "--from DIR" in text and not text.startswith("#")
