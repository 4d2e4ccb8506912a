"""Words as Moses splits them, by sacremoses.

fairseq's --tokenizer moses is sacremoses, too. Published data were made by Moses' own tokenizer.perl, which splits
some lines otherwise: `perl` asks for its words.
"""

import functools
import re
import unicodedata


@functools.cache
def tokenizer(language):
    from sacremoses import MosesTokenizer

    return MosesTokenizer(language)


@functools.cache
def known_letters():
    """All letters that sacremoses knows as such, and those of them that are neither capital nor small."""
    from sacremoses import MosesTokenizer

    letters = frozenset(MosesTokenizer.IsAlpha)
    caseless = letters.difference(MosesTokenizer.IsLower)
    return letters, sorted(letter for letter in caseless if unicodedata.category(letter) == "Lo")


def stand_ins(text):
    """For each letter of a line that sacremoses does not know one that it knows and that is not in the line.

    Moses keeps letters of all scripts together; sacremoses makes a word of each Chinese character.
    """
    known, caseless = known_letters()
    unknown = sorted(set(filter(str.isalpha, text)) - known)
    return dict(zip(unknown, (letter for letter in caseless if letter not in text))) if unknown else {}


def split_last_full_stop(words):
    """Moses' rule since November 2018: the last word of a line loses its full stop, also where it is an abbreviation.

    `U.S.A.` becomes `U.S.A .`; several full stops in a row stay together.
    """
    return re.sub(r"(?<=[^\s.])\.$", " .", words)


def split_words(text, language, perl=False, dash_splits=False):
    """The words of a line with spaces between them."""
    letters = stand_ins(text) if perl else {}
    text = text.translate(str.maketrans(letters))
    words = tokenizer(language).tokenize(text, aggressive_dash_splits=dash_splits, return_str=True)
    words = words.translate(str.maketrans({letter: unknown for unknown, letter in letters.items()}))
    return split_last_full_stop(words).strip() if perl else words


def to_lower(words):
    """As Perl's lc: a capital sigma at the end of a word becomes σ, too."""
    return words.replace("Σ", "σ").lower()
