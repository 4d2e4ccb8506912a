"""Join the sentences of each document to one line.

    PYTHONPATH=recipes/lib python -P -m whole_documents TEXT SIZES

SIZES holds the number of sentences of each document, one a line.
"""

import sys


def whole_documents(lines, sizes):
    """One line for each document; sizes must sum up to the number of lines."""
    if sum(sizes) != len(lines):
        raise ValueError(f"{len(lines)} lines, but documents of {sum(sizes)} sentences; give the files of one subset")
    rest = iter(lines)
    return [" ".join(next(rest) for _ in range(size)) for size in sizes]


def main():
    text, sizes = sys.argv[1:]
    with open(text, encoding="utf-8", newline="\n") as stream:
        lines = [line.rstrip("\n") for line in stream]
    with open(sizes, encoding="utf-8") as stream:
        numbers = [int(line) for line in stream]
    try:
        documents = whole_documents(lines, numbers)
    except ValueError as error:
        sys.exit(f"{text}: {error}")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.writelines(line + "\n" for line in documents)


if __name__ == "__main__":
    main()
