"""Say which files of prepared IWSLT14 German-English equal the published preparation.

    PYTHONPATH=data-prep/lib python -P -m published OUT
"""

import hashlib
import sys
from pathlib import Path

# By SHA-256.
PUBLISHED = {
    "tokenized/test.de": "e718c783e33160b7d72af8f733756a466e0d0c016eff8ab624c1b0d1d01cbbdf",
    "tokenized/test.en": "4b127beb9050511a3e6209cd837ff36f623a3a423666b32aba6e208b7330cf4c",
    "tokenized/valid.de": "3f051579c9d8c7281a6ea8c72ad4ae09dbaa9bb24dfd41166f2c3a3df7cd940a",
    "tokenized/valid.en": "e6d7317a9772cd1ed970910c611e9e7dada1f34439269b44a9d801334bff948d",
    "bpe/code": "3dd02684b6693abce3ba59520425901b0b910abeec2ae6b15cc62e458441d503",
    "bpe/test.de": "0bca28e500495a4a9694ae134b0ae35526a280cb0966abbcf3c9af3edc3dfe10",
    "bpe/test.en": "c2951533a0b03557599978ea1726c440bdbb8210454d1e9ef3b87c2b6228ac43",
    "bpe/valid.de": "27660c689b99b54f0f858775527ff351c520f7581be90aac84b6d16f14624c9e",
    "bpe/valid.en": "1b1f2246625cc907fbd9c8195776434b24687c3fc4e068c6f3d3ec542846823f",
}


def recognise(out):
    """Names of the files that equal the published ones, and of those that do not."""
    equal, different = [], []
    for name, checksum in PUBLISHED.items():
        if (out / name).exists():
            same = hashlib.sha256((out / name).read_bytes()).hexdigest() == checksum
            (equal if same else different).append(name)
    return equal, different


def main():
    equal, different = recognise(Path(sys.argv[1]))
    for name in equal:
        print(f"{name} equals the published preparation")
    if different:
        print(f"warning: {', '.join(different)} are not the published files; scores may not be comparable")


if __name__ == "__main__":
    main()
