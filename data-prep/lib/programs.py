"""What the programs of data-prep/ share: chunks of lines on several cores, whole files, one-line errors."""

import contextlib
import errno
import itertools
import os
import sys
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

CHUNK = 500
NEWS = 1_000_000


def chunks(items):
    items = iter(items)
    while chunk := list(itertools.islice(items, CHUNK)):
        yield chunk


def map_chunks(function, items, jobs):
    """`function` of each chunk of the items, in their order; few chunks are in memory at any time."""
    parts = chunks(items)
    start = list(itertools.islice(parts, 2))
    parts = itertools.chain(start, parts)
    if jobs == 1 or len(start) < 2:
        yield from map(function, parts)
        return
    waiting = deque()
    with ProcessPoolExecutor(jobs) as pool:
        for part in parts:
            waiting.append(pool.submit(function, part))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def with_news(items, what):
    """The same items; every million is announced."""
    for count, item in enumerate(items, start=1):
        yield item
        if count % NEWS == 0:
            print(f"{what}: {count:,} lines", flush=True)


def read_lines(name):
    """Lines end with a line feed and with nothing else."""
    with open(name, encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")


@contextlib.contextmanager
def writing(name, mode="w"):
    """A stream whose file appears under its name only when all is written."""
    partial = f"{name}.partial"
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with open(partial, mode, **text) as stream:
            yield stream
        os.replace(partial, name)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(partial)
        # An error of writing does not know its file.
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(error.errno, error.strerror, partial) from None
        raise


def run(main):
    """Errors that a user can mend become one line."""
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except BrokenProcessPool:
        sys.exit("a worker was ended from outside, perhaps for lack of memory; use fewer --jobs")
    except ValueError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
