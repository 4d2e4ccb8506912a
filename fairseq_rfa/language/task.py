"""fairseq's task of language modeling over a stream, whose segments follow the state of those before them."""

import math
from dataclasses import dataclass, field
from typing import Dict, Optional

import torch
from fairseq.distributed import utils as workers
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from .carrying import carrying, refuse_to_train, refuse_without_later_positions
from .stream import SegmentDataset, SegmentIterator, Stream
from .stream_state import Place, StreamState, joined, restored

UNCHANGED = {
    "sample_break_mode": "none",
    "output_dictionary_size": -1,
    "self_target": False,
    "future_target": False,
    "past_target": False,
    "add_bos_token": False,
    "shorten_method": "none",
    "pad_to_fixed_length": False,
    "pad_to_fixed_bsz": False,
    "tpu": False,
}
"""Options of fairseq's task that must be as they are by default."""


@dataclass
class StatefulLanguageModelingConfig(LanguageModelingConfig):
    continue_positions: bool = field(
        default=False,
        metadata={
            "help": "positions are counted from the start of a column; by default from that of each segment. Needs "
            "sinusoidal embeddings"
        },
    )


@register_task("stateful_language_modeling", dataclass=StatefulLanguageModelingConfig)
class StatefulLanguageModelingTask(LanguageModelingTask):
    """Each row of a batch continues where it stopped in the batch before, and so does the state of causal attention.

    The batch size is the number of columns of a worker. Every token of a split is a target once in an epoch.
    """

    def __init__(self, args, dictionary, output_dictionary=None, targets=None):
        super().__init__(args, dictionary, output_dictionary, targets)
        self.train_state = StreamState()
        self.valid_state = StreamState()
        self.num_columns: Optional[int] = None
        """Of the newest iterator."""
        self.saved: Optional[Dict] = None
        """What a checkpoint held, until the epoch goes on in whose middle it was written."""
        self.collected: Optional[Dict] = None
        """The states of all workers, at the time of a checkpoint."""
        self.collecting_optimizer = None
        self.is_broken = False

    @classmethod
    def setup_task(cls, args, **options):
        """
        Raises:
            ValueError: an option makes no sense for a stream.
        """
        for name, value in UNCHANGED.items():
            if getattr(args, name, None) not in (None, value):
                raise ValueError(
                    f"--{name.replace('_', '-')} is {getattr(args, name)}, which does not go with "
                    "stateful_language_modeling; leave it out"
                )
        return super().setup_task(args, **options)

    def build_model(self, args, from_checkpoint=False):
        model = super().build_model(args, from_checkpoint)
        refuse_to_train(model)
        if getattr(self.args, "continue_positions", False):
            refuse_without_later_positions(model)
        return model

    def load_dataset(self, split, epoch=1, combine=False, **options):
        super().load_dataset(split, epoch=epoch, combine=combine, **options)
        lines = self.datasets[split].dataset.dataset
        stream = Stream(lines, lines.sizes, self.dictionary.eos())
        self.datasets[split] = SegmentDataset(stream, 1, self.args.tokens_per_sample, self.dictionary.pad())

    def get_batch_iterator(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        max_positions=None,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        epoch=1,
        data_buffer_size=0,
        skip_remainder_batch=False,
        **options,
    ):
        """Batches in the order of the stream, with as many rows each: what shuffles or drops rows is not read.

        Raises:
            ValueError: a segment is too long, or there are fewer tokens than columns.
        """
        most = min(limit for limit in (max_tokens, max_positions, math.inf) if limit is not None)
        if dataset.length > most:
            raise ValueError(
                f"--tokens-per-sample is {dataset.length}, and --max-tokens or the model takes {most}; use fewer"
            )
        limits = max_sentences, None if max_tokens is None else max_tokens // dataset.length
        columns = min((limit for limit in limits if limit is not None), default=1)
        self.num_columns = columns * num_shards
        return SegmentIterator(
            dataset.in_columns(self.num_columns),
            num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            skip_remainder_batch=skip_remainder_batch,
        )

    def begin_epoch(self, epoch, model):
        super().begin_epoch(epoch, model)
        device = next(model.parameters()).device
        self.train_state = restored(self.saved or {}, *_worker(), device)
        self.saved = None

    def begin_valid_epoch(self, epoch, model):
        super().begin_valid_epoch(epoch, model)
        self.valid_state = StreamState()

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """That of fairseq. A batch that fails, or that fairseq made up, leaves the state as it was."""
        self._collect_before_checkpoints(optimizer)
        place = None if ignore_grad else sample["place"]
        before = None if place is None else self.train_state.before(place)
        try:
            with carrying(model, before, self._first_position(place)) as carried:
                result = super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)
        except Exception as error:
            # After this fairseq writes a checkpoint on this worker alone; it goes on after errors of memory.
            self.is_broken = not isinstance(error, RuntimeError)
            raise
        if place is not None and result[0].isfinite().all():
            self.train_state.leave(place, before, carried)
        return result

    def valid_step(self, sample, model, criterion):
        place = sample["place"]
        before = None if place is None else self.valid_state.before(place)
        with carrying(model, before, self._first_position(place)) as carried:
            result = super().valid_step(sample, model, criterion)
        if place is not None:
            self.valid_state.leave(place, before, carried)
        return result

    def get_checkpoint_dict(self):
        """Called by fairseq on the worker that writes a checkpoint."""
        found = self.collected if _worker()[0] > 1 else joined([self.train_state.tensors()])
        self.collected = None
        return {type(self).__name__: found or {}}

    def set_checkpoint_dict(self, saved):
        """Called by fairseq on all workers, where a training goes on in the middle of an epoch.

        Raises:
            ValueError: it would go on in other columns.
        """
        now = {"columns": self.num_columns, "length": self.args.tokens_per_sample}
        was = {name: saved["place"][name] for name in now}
        if was != now:
            raise ValueError(
                f"the checkpoint stands in the middle of {was['columns']} columns with segments of {was['length']} "
                f"tokens, and this training has {now['columns']} with {now['length']}; use the same --batch-size, "
                "--tokens-per-sample and number of workers, or --reset-dataloader"
            )
        self.saved = saved

    def eval_lm_dataloader(self, *arguments, **options):
        """
        Raises:
            ValueError: what scores its batches carries no state.
        """
        raise ValueError(
            "fairseq-eval-lm carries no state; use python -m fairseq_rfa.perplexity, or --task language_modeling to "
            "score each segment by itself"
        )

    def _first_position(self, place: Optional[Place]) -> int:
        continues = place is not None and getattr(self.args, "continue_positions", False)
        return place["segment"] * place["length"] if continues else 0

    def _collect_before_checkpoints(self, optimizer) -> None:
        """fairseq has each worker's optimizer bring its parts together before one of them writes a checkpoint."""
        if _worker()[0] == 1 or optimizer.optimizer is self.collecting_optimizer:
            return
        optimizer = optimizer.optimizer
        own = getattr(optimizer, "consolidate_state_dict", None)

        def collect():
            if own is not None:
                own()
            self._collect()

        optimizer.consolidate_state_dict = collect
        self.collecting_optimizer = optimizer

    def _collect(self) -> None:
        if self.is_broken:
            return
        number, worker = _worker()
        found = [None] * number if worker == 0 else None
        torch.distributed.gather_object(self.train_state.tensors(), found)
        self.collected = joined(found) if worker == 0 else None


def _worker():
    """How many workers there are, and which one this is."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1, 0
    return workers.get_data_parallel_world_size(), workers.get_data_parallel_rank()
