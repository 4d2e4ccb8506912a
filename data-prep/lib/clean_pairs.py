"""Which pairs of a training text are kept, and what is said about the splits."""

import functools
import re
from collections import Counter

from archive_text import REMEDY, plain_text
from check_parallel import SEPARATOR
from moses import split_words
from programs import map_chunks, read_lines

RATIO = 1.5
# Text of the original releases is far below these parts; one in another encoding, or of which the lines do not
# translate each other, is above.
MOST_BROKEN = 0.05
MOST_DROPPED = 0.5
# So many pairs show what all of them are like.
ENOUGH = 100_000
REASONS = ("empty", "too long", "too unequal", "not UTF-8")
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
    """The pairs that are kept, and how often what was found; what follows the two lines of a pair stays with it."""
    kept, found = [], Counter(read=len(pairs))
    for first, second, *rest in pairs:
        try:
            decoded = [line.decode("utf-8").removesuffix("\n") for line in (first, second)]
        except UnicodeDecodeError:
            found["not UTF-8"] += 1
            continue
        found["null"] += any("\0" in line for line in decoded)
        pair = tuple(map(plain_text, decoded))
        reason = judge(list(map(count_tokens, pair, languages)), longest)
        if reason:
            found[reason] += 1
            continue
        kept.append((*pair, *rest))
        # A carriage return before the line feed is another way to end a line.
        found["mended"] += any(SEPARATOR.search(line.removesuffix("\r")) for line in decoded)
    return kept, found


def clean_pairs(pairs, languages, count_tokens, longest, jobs, found, name, allow_broken=False):
    """The pairs of byte lines that are kept, as text; `found` is counted up.

    Raises ValueError, as soon as enough were read, where too many of them are broken, unless that is allowed.
    """
    function = functools.partial(
        clean_chunk, languages=languages, count_tokens=count_tokens, longest=longest
    )
    for kept, counts in map_chunks(function, pairs, jobs):
        found.update(counts)
        if found["read"] >= ENOUGH and not allow_broken:
            refuse_broken(found, name)
        yield from kept
    if not allow_broken:
        refuse_broken(found, name)
    if found["read"] == dropped_pairs(found):
        raise ValueError(f"{name}: no pair is left of {found['read']:,}; {REMEDY}")


def refuse_broken(found, name):
    for count, most, fault in (
        (found["not UTF-8"] + found["null"], MOST_BROKEN, "are not UTF-8 or hold null characters"),
        (dropped_pairs(found), MOST_DROPPED, f"were dropped ({reasons(found)})"),
    ):
        if count > most * found["read"]:
            raise ValueError(
                f"{name}: {count:,} of {found['read']:,} pairs {fault}; {REMEDY}, or use --allow-broken-text"
            )


def dropped_pairs(found):
    return sum(found[reason] for reason in REASONS)


def reasons(found):
    return ", ".join(f"{found[reason]:,} {reason}" for reason in REASONS)


def cleaning_report(found):
    return (
        f"{found['read']:,} pairs read, {dropped_pairs(found):,} dropped ({reasons(found)}); "
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
