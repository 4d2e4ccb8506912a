"""Take train, valid and test of WMT14 out of its archives, as raw text.

In the names of files in archives {} stands for the language.

    PYTHONPATH=data-prep/lib python -P -m wmt14_text --source en --target de --out DIR --train ARCHIVE NAME … \\
        --valid ARCHIVE NAME --test ARCHIVE SOURCE_NAME TARGET_NAME
"""

import argparse
import os
from collections import Counter

from archive_text import REMEDY, decode, paired_members, paired_texts, plain_text
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


def train_pairs(corpora, languages, jobs, allow_broken, sizes):
    """The pairs of all corpora that are kept; `sizes` gets how many were read of each archive."""
    for archive, pattern in corpora:
        members = [pattern.format(language) for language in languages]
        name, short_name = f"{archive}: {' and '.join(members)}", os.path.basename(archive)
        found = Counter()
        pairs = with_news(paired_members(archive, members), short_name)
        yield from clean_pairs(pairs, languages, words_and_marks, LONGEST, jobs, found, name, allow_broken)
        print(f"{short_name}: {cleaning_report(found)}", flush=True)
        sizes[short_name] = found["read"]


def valid_pairs(archive, pattern, languages):
    members = [pattern.format(language) for language in languages]
    for number, pair in enumerate(paired_members(archive, members), start=1):
        yield [valid_line(line, f"{archive}: {member}", number) for line, member in zip(pair, members)]


def valid_line(line, name, number):
    text = plain_text(decode(line, name, number))
    if not text.strip():
        raise ValueError(f"{name}:{number}: empty line; {REMEDY}")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", required=True, help="folder for train, valid and test")
    parser.add_argument("--train", required=True, nargs=2, action="append")
    parser.add_argument("--valid", required=True, nargs=2)
    parser.add_argument("--test", required=True, nargs=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--allow-broken-text", action="store_true")
    options = parser.parse_args()
    languages = options.source, options.target
    os.makedirs(options.out, exist_ok=True)
    write_pairs(valid_pairs(*options.valid, languages), options.out, "valid", languages)
    archive, *members = options.test
    write_pairs(paired_texts(archive, members), options.out, "test", languages)
    sizes = {}
    train = train_pairs(options.train, languages, options.jobs, options.allow_broken_text, sizes)
    write_pairs(train, options.out, "train", languages)
    with writing(f"{options.out}/train.sizes") as stream:
        stream.writelines(f"{name} {size}\n" for name, size in sizes.items())
    print(splits_report(options.out, languages))


if __name__ == "__main__":
    run(main)
