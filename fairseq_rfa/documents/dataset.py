"""The pairs of windows that a model is trained on, and the order in which documents are translated side by side."""

from typing import Optional, Sequence

import numpy as np
from fairseq.data import LanguagePairDataset

from .windows import Windows, window_starts, within_context


class WindowDataset(LanguagePairDataset):
    """A pair of windows for each pair of sentences, under the number of the sentence.

    Args:
        sentences: the pairs of sentences, not in buckets.
        documents: the number of sentences of each document.
        num_context: at most so many sentences before the last of a window.
        separators: those of source and target.
        last_only: the sentences before the last are no targets.
        by_position: batches hold sentences of one position in their documents, the first position first, so that all
            that a sentence looks back to was in earlier batches.
        num_buckets: as in fairseq's dataset.
    """

    def __init__(
        self,
        sentences: LanguagePairDataset,
        documents: np.ndarray,
        num_context: int,
        separators: Sequence[int],
        last_only: bool = False,
        by_position: bool = False,
        num_buckets: int = 0,
    ):
        self.sentences = sentences
        self.num_context = num_context
        self.separators = separators
        self.last_only = last_only
        self.by_position = by_position
        self.num_buckets = num_buckets
        self.document = np.repeat(np.arange(len(documents)), documents)
        """The document of each sentence, (T)."""
        self.first = np.repeat(np.cumsum(documents) - documents, documents)
        """The first sentence of that document, (T)."""
        self.position = np.arange(len(self.first)) - self.first
        self.shard = (1, 0)
        self.set_limits(None, None)

    def set_limits(self, source: Optional[float], target: Optional[float]) -> None:
        """Windows with more tokens than this lose their oldest sentences, on both sides; None for no limit."""
        pair = self.sentences
        starts = window_starts(self.first, self.num_context, pair.src_sizes, source)
        if pair.tgt is not None:
            of_target = window_starts(self.first, self.num_context, pair.tgt_sizes, target)
            starts = np.maximum(starts, of_target)
        source_windows, target_windows = (
            None if text is None else Windows(text, sizes, starts, separator)
            for text, sizes, separator in zip((pair.src, pair.tgt), (pair.src_sizes, pair.tgt_sizes), self.separators)
        )
        super().__init__(
            source_windows,
            source_windows.sizes,
            pair.src_dict,
            target_windows,
            None if target_windows is None else target_windows.sizes,
            pair.tgt_dict,
            left_pad_source=pair.left_pad_source,
            left_pad_target=pair.left_pad_target,
            shuffle=pair.shuffle,
            eos=pair.eos,
            num_buckets=self.num_buckets,
            pad_to_multiple=pair.pad_to_multiple,
        )

    def set_shard(self, number: int, index: int) -> None:
        """Of so many shards of the documents, hold the one of that index; only where batches go by position."""
        self.shard = (number, index)

    def collater(self, samples, pad_to_length=None):
        batch = super().collater(samples, pad_to_length)
        if self.last_only and batch and batch["target"] is not None:
            in_context = within_context(batch["target"], self.separators[1])
            batch["target"] = batch["target"].masked_fill(in_context, self.tgt_dict.pad())
            batch["ntokens"] = batch["target"].ne(self.tgt_dict.pad()).sum().item()
        return batch

    def ordered_indices(self):
        indices = super().ordered_indices()
        if not self.by_position:
            return indices
        number, index = self.shard
        indices = indices[self.document[indices] % number == index]
        return indices[np.argsort(self.position[indices], kind="stable")]

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """Batches by position are of any size: fairseq drops sentences where there is a required multiple."""
        if not self.by_position:
            return super().batch_by_size(indices, max_tokens, max_sentences, required_batch_size_multiple)
        changes = np.flatnonzero(np.diff(self.position[indices])) + 1
        batches = []
        for group in np.split(indices, changes):
            batches.extend(super().batch_by_size(group, max_tokens, max_sentences))
        return batches
