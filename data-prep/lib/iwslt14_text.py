"""Take train, valid and test of IWSLT14 German-English out of de-en.tgz, as raw text.

    PYTHONPATH=data-prep/lib python -P -m iwslt14_text --archive FILE --out DIR

With --documents whole talks: all of the training text is train, two of the held-out sets are valid and three are test,
and SPLIT.documents says how many sentences each talk has.
"""

import argparse
import itertools
import os
import re
from collections import Counter

from archive_text import REMEDY, matched_texts, need_members, paired_members, paired_texts
from clean_pairs import clean_pairs, cleaning_report, moses_tokens, splits_report
from programs import run, writing

LANGUAGES = ("de", "en")
TRAIN = "de-en/train.tags.de-en.{}"
TESTS = [
    f"de-en/IWSLT14.{name}.de-en.{{}}.xml"
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
]
METADATA = re.compile(rb"</?(url|talkid|keywords|speaker|reviewer|translator|doc)\b[^>]*>", re.I)
START_OF_TALK = re.compile(rb"<url\b[^>]*>", re.I)
TEXT_TAG = re.compile(rb"</?(title|description)>", re.I)
LONGEST = 175
VALID_STEP = 23
NUM_VALID_SETS = 2
"""So many of the tests are for validation where talks stay whole."""


def text_lines(lines):
    for line in lines:
        if not METADATA.search(line):
            yield TEXT_TAG.sub(b"", line)


def write_train_and_valid(archive, folder, jobs, allow_broken):
    """Every 23rd of the pairs that are kept is for validation."""
    members = [TRAIN.format(language) for language in LANGUAGES]
    name = f"{archive}: {' and '.join(members)}"
    found = Counter()
    with (
        writing(f"{folder}/train.de") as train_german,
        writing(f"{folder}/train.en") as train_english,
        writing(f"{folder}/valid.de") as valid_german,
        writing(f"{folder}/valid.en") as valid_english,
    ):
        pairs = paired_members(archive, members, text_lines)
        kept = clean_pairs(pairs, LANGUAGES, moses_tokens, LONGEST, jobs, found, name, allow_broken)
        train, valid = (train_german, train_english), (valid_german, valid_english)
        for number, pair in enumerate(kept, start=1):
            for stream, text in zip(train if number % VALID_STEP else valid, pair):
                stream.write(text + "\n")
    return found


def write_test(archive, folder):
    with writing(f"{folder}/test.de") as german, writing(f"{folder}/test.en") as english:
        for test in TESTS:
            members = [test.format(language) for language in LANGUAGES]
            for pair in paired_texts(archive, members, keep_entities=True):
                for stream, text in zip((german, english), pair):
                    stream.write(text.replace("’", "'") + "\n")


def lines_of_talks(lines):
    """Lines of text, each with the number of its talk from 1."""
    talk = 0
    for line in lines:
        talk += bool(START_OF_TALK.search(line))
        yield from ((text, talk) for text in text_lines([line]))


def pairs_of_talks(archive, members):
    """Pairs of lines and the number of their talk, which both sides must agree on."""
    pairs = paired_members(archive, members, lines_of_talks)
    for count, ((german, talk), (english, other)) in enumerate(pairs, start=1):
        if talk != other:
            raise ValueError(
                f"{archive}: line {count} of the text is in talk {talk} of {members[0]}, "
                f"in talk {other} of {members[1]}; {REMEDY}"
            )
        yield german, english, talk


def write_documents(folder, split, documents):
    """Documents, each some pairs of lines, as text of a split and the list of their sizes."""
    with (
        writing(f"{folder}/{split}.de") as german,
        writing(f"{folder}/{split}.en") as english,
        writing(f"{folder}/{split}.documents") as sizes,
    ):
        for document in map(list, documents):
            for stream, lines in zip((german, english), zip(*document)):
                stream.writelines(line + "\n" for line in lines)
            sizes.write(f"{len(document)}\n")


def write_training_talks(archive, folder, jobs, allow_broken):
    """Where pairs were dropped, those around them follow each other in the talk."""
    members = [TRAIN.format(language) for language in LANGUAGES]
    name, found = f"{archive}: {' and '.join(members)}", Counter()
    pairs = pairs_of_talks(archive, members)
    kept = clean_pairs(pairs, LANGUAGES, moses_tokens, LONGEST, jobs, found, name, allow_broken)
    talks = itertools.groupby(kept, key=lambda item: item[2])
    write_documents(folder, "train", ((item[:2] for item in talk) for _, talk in talks))
    return found


def held_out_talks(archive, tests):
    for test in tests:
        segments = matched_texts(archive, [test.format(language) for language in LANGUAGES], keep_entities=True)
        for _, talk in itertools.groupby(segments.items(), key=lambda item: item[0][0]):
            yield [[text.replace("’", "'") for text in pair] for _, pair in talk]


def write_talks(archive, folder, jobs, allow_broken):
    write_documents(folder, "valid", held_out_talks(archive, TESTS[:NUM_VALID_SETS]))
    write_documents(folder, "test", held_out_talks(archive, TESTS[NUM_VALID_SETS:]))
    return write_training_talks(archive, folder, jobs, allow_broken)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--out", required=True, help="folder for train, valid and test")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--allow-broken-text", action="store_true")
    parser.add_argument("--documents", action="store_true", help="keep talks whole")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    need_members(options.archive, [TRAIN.format(language) for language in LANGUAGES])
    cleaning = options.archive, options.out, options.jobs, options.allow_broken_text
    if options.documents:
        found = write_talks(*cleaning)
    else:
        write_test(options.archive, options.out)
        found = write_train_and_valid(*cleaning)
    print(cleaning_report(found))
    print(splits_report(options.out, LANGUAGES))


if __name__ == "__main__":
    run(main)
