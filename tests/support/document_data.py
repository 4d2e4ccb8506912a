"""A made-up corpus with documents, the task on it, and batches of its windows."""

import shutil

import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import add_separator
from tiny_data import EVERY_SENTENCE, SMALL, SPLITS, parse

SIZES = {"train": [1, 2, 5, 7, 9, 40], "valid": [5, 1, 2], "test": [2, 5, 1]}
"""Of the documents of `tiny_data.make_data`."""


def add_documents(data, folder):
    """A copy of made data, with documents and the separator."""
    folder = shutil.copytree(data, folder)
    for split, sizes in SIZES.items():
        assert sum(sizes) == SPLITS[split]
        write_sizes(folder, split, sizes)
    for language in ("de", "en"):
        name = folder / f"dict.{language}.txt"
        lines = add_separator.with_separator(name.read_text().splitlines(), name)
        name.write_text("".join(line + "\n" for line in lines))
    return folder


def write_sizes(folder, split, sizes):
    (folder / f"{split}.documents").write_text("".join(f"{size}\n" for size in sizes))


def task_with(data, *flags, name="document_translation"):
    args = parse(data, "--task", name, *EVERY_SENTENCE, *flags)
    return tasks.setup_task(convert_namespace_to_omegaconf(args).task)


def model_of(task, data, *flags, architecture="transformer_rfa_tiny", seed=1):
    """A model of small size in evaluation."""
    torch.manual_seed(seed)
    small = SMALL if "rfa" in architecture else SMALL[:-2]
    return task.build_model(parse(data, *small, *flags, architecture=architecture)).eval()


def batches(task, split, by_position=False, epoch=1, **options):
    """As fairseq-train makes them, or fairseq-generate."""
    if by_position:
        task.load_dataset(split, task_cfg=task.cfg)
    else:
        task.load_dataset(split, combine=split == "train", epoch=epoch)
    iterator = task.get_batch_iterator(task.dataset(split), seed=3, epoch=epoch, **options)
    return list(iterator.next_epoch_itr(shuffle=not by_position))


def rows(batch):
    """The windows of a batch by the number of their last sentence: source, input and target without padding."""
    tensors = batch["net_input"]["src_tokens"], batch["net_input"]["prev_output_tokens"], batch["target"]
    return {
        number: [[token for token in row if token != 1] for row in found]
        for number, *found in zip(batch["id"].tolist(), *(tensor.tolist() for tensor in tensors))
    }
