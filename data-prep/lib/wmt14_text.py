"""Take train, valid and test of WMT14 out of its archives, as raw text.

In the names of files in archives {} stands for the language.

    PYTHONPATH=data-prep/lib python -P -m wmt14_text --source en --target de --out DIR --train ARCHIVE NAME … \\
        --valid ARCHIVE NAME --test ARCHIVE SOURCE_NAME TARGET_NAME
"""

import argparse
import os
from collections import Counter

from archive_text import decode, member_lines, member_text, paired_lines, paired_segments, plain_text
from clean_pairs import clean_pairs, cleaning_report, splits_report, words_and_marks
from programs import run, with_news, writing

LONGEST = 250


def write_pairs(pairs, folder, split, languages):
    with (
        writing(f"{folder}/{split}.{languages[0]}") as source,
        writing(f"{folder}/{split}.{languages[1]}") as target,
    ):
        for pair in pairs:
            source.write(pair[0] + "\n")
            target.write(pair[1] + "\n")


def train_pairs(corpora, languages, jobs):
    for archive, pattern in corpora:
        names = [pattern.format(language) for language in languages]
        found = Counter()
        pairs = paired_lines(*(member_lines(archive, name) for name in names), names)
        pairs = with_news(pairs, os.path.basename(archive))
        yield from clean_pairs(pairs, languages, words_and_marks, LONGEST, jobs, found)
        print(f"{os.path.basename(archive)}: {cleaning_report(found)}", flush=True)


def valid_pairs(archive, pattern, languages):
    names = [pattern.format(language) for language in languages]
    for pair in paired_lines(*(member_lines(archive, name) for name in names), names):
        yield [plain_text(decode(line, name)) for line, name in zip(pair, names)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", required=True, help="folder for train, valid and test")
    parser.add_argument("--train", required=True, nargs=2, action="append")
    parser.add_argument("--valid", required=True, nargs=2)
    parser.add_argument("--test", required=True, nargs=3)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    languages = options.source, options.target
    os.makedirs(options.out, exist_ok=True)
    write_pairs(valid_pairs(*options.valid, languages), options.out, "valid", languages)
    archive, *names = options.test
    texts = [member_text(archive, name) for name in names]
    write_pairs(paired_segments(*texts, names), options.out, "test", languages)
    write_pairs(train_pairs(options.train, languages, options.jobs), options.out, "train", languages)
    print(splits_report(options.out, languages))


if __name__ == "__main__":
    run(main)
