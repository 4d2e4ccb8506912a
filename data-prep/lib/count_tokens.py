"""Print how many tokens each binarized file holds, and how many different ones a dictionary.

    PYTHONPATH=data-prep/lib python -P -m count_tokens DICTIONARY BINARIZED…

BINARIZED is the name without .bin and .idx. A token ends each line; it and the unknown one count as different ones.
"""

import sys

from add_separator import FILLER
from check_binarized import read_index, token_count
from programs import read_lines, run

WITHOUT_LINE = 2
"""The end of a line and the unknown token, which fairseq's files of dictionaries do not list."""


def main():
    dictionary, *binarized = sys.argv[1:]
    print(WITHOUT_LINE + sum(not FILLER.fullmatch(line) for line in read_lines(dictionary)))
    for name in binarized:
        _, sizes = read_index(name)
        print(token_count(sizes))


if __name__ == "__main__":
    run(main)
