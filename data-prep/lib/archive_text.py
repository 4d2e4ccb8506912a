"""Lines and segments of the files in the archives of parallel corpora."""

import codecs
import contextlib
import gzip
import html
import itertools
import posixpath
import re
import tarfile
import zlib

from check_parallel import SEPARATOR

PIECE = re.compile(r"<doc\b(?P<doc>[^>]*)>|<seg\b(?P<seg>[^>]*)>(?P<text>.*?)</seg\s*>", re.I | re.S)
REMEDY = "put the archive of the original release there"
ENTITY = re.compile(r"&(#\d+|#x[0-9a-f]+|[a-z]\w*);", re.I)


@contextlib.contextmanager
def errors_of(archive, name):
    try:
        yield
    except (EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{archive} cannot be read at '{name}' ({reason}); fetch it again and put it there") from None


def find_member(tar, name):
    for member in tar:
        if posixpath.normpath(member.name) == name and member.isfile():
            return member
    raise ValueError(f"{tar.name} holds no '{name}'; {REMEDY}")


def need_members(archive, names):
    """Raises ValueError where a tar archive lacks one of these files."""
    for name in names:
        with errors_of(archive, name), tarfile.open(archive) as tar:
            find_member(tar, name)


def member_lines(archive, name):
    """The lines of a file in a tar archive as bytes, unpacked where its name ends with .gz.

    A byte order mark at the start of the file is left out.
    """
    with errors_of(archive, name), tarfile.open(archive) as tar:
        stream = tar.extractfile(find_member(tar, name))
        with gzip.open(stream) if name.endswith(".gz") else stream as lines:
            for line in itertools.islice(lines, 1):
                yield line.removeprefix(codecs.BOM_UTF8)
            yield from lines


def paired_lines(first, second, names):
    """Pairs of lines; numbers that differ are refused when both ends are known."""
    pairs = itertools.zip_longest(first, second)
    for count, pair in enumerate(pairs):
        if None in pair:
            rest = 1 + sum(1 for _ in (first if pair[1] is None else second))
            counts = (count + rest, count) if pair[1] is None else (count, count + rest)
            raise ValueError(
                f"{names[0]} has {counts[0]} lines of text, {names[1]} has {counts[1]}; "
                "line N of one must translate line N of the other"
            )
        yield pair


def plain_text(line):
    """A line as all later tools see it: one line, without spaces at its ends."""
    return SEPARATOR.sub(" ", line).strip(" \t\n")


def decode(data, name, first_line=1):
    """Bytes that begin with that line of a file, as text; bad UTF-8 and null characters are refused."""
    try:
        text, place = data.decode("utf-8"), data.find(b"\0")
    except UnicodeDecodeError as error:
        text, place = None, error.start
    if place < 0:
        return text
    line = first_line + data.count(b"\n", 0, place)
    fault = "null character" if text is not None else f"byte {data[place]:#04x} is not UTF-8"
    raise ValueError(f"{name}:{line}: {fault}; {REMEDY}")


def attribute(name, text):
    found = re.search(rf"""\b{name}\s*=\s*["']?([^"'\s>]+)""", text, re.I)
    return found[1] if found else ""


def read_segments(text, name, keep_entities=False):
    """The texts of an SGM or XML set by document and segment id."""
    found, document = {}, ""
    for piece in PIECE.finditer(text):
        if piece["doc"] is not None:
            document = attribute("docid", piece["doc"])
            continue
        key = document, attribute("id", piece["seg"])
        if key in found:
            raise ValueError(f"{name}: segment {key[1]} of document '{key[0]}' occurs twice")
        segment = piece["text"].replace("\n", " ")
        if not keep_entities:
            segment = ENTITY.sub(lambda entity: html.unescape(entity[0]), segment)
        found[key] = plain_text(segment)
    return found


def matched_segments(first, second, names, keep_entities=False):
    """Pairs of segments by document and id, in the order of the first set."""
    sets = [read_segments(text, name, keep_entities) for text, name in zip((first, second), names)]
    if len(sets[0]) != len(sets[1]):
        raise ValueError(f"{names[0]} has {len(sets[0])} segments, {names[1]} has {len(sets[1])}")
    if not sets[0]:
        raise ValueError(f"{names[0]} has no segments; {REMEDY}")
    for document, number in sets[0]:
        if (document, number) not in sets[1]:
            raise ValueError(f"{names[1]} has no segment {number} of document '{document}'")
    for segments, name in zip(sets, names):
        for (document, number), text in segments.items():
            if not text.strip():
                raise ValueError(f"{name}: segment {number} of document '{document}' is empty")
    return {key: (text, sets[1][key]) for key, text in sets[0].items()}


def member_text(archive, name):
    """The whole text of a small file in an archive."""
    return decode(b"".join(member_lines(archive, name)), f"{archive}: {name}")


def matched_texts(archive, members, keep_entities=False):
    """Pairs of the segments of two files in an archive, by document and id."""
    names = [f"{archive}: {member}" for member in members]
    texts = [member_text(archive, member) for member in members]
    return matched_segments(*texts, names, keep_entities)


def paired_texts(archive, members, keep_entities=False):
    """Pairs of the segments of two files in an archive."""
    return list(matched_texts(archive, members, keep_entities).values())


def paired_members(archive, members, lines_of=iter):
    """Pairs of the lines, as bytes, of two files in an archive; `lines_of` chooses among the lines of each."""
    names = [f"{archive}: {member}" for member in members]
    return paired_lines(*(lines_of(member_lines(archive, member)) for member in members), names)
