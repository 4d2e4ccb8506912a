"""Beam search for the last sentence of each window, after translations of the sentences before it."""

from contextlib import ExitStack
from typing import Dict, List

import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from .prefix import PREFIX, positions_after, read_prefix, reorder_prefix
from .windows import SEPARATOR, sentences_of


class PrefixedEnsemble(EnsembleModel):
    """fairseq's ensemble, whose decoders have read what stands in "prev_output_tokens" before a search begins."""

    def forward_encoder(self, net_input):
        encoder_outs = super().forward_encoder(net_input)
        prefix = net_input.get("prev_output_tokens")
        if prefix is not None:
            # Sentences are read once, before they become the hypotheses of a beam.
            for model, out in zip(self.models, encoder_outs):
                out[PREFIX] = read_prefix(model.decoder, prefix, out)
        return encoder_outs

    def reorder_encoder_out(self, encoder_outs, new_order):
        states = [out.pop(PREFIX, None) for out in encoder_outs]
        encoder_outs = super().reorder_encoder_out(encoder_outs, new_order)
        for model, out, state in zip(self.models, encoder_outs, states):
            if state is not None:
                model.decoder.reorder_incremental_state_scripting(state, new_order)
                reorder_prefix(state, new_order)
                out[PREFIX] = state
        return encoder_outs

    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature=1.0):
        with ExitStack() as moved:
            for model, out, state in zip(self.models, encoder_outs, incremental_states):
                state.update(out.pop(PREFIX, {}))
                moved.enter_context(positions_after(model.decoder, state))
            return super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)

    def reorder_incremental_state(self, incremental_states, new_order):
        super().reorder_incremental_state(incremental_states, new_order)
        for state in incremental_states:
            reorder_prefix(state, new_order)


class DocumentGenerator(SequenceGenerator):
    """Translates the last sentence of windows; what it gives back are sentences.

    The sentences of a document must come in their order, each in a later batch than the one before it.

    Args:
        source_separator: the symbol between sentences of the source.
        left_pad_source: as in the batches of training.
        own_prefix: the sentences before the last are the own translations of those numbers; otherwise they are the
            reference's.
        options: those of fairseq's SequenceGenerator.
    """

    def __init__(self, models, tgt_dict, *, source_separator: int, left_pad_source: bool, own_prefix: bool, **options):
        super().__init__(PrefixedEnsemble(models), tgt_dict, tokens_to_suppress=(SEPARATOR,), **options)
        self.source_separator = source_separator
        self.separator = tgt_dict.index(SEPARATOR)
        self.left_pad_source = left_pad_source
        self.own_prefix = own_prefix
        self.translations: Dict[int, Tensor] = {}
        """The best one of each sentence so far, without its end symbol."""
        self.num_positions = self.max_len

    @torch.no_grad()
    def generate(self, models, sample, prefix_tokens=None, constraints=None, **options):
        """Hypotheses of the last sentence of each row.

        Args:
            sample: a batch of windows; without "id", as fairseq-interactive gives it, of sentences alone.
            prefix_tokens: (B, positions), how the last sentences must begin.
        """
        if "id" not in sample:
            self.max_len = self.num_positions
            return super().generate(models, sample, prefix_tokens=prefix_tokens, constraints=constraints, **options)
        numbers = sample["id"].tolist()
        sources = [self._sentences(row, self.source_separator) for row in sample["net_input"]["src_tokens"]]
        contexts = [
            self._context(row, numbers[row], sources[row], sample["net_input"].get("prev_output_tokens"))
            for row in range(len(numbers))
        ]
        hypotheses: List[List[Dict[str, Tensor]]] = [[] for _ in numbers]
        # Rows without a sentence before them have no prefix that could be read.
        for has_context in (False, True):
            rows = [row for row, context in enumerate(contexts) if bool(context) == has_context]
            if not rows:
                continue
            batch = {
                "id": sample["id"][rows],
                "net_input": self._net_input([sources[row] for row in rows], [contexts[row] for row in rows]),
            }
            found = super().generate(
                models,
                batch,
                prefix_tokens=None if prefix_tokens is None else prefix_tokens[rows],
                constraints=None if constraints is None else constraints[rows],
                bos_token=self.separator if has_context else None,
                **options,
            )
            for row, best in zip(rows, found):
                hypotheses[row] = best
        if self.own_prefix:
            for number, best in zip(numbers, hypotheses):
                self.translations[number] = self._without_end(best[0]["tokens"])
        return hypotheses

    def _sentences(self, window: Tensor, separator: int) -> List[Tensor]:
        return sentences_of(self._without_end(window), separator)

    def _without_end(self, tokens: Tensor) -> Tensor:
        return tokens[tokens.ne(self.pad) & tokens.ne(self.eos)]

    def _context(self, row: int, number: int, source: List[Tensor], references) -> List[Tensor]:
        """Translations of the sentences before that of the number, the oldest first, as many as fit before it."""
        if self.own_prefix:
            context: List[Tensor] = []
            while len(context) < len(source) - 1 and number - len(context) - 1 in self.translations:
                context.insert(0, self.translations[number - len(context) - 1])
        elif references is None:
            raise ValueError("--context-prefix reference needs a reference, and the data have none; use own")
        else:
            context = self._sentences(references[row], self.separator)[:-1]
        room = int(self.max_len_a * (sum(map(len, source)) + len(source)) + self.max_len_b) + 1
        room = min(room, self.num_positions // 2)
        while context and sum(map(len, context)) + len(context) + room > self.num_positions:
            context = context[1:]
        return context

    def _net_input(self, sources: List[List[Tensor]], contexts: List[List[Tensor]]) -> Dict[str, Tensor]:
        """What the ensemble takes: the newest sentences of the source, as many as there are translations of."""
        windows = [
            self._joined(source[-len(context) - 1 :], self.source_separator, self.eos)
            for source, context in zip(sources, contexts)
        ]
        net_input = {
            "src_tokens": collate_tokens(windows, self.pad, left_pad=self.left_pad_source),
            "src_lengths": torch.tensor([len(window) for window in windows], device=windows[0].device),
        }
        longest = 0
        if contexts[0]:
            start = sources[0][0].new_tensor([self.eos])
            # The last separator is what the search begins with.
            prefixes = [
                torch.cat([start, self._joined(context, self.separator, self.separator)[:-1].to(start)])
                for context in contexts
            ]
            net_input["prev_output_tokens"] = collate_tokens(prefixes, self.pad)
            longest = net_input["prev_output_tokens"].size(1)
        self.max_len = self.num_positions - longest
        return net_input

    @staticmethod
    def _joined(sentences: List[Tensor], separator: int, end: int) -> Tensor:
        parts = []
        for sentence in sentences:
            parts += [sentence, sentence.new_tensor([separator])]
        return torch.cat([*parts[:-1], sentences[-1].new_tensor([end])])
