"""Take the text of WikiText-103 out of its archive.

    PYTHONPATH=data-prep/lib python -P -m wikitext103_text ARCHIVE --out DIR

Lines stay as they are; separators of lines inside them, which part words here as well, become spaces.
"""

import argparse
import os
import zipfile

from archive_text import decode
from check_parallel import SEPARATOR
from programs import run, with_news, writing

MEMBER = "wikitext-103/wiki.{}.tokens"
SPLITS = ("train", "valid", "test")


def lines_of(archive, member):
    """The lines of a file of the archive, without their ends."""
    with archive.open(member) as stream:
        for number, line in enumerate(stream, start=1):
            text = decode(line, f"{archive.filename}: {member}", number)
            yield SEPARATOR.sub(" ", text.removesuffix("\n"))


def take_text(name, folder):
    """
    Raises:
        ValueError: the file is no such archive.
    """
    try:
        with zipfile.ZipFile(name) as archive:
            for split in SPLITS:
                member = MEMBER.format(split)
                if member not in archive.namelist():
                    raise ValueError(f"{name} holds no '{member}'; put the archive of the original release there")
                with writing(os.path.join(folder, f"{split}.txt")) as stream:
                    lines = with_news(lines_of(archive, member), split)
                    stream.writelines(line + "\n" for line in lines)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{name} cannot be read ({error}); fetch it again and put it there") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("archive")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    take_text(options.archive, options.out)


if __name__ == "__main__":
    run(main)
