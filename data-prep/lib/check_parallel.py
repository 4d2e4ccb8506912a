"""Refuse a pair of parallel text files that later steps would misread.

Every tool of the chain must see the same lines, so whatever any of them takes
for the end of a line is refused inside a line, and so is an empty line.
"""

import re
import sys

SEPARATORS = {
    "\r": "carriage return",
    "\v": "vertical tab",
    "\f": "form feed",
    "\x1c": "file separator",
    "\x1d": "group separator",
    "\x1e": "record separator",
    "\x1f": "unit separator",
    "\x85": "next line",
    "\u2028": "line separator",
    "\u2029": "paragraph separator",
    "\0": "null character",
}
SEPARATOR = re.compile("[" + "".join(SEPARATORS) + "]")


def checked_lines(name):
    """The lines of a file, empty ones too; ValueError names file, line and remedy."""
    with open(name, "rb") as stream:
        for count, line in enumerate(stream, start=1):
            try:
                text = line.decode("utf-8").removesuffix("\n")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{name}:{count}: byte {line[error.start]:#04x} at column {error.start + 1} "
                    "is not UTF-8; convert the file with iconv"
                ) from None
            if count == 1 and text.startswith("\ufeff"):
                raise ValueError(f"{name}:1: byte order mark (U+FEFF) at the start; remove it")
            found = SEPARATOR.search(text)
            if found:
                raise ValueError(
                    f"{name}:{count}: {SEPARATORS[found[0]]} (U+{ord(found[0]):04X}) "
                    "inside a line; replace it by a space or end the line with a line feed alone"
                )
            yield text


def check_file(name):
    """Number of lines of a file; ValueError names file, line and remedy."""
    count = 0
    for count, text in enumerate(checked_lines(name), start=1):
        if not text.strip():
            raise ValueError(f"{name}:{count}: empty line; remove the line from both languages")
    return count


def check_pair(source, target):
    source_count, target_count = check_file(source), check_file(target)
    if source_count != target_count:
        raise ValueError(
            f"{source} has {source_count} lines, {target} has {target_count}; "
            "line N of one must translate line N of the other"
        )
    if source_count == 0:
        raise ValueError(f"{source} has no lines; give at least one sentence")
    return source_count


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: check_parallel.py SOURCE TARGET")
    try:
        check_pair(*sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
