"""A split of the data as one stream of tokens, and its segments in columns that are read side by side.

T tokens of a stream, K columns, N tokens of a segment.
"""

from typing import Dict, List, Optional, Tuple

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.data_utils import collate_tokens
from fairseq.data.iterators import EpochBatchIterator
from torch import Tensor


class Stream:
    """All lines of a split with the symbols that end them, one after the other.

    Args:
        lines: a dataset of tensors.
        sizes: their lengths.
        eos: what stands before the first token.
    """

    def __init__(self, lines, sizes: np.ndarray, eos: int):
        self.lines = lines
        self.eos = eos
        self.ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def __len__(self) -> int:
        """T"""
        return int(self.ends[-1])

    def numbers_of_lines(self, start: int, end: int) -> range:
        """Those that hold the tokens from start up to end and the one before them."""
        if start == end:
            return range(0)
        first = np.searchsorted(self.ends, max(0, start - 1), side="right") - 1
        return range(int(first), int(np.searchsorted(self.ends, end)))

    def part(self, start: int, end: int) -> Tuple[Tensor, Tensor]:
        """The tokens from start up to end, and before each of them the token that stands before it."""
        if start == end:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
        lines = self.numbers_of_lines(start, end)
        text = torch.cat([self.lines[number] for number in lines]).long()
        if start == 0:
            text = torch.cat([text.new_tensor([self.eos]), text])
        first = max(0, start - 1) - int(self.ends[lines.start])
        text = text[first : first + end - start + 1]
        return text[1:], text[:-1]


class SegmentDataset(FairseqDataset):
    """The stream in K columns of contiguous tokens, whose lengths differ by at most one, in segments of N tokens.

    Item n is segment n // K of column n % K. The last segment may be shorter, and empty in the shorter columns.

    Raises:
        ValueError: there are fewer tokens than columns.
    """

    def __init__(self, stream: Stream, num_columns: int, length: int, pad: int):
        if len(stream) < num_columns:
            raise ValueError(
                f"a text of {len(stream)} tokens has no {num_columns} columns; use a smaller --batch-size or fewer "
                "workers"
            )
        self.stream = stream
        self.num_columns = num_columns
        self.length = length
        self.pad = pad
        self.bounds = np.arange(num_columns + 1) * len(stream) // num_columns
        self.longest = -(-len(stream) // num_columns)
        self.num_segments = -(-self.longest // length)

    def in_columns(self, num_columns: int) -> "SegmentDataset":
        return SegmentDataset(self.stream, num_columns, self.length, self.pad)

    def __len__(self) -> int:
        return self.num_segments * self.num_columns

    def ends_of(self, number: int) -> Tuple[int, int]:
        """Where in the stream an item starts and ends."""
        segment, column = divmod(int(number), self.num_columns)
        end = int(self.bounds[column + 1])
        start = min(int(self.bounds[column]) + segment * self.length, end)
        return start, min(start + self.length, end)

    def __getitem__(self, number: int) -> Dict:
        target, source = self.stream.part(*self.ends_of(number))
        return {"id": int(number), "source": source, "target": target}

    def collater(self, samples: List[Dict]) -> Dict:
        """A batch of fairseq, and its place: the number of its segment, how many follow, K and N."""
        if not samples:
            return {}
        segment = samples[0]["id"] // self.num_columns
        width = min(self.length, self.longest - segment * self.length)
        sources, targets = (
            collate_tokens([sample[side] for sample in samples], self.pad, pad_to_length=width)
            for side in ("source", "target")
        )
        lengths = torch.tensor([len(sample["source"]) for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": sources, "src_lengths": lengths},
            "target": targets,
            "place": {
                "segment": segment,
                "left": self.num_segments - segment - 1,
                "columns": self.num_columns,
                "length": self.length,
            },
        }

    def batches(self, num_shards: int) -> List[List[int]]:
        """Segment after segment, in each the columns of one worker after the other's, as fairseq deals them out."""
        return np.arange(len(self)).reshape(self.num_segments * num_shards, -1).tolist()

    def num_tokens(self, number: int) -> int:
        start, end = self.ends_of(number)
        return end - start

    size = num_tokens

    def ordered_indices(self) -> np.ndarray:
        return np.arange(len(self))

    @property
    def supports_prefetch(self) -> bool:
        return getattr(self.stream.lines, "supports_prefetch", False)

    def prefetch(self, indices) -> None:
        items = (self.stream.numbers_of_lines(*self.ends_of(number)) for number in indices)
        self.stream.lines.prefetch(sorted({line for lines in items for line in lines}))


class SegmentIterator(EpochBatchIterator):
    """Batches in their order. Each worker has as many as the others, if need be with nothing but padding."""

    def __init__(self, dataset: SegmentDataset, num_shards: int, **options):
        super().__init__(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=dataset.batches(num_shards),
            num_shards=num_shards,
            **options,
        )

    def ordered_batches(self, epoch, fix_batches_to_gpus, shuffle):
        return super().ordered_batches(epoch, fix_batches_to_gpus, shuffle=False)

    @property
    def first_batch(self) -> Dict[str, Optional[object]]:
        """What fairseq takes for a batch where it makes one up. It stands nowhere in the stream."""
        return {**super().first_batch, "place": None}
