"""The documents of a pair of parallel text files: how many sentences each has.

    PYTHONPATH=data-prep/lib python -P -m document_sizes SOURCE TARGET LIST [OUT]

An empty line, the same in both files, stands between two documents. Where the file LIST exists, it holds the numbers
of sentences, one a line, and the text has no empty lines. Into the folder OUT go both texts without empty lines and
the list, under the names of the three; without OUT all is checked and nothing written.
"""

import os
import sys

from check_parallel import check_pair, checked_lines
from programs import read_lines, run, writing


def listed_documents(name, num_pairs):
    """The numbers of sentences that a list holds; they must sum up to the number of pairs."""
    sizes = []
    for count, line in enumerate(read_lines(name), start=1):
        if not line.isdecimal() or int(line) == 0:
            raise ValueError(f"{name}:{count}: '{line}' is not a number of sentences above 0; write one a line")
        sizes.append(int(line))
    if sum(sizes) != num_pairs:
        raise ValueError(
            f"{name} counts {sum(sizes)} sentences in {len(sizes)} documents, the text has {num_pairs}; "
            "list the sentences of each document, one number a line"
        )
    return sizes


def empty_lines(name):
    """Numbers of the empty lines of a file, and the number of all lines; an empty document is refused."""
    found, count = [], 0
    for count, text in enumerate(checked_lines(name), start=1):
        if not text.strip():
            if count - 1 == (found[-1] if found else 0):
                raise ValueError(
                    f"{name}:{count}: empty line without a document before it; leave one between two documents"
                )
            found.append(count)
    return found, count


def separated_documents(source, target):
    """The numbers of sentences between the empty lines, which must be the same in both files."""
    (empty, count), (others, other_count) = empty_lines(source), empty_lines(target)
    if count != other_count:
        raise ValueError(
            f"{source} has {count} lines, {target} has {other_count}; line N of one must translate line N of the other"
        )
    if empty != others:
        first = min(set(empty) ^ set(others))
        full, blank = (target, source) if first in empty else (source, target)
        raise ValueError(f"{blank}:{first}: empty line, but not in {full}; the same lines must be empty in both")
    if count == 0:
        raise ValueError(f"{source} has no lines; give at least one document")
    ends = [*empty, count + 1]
    sizes = [end - start - 1 for start, end in zip([0, *empty], ends)]
    # An empty line may end the last document, too.
    return sizes if sizes[-1] else sizes[:-1]


def documents_of(source, target, listing):
    if os.path.exists(listing):
        return listed_documents(listing, check_pair(source, target))
    return separated_documents(source, target)


def write_text(source, folder):
    with writing(os.path.join(folder, os.path.basename(source))) as stream:
        stream.writelines(line + "\n" for line in read_lines(source) if line.strip())


def main():
    source, target, listing, *folder = sys.argv[1:]
    sizes = documents_of(source, target, listing)
    if folder:
        write_text(source, *folder)
        write_text(target, *folder)
        with writing(os.path.join(*folder, os.path.basename(listing))) as stream:
            stream.writelines(f"{size}\n" for size in sizes)


if __name__ == "__main__":
    run(main)
