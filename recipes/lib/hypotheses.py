"""Take the detokenised translations out of the output of fairseq-generate.

Writes them in the order of the sentences, and refuses whatever would make the score wrong:
ids that are missing or occur twice, BPE marks that are left over, a count other than the
reference's.
"""

import re
import sys

BPE_MARK = re.compile(r"@@( |$)")


def read_hypotheses(lines):
    """Translations by id, from the lines `D-<id> TAB <score> TAB <text>`."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"D-(\d+)\t[^\t]*\t(.*)\n?", line)
        if match is None:
            continue
        number, text = int(match[1]), match[2]
        if number in found:
            raise ValueError(f"sentence {number} occurs twice; decode once, with --nbest 1")
        if BPE_MARK.search(text):
            raise ValueError(
                f"sentence {number} has BPE marks left over: '{text}'; decode with --bpe subword_nmt"
            )
        found[number] = text
    if not found:
        raise ValueError("no translations (lines D-…) found; decode without --quiet")
    return found


def in_order(found, count):
    missing = [number for number in range(count) if number not in found]
    if missing:
        raise ValueError(
            f"{len(missing)} of {count} sentences are missing, the first is {missing[0]}; "
            "decode the whole subset and give its own reference"
        )
    if len(found) > count:
        raise ValueError(
            f"{len(found)} translations for a reference of {count} lines; "
            "give the reference of this subset"
        )
    return [found[number] for number in range(count)]


def count_lines(name):
    with open(name, "rb") as stream:
        return sum(1 for _ in stream)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: hypotheses.py GENERATED REFERENCE >HYPOTHESES")
    generated, reference = sys.argv[1:]
    try:
        with open(generated, encoding="utf-8", newline="\n") as stream:
            lines = in_order(read_hypotheses(stream), count_lines(reference))
    except ValueError as error:
        sys.exit(f"{generated}: {error}")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
