"""Take train, valid and test of IWSLT14 German-English out of de-en.tgz, as raw text.

    PYTHONPATH=data-prep/lib python -P -m iwslt14_text --archive FILE --out DIR
"""

import argparse
import os
import re
from collections import Counter

from archive_text import need_members, paired_members, paired_texts
from clean_pairs import clean_pairs, cleaning_report, moses_tokens, splits_report
from programs import run, writing

LANGUAGES = ("de", "en")
TRAIN = "de-en/train.tags.de-en.{}"
TESTS = [
    f"de-en/IWSLT14.{name}.de-en.{{}}.xml"
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
]
METADATA = re.compile(rb"</?(url|talkid|keywords|speaker|reviewer|translator|doc)\b[^>]*>", re.I)
TEXT_TAG = re.compile(rb"</?(title|description)>", re.I)
LONGEST = 175
VALID_STEP = 23


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--out", required=True, help="folder for train, valid and test")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--allow-broken-text", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    need_members(options.archive, [TRAIN.format(language) for language in LANGUAGES])
    write_test(options.archive, options.out)
    found = write_train_and_valid(options.archive, options.out, options.jobs, options.allow_broken_text)
    print(cleaning_report(found))
    print(splits_report(options.out, LANGUAGES))


if __name__ == "__main__":
    run(main)
