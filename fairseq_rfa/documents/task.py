"""fairseq's task of translating sentences in the context of their document."""

import itertools
import logging
import os
from dataclasses import dataclass, field
from typing import Optional

from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from .dataset import WindowDataset
from .generator import DocumentGenerator
from .windows import SEPARATOR, read_documents, within_context

logger = logging.getLogger(__name__)


@dataclass
class DocumentTranslationConfig(TranslationConfig):
    context_sentences: Optional[int] = field(
        default=None,
        metadata={
            "help": "source and target are windows of a sentence and up to N sentences before it in its document; "
            "0 is the task translation (default: 0 in training, what the checkpoint was trained with in decoding)"
        },
    )
    context_loss: ChoiceEnum(["all", "last"]) = field(
        default="all",
        metadata={"help": "all sentences of a window are targets, or its last one alone"},
    )
    context_prefix: ChoiceEnum(["own", "reference"]) = field(
        default="own",
        metadata={
            "help": "what stands before a sentence when it is decoded: own translations or, as an upper bound, the "
            "reference; --eval-bleu always takes the reference"
        },
    )


@register_task("document_translation", dataclass=DocumentTranslationConfig)
class DocumentTranslationTask(TranslationTask):
    """Translate windows of sentences of one document, joined by the symbol `SEPARATOR`.

    Without sentences before the last it is `translation` in all it does.
    """

    cfg: DocumentTranslationConfig

    @property
    def has_context(self) -> bool:
        return bool(self.cfg.context_sentences)

    @property
    def target_separator(self) -> int:
        """The symbol between the sentences of a target.

        Raises:
            ValueError: the dictionary lacks it.
        """
        return self._separator(self.tgt_dict)

    def load_dataset(self, split, epoch=1, combine=False, task_cfg=None, **options):
        """
        Args:
            task_cfg: the options with which a checkpoint was trained; given by the commands that decode or validate.

        Raises:
            ValueError: the data have no documents or no separator, or an option makes no sense for windows.
        """
        super().load_dataset(split, epoch=epoch, combine=combine, task_cfg=task_cfg, **options)
        if self.cfg.context_sentences is None:
            self.cfg.context_sentences = getattr(task_cfg, "context_sentences", None) or 0
        if not self.has_context:
            self._warn_of_unread_options()
            return
        self._check_options()
        separators = self._separator(self.src_dict), self._separator(self.tgt_dict)
        sentences = self.datasets[split]
        if sentences.buckets is not None:
            # Windows go into buckets, and not the sentences that they are made of.
            sentences.src, sentences.src_sizes = sentences.src.dataset, sentences.sizes[..., 0]
            sentences.tgt, sentences.tgt_sizes = sentences.tgt.dataset, sentences.sizes[..., 1]
        self.datasets[split] = WindowDataset(
            sentences,
            read_documents(self._names_of_documents(split, epoch, combine), len(sentences)),
            self.cfg.context_sentences,
            separators,
            last_only=self.cfg.context_loss == "last",
            by_position=task_cfg is not None,
            num_buckets=self.cfg.num_batch_buckets,
        )

    def get_batch_iterator(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        max_positions=None,
        *arguments,
        num_shards=1,
        shard_id=0,
        **options,
    ):
        """That of fairseq; windows that are too long for it lose their oldest sentences before."""
        if isinstance(dataset, WindowDataset):
            source, target = max_positions if isinstance(max_positions, tuple) else (max_positions, max_positions)
            dataset.set_limits(_least(source, max_tokens), _least(target, max_tokens))
            if dataset.by_position:
                dataset.set_shard(num_shards, shard_id)
                num_shards, shard_id = 1, 0
        return super().get_batch_iterator(
            dataset,
            max_tokens,
            max_sentences,
            max_positions,
            *arguments,
            num_shards=num_shards,
            shard_id=shard_id,
            **options,
        )

    def build_model(self, cfg, from_checkpoint=False):
        """
        Raises:
            ValueError: a sentence gate would be trained on sentences alone.
        """
        gated = getattr(cfg, "rfa_sentence_gate", False) and cfg.causal_attention == "rfa"
        if gated and not (from_checkpoint or self.has_context):
            raise ValueError(
                "--rfa-sentence-gate acts between the sentences of a window, and there is one; use "
                "--context-sentences 1 or more, or leave the flag out"
            )
        model = super().build_model(cfg, from_checkpoint)
        if self.cfg.eval_bleu and self.has_context:
            self.sequence_generator.own_prefix = False  # validation does not go by documents
        return model

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **options):
        """
        Raises:
            ValueError: something is wanted of a search that knows no windows.
        """
        if self.has_context:
            for name in ("print_alignment", "score_reference", "match_source_len"):
                if getattr(args, name, False):
                    raise ValueError(
                        f"--{name.replace('_', '-')} does not go with windows of sentences; use --context-sentences 0"
                    )
            seq_gen_cls = DocumentGenerator
            extra_gen_cls_kwargs = {
                **(extra_gen_cls_kwargs or {}),
                "source_separator": self._separator(self.src_dict),
                "left_pad_source": self.cfg.left_pad_source,
                "own_prefix": self.cfg.context_prefix == "own",
            }
        return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, **options)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Hypotheses of the last sentence of each window; the sample holds these sentences afterwards."""
        if not isinstance(generator, DocumentGenerator) or "id" not in sample:
            return super().inference_step(generator, models, sample, prefix_tokens, constraints)
        target = sample.get("target")
        if target is not None:
            target = self._last_sentences(target, self.tgt_dict, left_pad=False)
        if prefix_tokens is not None:
            prefix_tokens = target[:, : prefix_tokens.size(1)]
        hypotheses = super().inference_step(generator, models, sample, prefix_tokens, constraints)
        sample["target"] = target
        sample["net_input"]["src_tokens"] = self._last_sentences(
            sample["net_input"]["src_tokens"], self.src_dict, self.cfg.left_pad_source
        )
        return hypotheses

    def _last_sentences(self, windows, dictionary, left_pad):
        """The last sentences of windows (B, N) as rows with padding at one end."""
        pad = dictionary.pad()
        windows = windows.masked_fill(within_context(windows, self._separator(dictionary)), pad)
        return collate_tokens([row[row.ne(pad)] for row in windows], pad, left_pad=left_pad)

    def _names_of_documents(self, split, epoch, combine):
        paths = utils.split_paths(self.cfg.data)
        path = paths[(epoch - 1) % len(paths)] if split == self.cfg.train_subset else paths[0]
        further = (os.path.join(path, f"{split}{number}.documents") for number in itertools.count(1))
        combined = itertools.takewhile(os.path.exists, further) if combine else ()
        return [os.path.join(path, f"{split}.documents"), *combined]

    def _separator(self, dictionary):
        separator = dictionary.index(SEPARATOR)
        if separator == dictionary.unk():
            raise ValueError(
                f"the dictionaries in {self.cfg.data} lack {SEPARATOR}, which stands between sentences; "
                "make the data with data-prep/prepare.sh --documents"
            )
        return separator

    def _check_options(self):
        if self.cfg.context_sentences < 0:
            raise ValueError(f"--context-sentences {self.cfg.context_sentences} is less than 0; use 0 for sentences")
        if self.cfg.load_alignments:
            raise ValueError("--load-alignments does not go with windows of sentences; use --context-sentences 0")

    def _warn_of_unread_options(self):
        if self.cfg.context_loss != "all" or self.cfg.context_prefix != "own":
            logger.warning("--context-loss and --context-prefix change nothing without --context-sentences")


def _least(*limits):
    return min((limit for limit in limits if limit is not None), default=None)
