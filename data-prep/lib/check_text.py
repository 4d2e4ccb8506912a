"""Refuse a text file that later steps would misread; empty lines are lines as any other.

    PYTHONPATH=data-prep/lib python -P -m check_text FILE
"""

import sys

from check_parallel import checked_lines
from programs import run


def check_text(name):
    # All lines are looked at, not those up to the first word.
    if not sum(bool(text.strip()) for text in checked_lines(name)):
        raise ValueError(f"{name} has no words; give at least one line of text")


def main():
    check_text(sys.argv[1])


if __name__ == "__main__":
    run(main)
