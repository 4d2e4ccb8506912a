"""Segments of a stream in columns: each token is a target once, and follows the token that stands before it."""

import itertools

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset

from fairseq_rfa.language.stream import SegmentDataset, SegmentIterator, Stream
from helpers import random_generator

PAD, EOS = 1, 2
SIZES = 1, 5, 1, 1, 9, 3, 2, 30, 1, 7


class Lines(list):
    """Lines of different tokens, each with the symbol that ends it."""

    def __init__(self, sizes=SIZES):
        tokens = torch.arange(3, 3 + sum(sizes))
        super().__init__(tokens.split(list(sizes)))
        for line in self:
            line[-1] = EOS
        self.sizes = np.array(sizes)


def stream_of(sizes=SIZES):
    lines = Lines(sizes)
    return Stream(lines, lines.sizes, EOS)


def batches(dataset, num_shards, shard, offset=0):
    iterator = SegmentIterator(dataset, num_shards, shard_id=shard)
    if offset:
        iterator.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": offset, "shuffle": True})
    return list(iterator.next_epoch_itr(shuffle=True))


def rows_of(shards, side):
    """What the rows of all workers' batches hold one batch after the other, without padding."""
    rows = []
    for worker in shards:
        parts = [(batch["target"] if side == "target" else batch["net_input"]["src_tokens"]) for batch in worker]
        rows += [torch.cat([part[row][part[row].ne(PAD)] for part in parts]) for row in range(len(parts[0]))]
    return rows


@pytest.mark.parametrize("length", [1, 2, 7, 16, 59, 60, 1000])
@pytest.mark.parametrize("num_shards, columns", [(1, 1), (1, 4), (2, 1), (2, 3), (3, 5), (4, 15)])
def test_each_token_is_a_target_once(length, num_shards, columns):
    stream = stream_of()
    dataset = SegmentDataset(stream, num_shards * columns, length, PAD)
    shards = [batches(dataset, num_shards, shard) for shard in range(num_shards)]
    text = torch.cat(list(stream.lines))
    targets = rows_of(shards, "target")
    assert torch.equal(torch.cat(targets), text)  # column after column is the stream
    assert torch.equal(torch.cat(rows_of(shards, "source")), torch.cat([torch.tensor([EOS]), text[:-1]]))
    assert max(map(len, targets)) - min(map(len, targets)) <= 1
    counted = sum(batch["ntokens"] for batch in itertools.chain(*shards))
    assert counted == len(text) == len(stream)


@pytest.mark.parametrize("num_shards, columns", [(1, 4), (2, 3)])
def test_batches_of_workers_have_one_shape(num_shards, columns):
    dataset = SegmentDataset(stream_of(), num_shards * columns, 4, PAD)
    for together in zip(*(batches(dataset, num_shards, shard) for shard in range(num_shards))):
        assert len({batch["target"].shape for batch in together}) == 1
        assert len({batch["place"]["segment"] for batch in together}) == 1
        assert all(len(batch["target"]) == columns for batch in together)


def test_a_worker_without_tokens_has_padding():
    """61 tokens in two columns of 30 and 31: the last segment has one of them."""
    dataset = SegmentDataset(stream_of((61,)), 2, 10, PAD)
    last = [batches(dataset, 2, shard)[-1] for shard in range(2)]
    assert sorted(batch["ntokens"] for batch in last) == [0, 1]
    assert all(batch["target"].shape == (1, 1) for batch in last)


def test_batches_know_their_place():
    places = [batch["place"] for batch in batches(SegmentDataset(stream_of(), 6, 4, PAD), 2, 1)]
    assert [place["segment"] for place in places] == [0, 1, 2]
    assert [place["left"] for place in places] == [2, 1, 0]
    assert {(place["columns"], place["length"]) for place in places} == {(6, 4)}


def test_batches_are_never_shuffled_and_go_on():
    dataset = SegmentDataset(stream_of(), 2, 4, PAD)
    whole, rest = batches(dataset, 1, 0), batches(dataset, 1, 0, offset=3)
    assert len(rest) == len(whole) - 3
    assert all(torch.equal(one["target"], other["target"]) for one, other in zip(whole[3:], rest))


def test_a_batch_that_fairseq_makes_up_stands_nowhere():
    iterator = SegmentIterator(SegmentDataset(stream_of(), 2, 4, PAD), 1, shard_id=0)
    assert iterator.first_batch["place"] is None
    assert next(iterator.next_epoch_itr())["place"]["segment"] == 0
    assert SegmentDataset(stream_of(), 2, 4, PAD).collater([]) == {}


def test_one_column_is_what_fairseq_makes():
    """Its blocks of the same length, with the same tokens before them."""
    lines = Lines()
    blocks = TokenBlockDataset(lines, lines.sizes, 7, PAD, EOS, break_mode="none", include_targets=True)
    dataset = SegmentDataset(stream_of(), 1, 7, PAD)
    assert len(dataset) == len(blocks)
    for item, (source, target, _) in zip((dataset[number] for number in range(len(dataset))), blocks):
        assert torch.equal(item["source"], source) and torch.equal(item["target"], target)


def test_lines_are_fetched_before_where_their_file_wants_it():
    fetched = []
    stream = stream_of()
    stream.lines.supports_prefetch, stream.lines.prefetch = True, fetched.append
    dataset = SegmentDataset(stream, 3, 4, PAD)
    assert dataset.supports_prefetch
    items = torch.randperm(len(dataset), generator=random_generator(1))[:4].tolist()
    dataset.prefetch(items)
    stream.lines = {number: stream.lines[number] for number in fetched[0]}
    assert [dataset[number]["target"] for number in items]


def test_more_columns_than_tokens_are_refused():
    assert len(SegmentDataset(stream_of((3,)), 3, 4, PAD)) == 3
    with pytest.raises(ValueError, match="3 tokens has no 4 columns; use a smaller --batch-size"):
        SegmentDataset(stream_of((3,)), 4, 4, PAD)
