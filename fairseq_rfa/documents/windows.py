"""Windows of neighbouring sentences of one document.

T sentences in the order of their documents; the window of sentence t is what stands from start_t to t.
"""

from typing import List, Optional

import numpy as np
import torch
from torch import Tensor

SEPARATOR = "<sep>"
"""The symbol of a dictionary that stands between the sentences of a window."""


def read_documents(names: List[str], num_sentences: int) -> np.ndarray:
    """The number of sentences of each document, from files with one number a line that belong together.

    Raises:
        ValueError: a file is missing or holds something else, or the numbers do not sum up to num_sentences.
    """
    sizes = []
    for name in names:
        try:
            with open(name, encoding="utf-8") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:
            raise ValueError(f"'{name}' not found; make the data with data-prep/prepare.sh --documents") from None
        for count, line in enumerate(lines, start=1):
            if not line.isdecimal() or int(line) == 0:
                raise ValueError(f"{name}:{count}: '{line}' is not a number of sentences above 0")
            sizes.append(int(line))
    if sum(sizes) != num_sentences:
        raise ValueError(
            f"'{names[0]}' counts {sum(sizes)} sentences in {len(sizes)} documents, the data have {num_sentences}; "
            "make the data again with data-prep/prepare.sh --documents"
        )
    return np.array(sizes, dtype=np.int64)


def window_starts(first: np.ndarray, num_context: int, sizes: np.ndarray, limit: Optional[float]) -> np.ndarray:
    """start_t (T): at most num_context sentences before t, none of another document, as many as fit.

    A window that has more tokens than the limit loses its oldest sentences, but never its last one.

    Args:
        first: the first sentence of the document of each sentence, (T).
        sizes: tokens of each sentence with the symbol that ends it, (T).
        limit: tokens of a window, None for no limit.
    """
    last = np.arange(len(first))
    start = np.maximum(first, last - num_context)
    if limit is None:
        return start
    ends = np.concatenate([[0], np.cumsum(sizes)])
    fitting = np.searchsorted(ends, ends[1:] - limit)
    return np.minimum(np.maximum(start, fitting), last)


class Windows(torch.utils.data.Dataset):
    """The windows of sentences that end with a symbol: all but the last of a window end with the separator instead."""

    def __init__(self, sentences, sizes: np.ndarray, starts: np.ndarray, separator: int):
        """
        Args:
            sentences: a dataset of tensors, each with its end symbol.
            sizes: their lengths, (T).
            starts: the first sentence of each window, (T).
        """
        self.sentences = sentences
        self.starts = starts
        self.separator = separator
        self.ends = np.concatenate([[0], np.cumsum(sizes)])
        self.sizes = self.ends[1:] - self.ends[starts]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Tensor:
        start = self.starts[index]
        window = torch.cat([self.sentences[number] for number in range(start, index + 1)])
        window[torch.from_numpy(self.ends[start + 1 : index + 1] - self.ends[start] - 1)] = self.separator
        return window

    @property
    def supports_prefetch(self) -> bool:
        return getattr(self.sentences, "supports_prefetch", False)

    def prefetch(self, indices) -> None:
        self.sentences.prefetch(sorted({n for i in indices for n in range(self.starts[i], i + 1)}))


def sentences_of(window: Tensor, separator: int) -> List[Tensor]:
    """What stands between the separators of a window (N) without padding and end symbol."""
    places = window.eq(separator).nonzero().flatten().tolist()
    return [window[start:end] for start, end in zip([0, *(p + 1 for p in places)], [*places, len(window)])]


def within_context(windows: Tensor, separator: int) -> Tensor:
    """Whether each entry of windows (B, N) belongs to a sentence before the last, (B, N); separators do."""
    return windows.eq(separator).flip(1).cumsum(1).flip(1).gt(0)
