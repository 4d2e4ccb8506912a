"""Put the symbol that stands between the sentences of a document into dictionaries of fairseq.

    PYTHONPATH=data-prep/lib python -P -m add_separator DICTIONARY…

It takes the place of the first symbol that only fills the dictionary up to a multiple of 8, or stands at the end: no
other symbol moves, so data that were made binary stay right.
"""

import re
import sys

from programs import read_lines, run, writing

SEPARATOR = "<sep>"
"""The same as in `fairseq_rfa.documents.windows`."""
FILLER = re.compile(r"madeupword\d{4} 0")


def with_separator(lines, name):
    """The lines of a dictionary, "symbol count", with the separator among them."""
    if any(line.rpartition(" ")[0] == SEPARATOR for line in lines):
        raise ValueError(f"{name}: the text holds {SEPARATOR}, which must separate sentences; replace it there")
    place = next((place for place, line in enumerate(lines) if FILLER.fullmatch(line)), len(lines))
    return [*lines[:place], f"{SEPARATOR} 0", *lines[place + 1 :]]


def main():
    for name in sys.argv[1:]:
        lines = with_separator(list(read_lines(name)), name)
        with writing(name) as stream:
            stream.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    run(main)
