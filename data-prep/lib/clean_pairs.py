"""Which pairs of a training text are kept, and what is said about the splits."""

import functools
import re
from collections import Counter

from archive_text import plain_text
from check_parallel import SEPARATOR
from moses import split_words
from programs import map_chunks, read_lines

RATIO = 1.5
WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def moses_tokens(text, language):
    return len(split_words(text, language, perl=True).split())


def words_and_marks(text, language):
    return len(WORD_OR_MARK.findall(text))


def judge(lengths, longest):
    """Why a pair of these lengths is dropped, or None."""
    shorter, longer = sorted(lengths)
    if shorter == 0:
        return "empty"
    if longer > longest:
        return "too long"
    return "too unequal" if longer > RATIO * shorter else None


def clean_chunk(pairs, languages, count_tokens, longest):
    """The pairs that are kept, and how often what was found."""
    kept, found = [], Counter(read=len(pairs))
    for pair in pairs:
        try:
            decoded = [line.decode("utf-8").removesuffix("\n") for line in pair]
        except UnicodeDecodeError:
            found["not UTF-8"] += 1
            continue
        pair = tuple(map(plain_text, decoded))
        reason = judge(list(map(count_tokens, pair, languages)), longest)
        if reason:
            found[reason] += 1
            continue
        kept.append(pair)
        # A carriage return before the line feed is another way to end a line.
        found["mended"] += any(SEPARATOR.search(line.removesuffix("\r")) for line in decoded)
    return kept, found


def clean_pairs(pairs, languages, count_tokens, longest, jobs, found):
    """The pairs of byte lines that are kept, as text; `found` is counted up."""
    function = functools.partial(
        clean_chunk, languages=languages, count_tokens=count_tokens, longest=longest
    )
    for kept, counts in map_chunks(function, pairs, jobs):
        found.update(counts)
        yield from kept


def cleaning_report(found):
    reasons = ("empty", "too long", "too unequal", "not UTF-8")
    dropped = ", ".join(f"{found[reason]:,} {reason}" for reason in reasons)
    return (
        f"{found['read']:,} pairs read, {sum(found[reason] for reason in reasons):,} dropped ({dropped}); "
        f"in {found['mended']:,} of those kept odd separators became spaces"
    )


def pairs_of(folder, split, languages):
    return zip(*(read_lines(f"{folder}/{split}.{language}") for language in languages), strict=True)


def splits_report(folder, languages):
    """Sizes, and the pairs of training that occur in the other splits too."""
    others = {split: Counter(pairs_of(folder, split, languages)) for split in ("valid", "test")}
    train, shared = 0, Counter()
    for pair in pairs_of(folder, "train", languages):
        train += 1
        for split, pairs in others.items():
            shared[split] += pair in pairs
    sizes = ", ".join(f"{split} {sum(pairs.values()):,}" for split, pairs in others.items())
    return (
        f"train {train:,}, {sizes} pairs; {shared['valid']:,} pairs of train have the same text as one "
        f"of valid, {shared['test']:,} as one of test (they are kept, as in the published data)"
    )
