"""A made-up translation data set as data-prep/ leaves it: raw text, binarized data and how they were made."""

import os
import random
from io import StringIO

import sentencepiece
from fairseq import options
from fairseq_cli import preprocess
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

import number_phrases
from scripts import succeed

WORDS = {
    "Montag": "Monday",
    "ohne": "without",
    "Wasser": "water",
    "Berlin": "Berlin",
    "zwei": "two",
    "Garten": "garden",
    "Englisch": "English",
    "oder": "or",
}
SIZES = {"train": 300, "valid": 10, "test": 13}
# A small model that learns these words within a second; recipes would warm up for 4,000 updates.
FLAGS = (
    "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 "
    "--rfa-num-matrices 20 --lr 0.02 --warmup-updates 4 --dropout 0 --log-interval 1 --num-workers 0"
).split()


def sentences(source, target):
    """Pairs of raw lines for each split: one word, several times, which is quickly learned."""
    dice = random.Random(3)
    text = {}
    for split, size in SIZES.items():
        rows = [[dice.choice(sorted(WORDS))] * dice.randint(4, 6) for _ in range(size)]
        german = [" ".join(row) + "." for row in rows]
        english = [" ".join(WORDS[word] for word in row) + "." for row in rows]
        text[split] = {"de": german, "en": english}
    return {split: {language: sides[language] for language in (source, target)} for split, sides in text.items()}


def words(line, lowercase):
    line = line.replace(".", " .")
    return line.lower() if lowercase else line


def learn_pieces(bpe, lines, folder):
    """A function from a line to its pieces; what it has learned lies in the folder."""
    if bpe == "sentencepiece":
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(folder / "sentencepiece"),
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / "sentencepiece.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
        return lambda line: " ".join(model.encode(line, out_type=str))
    codes = StringIO()
    learn_bpe(StringIO("\n".join(lines)), codes, 60)
    (folder / "code").write_text(codes.getvalue(), encoding="utf-8")
    return BPE(StringIO(codes.getvalue())).process_line


def make_data(folder, languages="de-en", bpe="subword_nmt", lowercase=False, joined=False):
    """Write raw/ and binarized/ with its file `preparation` into the folder, and return it."""
    source, target = languages.split("-")
    text = sentences(source, target)
    for name in ("raw", "pieces", "binarized"):
        os.makedirs(folder / name)
    prepared = text
    if bpe == "subword_nmt":
        prepared = {
            split: {language: [words(line, lowercase) for line in lines] for language, lines in sides.items()}
            for split, sides in text.items()
        }
    split_words = learn_pieces(bpe, sum(prepared["train"].values(), []), folder / "binarized")
    arguments = ["--source-lang", source, "--target-lang", target, "--destdir", f"{folder}/binarized"]
    for split in SIZES:
        arguments += [f"--{split}pref", f"{folder}/pieces/{split}"]
        for language in (source, target):
            for place, lines in (
                ("raw", text[split][language]),
                ("pieces", map(split_words, prepared[split][language])),
            ):
                content = "".join(line + "\n" for line in lines)
                (folder / place / f"{split}.{language}").write_text(content, encoding="utf-8")
    arguments += ["--joined-dictionary"] if joined else []
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    preparation = {
        "tokenizer": "moses" if bpe == "subword_nmt" else "none",
        "bpe": bpe,
        "case": "lowercase" if lowercase else "mixed",
    }
    content = "".join(f"{name}={value}\n" for name, value in preparation.items())
    (folder / "binarized/preparation").write_text(content, encoding="utf-8")
    return folder


DOCUMENTS = {"train": [1, 2, 5, 22, 40, 30], "valid": [4, 1], "test": [2, 5, 1, 3]}
"""The number of sentences of each document of `make_documents`."""


def make_documents(folder):
    """Data of data-prep/prepare.sh with documents of phrases about numbers, in the folder, which is returned."""
    (folder / "text").mkdir(parents=True)
    pairs = iter(number_phrases.sentence_pairs(sum(map(sum, DOCUMENTS.values())), seed=6))
    for split, sizes in DOCUMENTS.items():
        documents = [[next(pairs) for _ in range(size)] for size in sizes]
        for side, language in enumerate(("de", "en")):
            text = "\n".join("".join(pair[side] + "\n" for pair in document) for document in documents)
            (folder / f"text/{split}.{language}").write_text(text, encoding="utf-8")
    options = ["--source", "de", "--target", "en", "--out", folder, "--merges", 80, "--documents"]
    succeed("data-prep/prepare.sh", "--raw", folder / "text", *options)
    return folder


def flag_values(output):
    """The flags of the first fairseq-train that a recipe prints with --dry-run, with their values."""
    printed = output.replace("\\\n", " ").split("fairseq-train")[-1].splitlines()[0].split()
    values = {}
    for word, following in zip(printed, [*printed[1:], "--"]):
        if word.startswith("--"):
            values[word] = None if following.startswith("--") else following
    return values
