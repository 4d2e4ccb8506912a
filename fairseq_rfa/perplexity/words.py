"""How many words a text has, whose tokens may be parts of them."""

from typing import Set

from torch import Tensor


class WordCount:
    """Counts the tokens that end a word or a line, or that begin one with sentencepiece: as fairseq-eval-lm does."""

    def __init__(self, dictionary, kind: str):
        symbols = enumerate(dictionary.symbols)
        if kind == "subword_nmt":
            self.uncounted: Set[int] = {index for index, symbol in symbols if symbol.endswith("@@")}
        else:
            inner = {index for index, symbol in symbols if not symbol.startswith("\u2581")}
            self.uncounted = inner - {dictionary.eos()}
        self.words = 0

    def add(self, tokens: Tensor) -> None:
        self.words += sum(token not in self.uncounted for token in tokens.tolist())


def words_of(path, num_lines: int) -> int:
    """The words between the spaces of a text, and the ends of its lines.

    Raises:
        ValueError: it has another number of lines.
    """
    words = lines = 0
    with open(path, encoding="utf-8", newline="\n") as text:
        for line in text:
            words += len(line.split()) + 1
            lines += 1
    if lines != num_lines:
        raise ValueError(f"'{path}' has {lines} lines, and the data have {num_lines}; use the text they were made of")
    return words
