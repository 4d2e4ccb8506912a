"""Windows of made documents against windows put together sentence by sentence."""

import numpy as np
import pytest
import torch

from document_data import SIZES, add_documents, batches, rows, task_with, write_sizes
from fairseq_rfa.documents.windows import SEPARATOR, read_documents, sentences_of, window_starts, within_context
from tiny_data import train_here


@pytest.fixture(scope="module")
def documents(data, tmp_path_factory):
    return add_documents(data, tmp_path_factory.mktemp("documents") / "data")


def expected_starts(documents, num_context, sizes, limit):
    """By trying: a start for each sentence."""
    starts, first = [], 0
    for size in documents:
        for last in range(first, first + size):
            start = max(first, last - num_context)
            while start < last and limit is not None and sum(sizes[start : last + 1]) > limit:
                start += 1
            starts.append(start)
        first += size
    return starts


@pytest.mark.parametrize("documents", [[1, 2, 5], [5], [1, 1, 1], [2, 1, 5, 2]])
@pytest.mark.parametrize("num_context", [1, 2, 4, 9])
@pytest.mark.parametrize("limit", [None, 1, 7, 12, 30.0])
def test_starts_are_those_that_trying_finds(documents, num_context, limit):
    sizes = np.random.RandomState(0).randint(1, 12, sum(documents))
    first = np.repeat(np.cumsum(documents) - documents, documents)
    starts = window_starts(first, num_context, sizes, limit)
    assert starts.tolist() == expected_starts(documents, num_context, sizes, limit)


def whole_windows(task, split, num_context, limits=(None, None)):
    """Source and target of each sentence's window, and of the target what its last sentence has."""
    sentences = task_with(task.cfg.data)
    sentences.load_dataset(split)
    pairs = [sentences.dataset(split)[i] for i in range(sum(SIZES[split]))]
    sides = [[pair[side].tolist() for pair in pairs] for side in ("source", "target")]
    starts = [
        expected_starts(SIZES[split], num_context, [len(text) for text in texts], limit)
        for texts, limit in zip(sides, limits)
    ]
    separators = [d.index(SEPARATOR) for d in (task.src_dict, task.tgt_dict)]
    found = []
    for last, start in enumerate(map(max, *starts)):
        window = []
        for texts, separator in zip(sides, separators):
            joined = []
            for number in range(start, last + 1):
                joined += texts[number][:-1] + [separator if number < last else 2]
            window.append(joined)
        found.append((*window, sides[1][last]))
    return found


@pytest.mark.parametrize("loss", ["all", "last"])
@pytest.mark.parametrize("options", [{"max_tokens": 64}, {"max_sentences": 3}])
def test_batches_hold_each_window_once(documents, loss, options):
    task = task_with(documents, "--context-sentences", "2", "--context-loss", loss)
    expected = whole_windows(task, "train", 2, 2 * (options.get("max_tokens"),))
    seen = {}
    for batch in batches(task, "train", **options):
        found = rows(batch)
        assert not set(found) & set(seen)
        seen.update(found)
        assert batch["ntokens"] == sum(len(target) for _, _, target in found.values())
    assert sorted(seen) == list(range(len(expected)))
    for number, (source, target, last) in enumerate(expected):
        assert seen[number] == [source, [2, *target[:-1]], target if loss == "all" else last]


def test_what_is_no_target_has_no_loss(documents):
    task = task_with(documents, "--context-sentences", "2", "--context-loss", "last")
    (batch,) = batches(task, "valid", max_sentences=99)
    context = batch["target"].eq(task.tgt_dict.pad()) & batch["net_input"]["prev_output_tokens"].ne(1)
    assert context.any() and not batch["target"].eq(task.tgt_dict.index(SEPARATOR)).any()


@pytest.mark.parametrize("max_positions", [(14, 1024), (1024, 14), 14])
def test_windows_that_are_too_long_lose_their_oldest_sentences(documents, max_positions):
    task = task_with(documents, "--context-sentences", "4")
    limits = max_positions if isinstance(max_positions, tuple) else (max_positions, max_positions)
    expected = whole_windows(task, "train", 4, limits)
    found = {}
    for batch in batches(task, "train", max_sentences=9, max_positions=max_positions):
        found.update(rows(batch))
    assert [found[number][0] for number in range(len(expected))] == [source for source, _, _ in expected]


def test_a_sentence_that_is_too_long_alone_is_treated_as_in_translation(documents):
    options = dict(max_positions=(5, 5), max_sentences=9)
    found = []
    for name, *flags in (("translation",), ("document_translation", "--context-sentences", "3")):
        task = task_with(documents, *flags, name=name)
        with pytest.raises(Exception, match="is invalid"):
            batches(task, "valid", **options)
        kept = batches(task, "valid", ignore_invalid_inputs=True, **options)
        found.append(sorted(number for batch in kept for number in batch["id"].tolist()))
    assert found[0] == found[1] and 0 < len(found[0]) < 8


def test_batches_in_buckets_have_few_widths_and_hold_each_window_once(documents):
    task = task_with(documents, "--context-sentences", "2", "--num-batch-buckets", "2")
    found = batches(task, "train", max_tokens=99)
    assert len({batch["net_input"]["src_tokens"].size(1) for batch in found}) == 2
    seen = {number: row for batch in found for number, row in rows(batch).items()}
    expected = whole_windows(task, "train", 2)
    assert [seen[number][0] for number in range(64)] == [source for source, _, _ in expected]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_batches_by_position_hold_each_sentence_once_after_the_one_before(documents, number):
    seen = []
    for index in range(number):
        task = task_with(documents, "--context-sentences", "3")
        batches_of_shard, done = batches(
            task,
            "train",
            by_position=True,
            max_sentences=3,
            num_shards=number,
            shard_id=index,
            required_batch_size_multiple=8,
        ), set()
        dataset = task.dataset("train")
        for batch in batches_of_shard:
            numbers = batch["id"].tolist()
            assert len({dataset.position[n] for n in numbers}) == 1
            assert all(dataset.position[n] == 0 or n - 1 in done for n in numbers)
            done.update(numbers)
            seen += numbers
    assert sorted(seen) == list(range(64))


def test_shards_of_training_share_all_windows(documents):
    seen = []
    for index in range(2):
        task = task_with(documents, "--context-sentences", "2")
        for batch in batches(task, "train", max_sentences=4, num_shards=2, shard_id=index):
            seen += batch["id"].tolist()
    assert sorted(seen) == list(range(64))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([5, 1, 3], "counts 9 sentences in 3 documents, the data have 8"),
        ([], "counts 0 sentences in 0 documents, the data have 8"),
        ([8, 0], "valid.documents:2: '0' is not a number of sentences above 0"),
        (["x"], "valid.documents:1: 'x' is not a number"),
    ],
)
def test_documents_that_do_not_fit_the_data_are_refused(documents, tmp_path, sizes, message):
    write_sizes(tmp_path, "valid", sizes)
    with pytest.raises(ValueError, match=message) as error:
        read_documents([str(tmp_path / "valid.documents")], 8)
    assert "\n" not in str(error.value)


def test_data_without_documents_or_separator_are_refused(data, documents, tmp_path):
    with pytest.raises(ValueError, match="lack <sep>.*prepare.sh --documents"):
        task_with(data, "--context-sentences", "1").load_dataset("valid")
    copy = add_documents(data, tmp_path / "data")
    (copy / "valid.documents").unlink()
    with pytest.raises(ValueError, match="valid.documents' not found; make the data"):
        task_with(copy, "--context-sentences", "1").load_dataset("valid")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--context-sentences", "-1"], "--context-sentences -1 is less than 0"),
        (["--context-sentences", "1", "--load-alignments"], "--load-alignments does not go with windows"),
    ],
)
def test_options_that_make_no_sense_are_refused(documents, flags, message):
    with pytest.raises(ValueError, match=message):
        task_with(documents, *flags).load_dataset("valid")


def test_the_parts_of_a_window():
    window = torch.tensor([4, 9, 5, 6, 9, 9, 7])
    assert [part.tolist() for part in sentences_of(window, 9)] == [[4], [5, 6], [], [7]]
    assert within_context(window[None], 9).tolist() == [[True] * 6 + [False]]
    assert [part.tolist() for part in sentences_of(window[:1], 9)] == [[4]]


@pytest.mark.parametrize("flags", [[], ["--context-sentences", "0"]])
@pytest.mark.parametrize("split", ["train", "valid"])
def test_windows_of_one_sentence_are_the_batches_of_translation(documents, flags, split):
    expected, found = (
        batches(task_with(documents, *more, name=name), split, max_tokens=40)
        for name, more in (("translation", []), ("document_translation", flags))
    )
    assert len(expected) == len(found) > 1
    for first, second in zip(expected, found):
        assert first.keys() == second.keys()
        assert torch.equal(first["target"], second["target"]) and torch.equal(first["id"], second["id"])
        assert all(torch.equal(first["net_input"][name], second["net_input"][name]) for name in first["net_input"])


def test_training_on_one_sentence_is_that_of_translation(documents, tmp_path):
    """Every parameter after some updates, bit for bit."""
    found = []
    for name in ("translation", "document_translation"):
        path = train_here(documents, tmp_path / name, "--task", name, "--max-update", "12")
        found.append(torch.load(path, weights_only=True)["model"])
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


@pytest.mark.parametrize("loss", ["all", "last"])
def test_training_resumed_is_training_in_one_go(documents, tmp_path, loss):
    flags = ["--task", "document_translation", "--context-sentences", "2", "--context-loss", loss]
    whole = train_here(documents, tmp_path / "whole", *flags, "--max-epoch", "3")
    train_here(documents, tmp_path / "parts", *flags, "--max-update", "9", "--save-interval-updates", "9")
    parts = train_here(documents, tmp_path / "parts", *flags, "--max-epoch", "3")
    first, second = (torch.load(path, weights_only=True)["model"] for path in (whole, parts))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
