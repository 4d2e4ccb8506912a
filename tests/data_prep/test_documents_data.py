"""Text with documents: empty lines or lists of sizes, IWSLT14 with whole talks."""

import pytest
from fairseq.data import Dictionary

import add_separator
import clean_pairs
import document_sizes
import iwslt14_text
import made_archives
from made_archives import IWSLT_TESTS, iwslt_set, write_tar
from scripts import checksums, refused, succeed, times

PREPARE = "data-prep/prepare.sh"
SIZES = {"train": [1, 2, 5, 30], "valid": [1], "test": [5, 1, 2]}
TALKS = [1, 2, 5, 1]


def split_pairs(sizes, seed):
    pairs = iter(made_archives.sentence_pairs(sum(sizes), seed=seed))
    return [[next(pairs) for _ in range(size)] for size in sizes]


def write_raw(folder, separator="\n", end=""):
    folder.mkdir()
    for seed, (split, sizes) in enumerate(SIZES.items()):
        for side, language in enumerate(("de", "en")):
            text = separator.join(made_archives.lines_of(document, side) for document in split_pairs(sizes, seed))
            (folder / f"{split}.{language}").write_text(text + end, encoding="utf-8")
    return folder


def options(raw, out):
    return ["--raw", raw, "--source", "de", "--target", "en", "--out", out, "--merges", 60]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_raw(tmp_path_factory.mktemp("raw") / "text")


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared")
    succeed(PREPARE, *options(raw, out), "--documents")
    return out


def numbers(file):
    return [int(line) for line in file.read_text().splitlines()]


def test_sentences_are_as_without_documents_and_sizes_are_listed(prepared, tmp_path):
    plain = write_raw(tmp_path / "text", separator="")
    succeed(PREPARE, *options(plain, tmp_path / "out"))
    with_documents, without = checksums(prepared), checksums(tmp_path / "out")
    others = {name for name, value in with_documents.items() if without.get(name) != value}
    assert others == {
        "settings",
        "binarized/dict.de.txt",
        "binarized/dict.en.txt",
        *(f"{folder}/{split}.documents" for folder in ("raw", "binarized") for split in SIZES),
    }
    for split, sizes in SIZES.items():
        assert numbers(prepared / f"binarized/{split}.documents") == sizes


def test_only_the_separator_is_new_in_the_dictionaries(prepared, tmp_path):
    plain = write_raw(tmp_path / "text", separator="")
    succeed(PREPARE, *options(plain, tmp_path / "out"))
    old, new = (Dictionary.load(f"{folder}/binarized/dict.de.txt") for folder in (tmp_path / "out", prepared))
    assert new.index("<sep>") != new.unk()
    words = [word for word in old.symbols if not word.startswith("madeupword")]
    assert [old.index(word) for word in words] == [new.index(word) for word in words]


def test_a_second_run_repeats_nothing(raw, prepared):
    before = times(prepared)
    assert "is complete" in succeed(PREPARE, *options(raw, prepared), "--documents").stdout
    assert times(prepared) == before


def test_lists_of_sizes_say_the_same_as_empty_lines(prepared, tmp_path):
    plain = write_raw(tmp_path / "text", separator="")
    for split in SIZES:
        (plain / f"{split}.documents").write_bytes((prepared / f"raw/{split}.documents").read_bytes())
    succeed(PREPARE, *options(plain, tmp_path / "out"), "--documents")
    assert checksums(tmp_path / "out/binarized") == checksums(prepared / "binarized")


@pytest.mark.parametrize(
    ("source", "target", "sizes"),
    [
        ("a\n\nb\nc\n", "A\n\nB\nC\n", [1, 2]),
        ("a\n", "A\n", [1]),
        ("a\n\n", "A\n \n", [1]),
        ("a\nb\n\nc", "A\nB\n\nC\n", [2, 1]),
    ],
)
def test_documents_stand_between_empty_lines(tmp_path, source, target, sizes):
    (tmp_path / "x.de").write_text(source)
    (tmp_path / "x.en").write_text(target)
    assert document_sizes.documents_of(tmp_path / "x.de", tmp_path / "x.en", tmp_path / "x.documents") == sizes


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("\na\n", "\nA\n", r"x\.de:1: empty line without a document before it"),
        ("a\n\n\nb\n", "A\n\n\nB\n", r"x\.de:3: empty line without a document before it"),
        ("a\n\nb\n", "A\nB\nC\n", r"x\.de:2: empty line, but not in .*x\.en"),
        ("a\nb\nc\n", "A\n\nB\n", r"x\.en:2: empty line, but not in .*x\.de"),
        ("a\n\nb\n", "A\n\nB\nC\n", "has 3 lines.*has 4"),
        ("", "", "no lines"),
        ("a\u2028b\n", "A\n", r"x\.de:1: line separator"),
    ],
)
def test_empty_lines_that_part_no_documents_are_refused(tmp_path, source, target, message):
    (tmp_path / "x.de").write_text(source, encoding="utf-8")
    (tmp_path / "x.en").write_text(target, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        document_sizes.documents_of(tmp_path / "x.de", tmp_path / "x.en", tmp_path / "x.documents")


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        ("1\n1\n", r"counts 2 sentences in 2 documents, the text has 3"),
        ("", r"counts 0 sentences in 0 documents, the text has 3"),
        ("3\n0\n", r"x\.documents:2: '0' is not a number of sentences above 0"),
        ("three\n", r"x\.documents:1: 'three'"),
    ],
)
def test_lists_that_do_not_fit_the_text_are_refused(tmp_path, listing, message):
    for name, text in (("x.de", "a\nb\nc\n"), ("x.en", "A\nB\nC\n"), ("x.documents", listing)):
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        document_sizes.documents_of(tmp_path / "x.de", tmp_path / "x.en", tmp_path / "x.documents")


def test_prepare_refuses_bad_documents_in_one_line_and_writes_nothing(raw, tmp_path):
    bad = write_raw(tmp_path / "text")
    (bad / "valid.en").write_text("one\n\ntwo\n")
    assert "valid.de has 1 lines" in refused(PREPARE, *options(bad, tmp_path / "out"), "--documents")
    assert "empty line" in refused(PREPARE, *options(raw, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_separator_takes_the_place_of_a_filler():
    lines = ["a 3", "madeupword0000 0", "madeupword0001 0"]
    assert add_separator.with_separator(lines, "dict") == ["a 3", "<sep> 0", "madeupword0001 0"]
    assert add_separator.with_separator(["a 3"], "dict") == ["a 3", "<sep> 0"]
    with pytest.raises(ValueError, match="the text holds <sep>"):
        add_separator.with_separator(["<sep> 3"], "dict")


def talk_text(talks, side, tag):
    """Talks with odd tags: capitals, attributes, no keywords, several tags in a line."""
    language = ("de", "en")[side]
    lines = []
    for number, talk in enumerate(talks):
        url = f"<{tag}>http://talks.example/{language}/{number}</{tag}>"
        lines.append(url if number % 2 else url.replace(f"<{tag}>", f"<{tag} lang='{language}'>"))
        lines.append(f"<TALKID>{number}</TALKID>")
        title, *rest = [pair[side] for pair in talk]
        lines += [f"<title>{title}</title>", *rest, "<reviewer></reviewer><translator></translator>"]
    return "".join(line + "\n" for line in lines)


def made_talks(tag="url", other_tag="url"):
    talks = split_pairs([*TALKS, 25, 30], seed=9)
    talks[2][1] = ("eins", "one two three four")  # dropped for its lengths
    talks.insert(1, [("eins", "one two three four")])  # nothing of this talk is left
    files = {
        f"de-en/train.tags.de-en.{language}": talk_text(talks, side, (tag, other_tag)[side])
        for side, language in enumerate(("de", "en"))
    }
    held_out = [talk for size in range(3, 8) for talk in split_pairs([size], seed=20 + size)]
    for name, talk in zip(IWSLT_TESTS, held_out):
        for side, language in enumerate(("de", "en")):
            files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = iwslt_set(name, talk, side)
    return files


@pytest.mark.parametrize("jobs", [1, 2])
def test_talks_stay_whole(tmp_path, monkeypatch, jobs):
    archive = write_tar(tmp_path / "de-en.tgz", made_talks())
    iwslt14_text.write_talks(str(archive), str(tmp_path), jobs, allow_broken=False)
    kept = [
        [
            pair
            for pair in talk
            if not clean_pairs.judge([clean_pairs.moses_tokens(t, s) for t, s in zip(pair, ("de", "en"))], 175)
        ]
        for talk in split_pairs([*TALKS, 25, 30], seed=9)
    ]
    kept[2].pop(1)
    assert numbers(tmp_path / "train.documents") == [len(talk) for talk in kept if talk]
    assert (tmp_path / "train.de").read_text().splitlines() == [pair[0] for talk in kept for pair in talk]
    assert numbers(tmp_path / "valid.documents") == [3, 4]
    assert numbers(tmp_path / "test.documents") == [5, 6, 7]
    for split, sizes in (("valid", (3, 4)), ("test", (5, 6, 7))):
        expected = [pair[1] for size in sizes for pair in split_pairs([size], seed=20 + size)[0]]
        assert (tmp_path / f"{split}.en").read_text().splitlines() == expected


def test_sides_that_begin_their_talks_elsewhere_are_refused(tmp_path):
    archive = write_tar(tmp_path / "de-en.tgz", made_talks(other_tag="speaker"))
    with pytest.raises(ValueError, match="line 1 of the text is in talk 1 of .*, in talk 0 of"):
        iwslt14_text.write_talks(str(archive), str(tmp_path), 1, allow_broken=True)


def test_the_script_makes_talks_and_says_that_the_split_is_another(tmp_path):
    write_tar(tmp_path / "from/de-en.tgz", made_talks())
    arguments = ["--from", tmp_path / "from", "--out", tmp_path / "out", "--merges", 60, "--jobs", 1]
    result = succeed("data-prep/iwslt14-de-en.sh", *arguments, "--documents")
    assert "another split than the published one" in result.stdout and "warning" not in result.stdout
    assert numbers(tmp_path / "out/binarized/test.documents") == [5, 6, 7]
    before = times(tmp_path / "out")
    succeed("data-prep/iwslt14-de-en.sh", *arguments, "--documents")
    assert times(tmp_path / "out") == before
    assert "documents" in refused("data-prep/iwslt14-de-en.sh", *arguments)
