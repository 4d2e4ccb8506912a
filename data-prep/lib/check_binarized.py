"""Refuse binarized data that do not hold every line of the text that they were made from.

    PYTHONPATH=data-prep/lib python -P -m check_binarized TEXT BINARIZED [TEXT BINARIZED …]

BINARIZED is the name without .bin and .idx.
"""

import os
import struct
import sys

import numpy

from programs import run

HEADER = struct.Struct("<9sQBQ")
# By the code of fairseq's index.
BYTES_OF_A_TOKEN = {4: 4, 8: 2}


def read_index(binarized):
    """The code of a token's type, and the tokens of each sentence."""
    with open(f"{binarized}.idx", "rb") as stream:
        _, _, code, sentences = HEADER.unpack(stream.read(HEADER.size))
        return code, numpy.fromfile(stream, dtype=numpy.int32, count=sentences)


def token_count(sizes):
    """Of all sentences, whose tokens are counted here in 64 bits."""
    return int(sizes.sum(dtype=numpy.int64))


def check_binarized(text, binarized):
    with open(text, "rb") as stream:
        lines = sum(1 for _ in stream)
    code, sizes = read_index(binarized)
    if len(sizes) != lines:
        raise ValueError(f"{binarized}.idx has {len(sizes)} sentences, {text} has {lines} lines")
    size, expected = os.path.getsize(f"{binarized}.bin"), token_count(sizes) * BYTES_OF_A_TOKEN[code]
    if size != expected:
        raise ValueError(f"{binarized}.bin has {size} bytes, not {expected} as {binarized}.idx says")


def main():
    for text, binarized in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        check_binarized(text, binarized)


if __name__ == "__main__":
    run(main)
