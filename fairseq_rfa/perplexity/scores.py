"""The probabilities that a language model gives to the tokens of a text, in memory that does not grow with it."""

from typing import Iterator, Optional

import torch
from torch import Tensor, nn

from ..language.carrying import carrying, states_after
from ..language.stream import Stream

MOST_ENTRIES = 2**24
"""So many probabilities are made at a time: as float32, 64 MB."""


class Scorer:
    """Reads a text in segments.

    Args:
        model: one of fairseq's language models, in evaluation.
        length: tokens of a segment that are scored at once.
        window: so many tokens before them are read once more; None carries the state of causal random feature
            attention on.
        continue_positions: positions are counted from the start of the text.
    """

    def __init__(
        self, model: nn.Module, length: int, window: Optional[int] = None, continue_positions: bool = False
    ):
        self.model = model
        self.length = length
        self.window = window
        self.continue_positions = continue_positions
        self.device = next(model.parameters()).device

    @torch.no_grad()
    def scores(self, stream: Stream, start: int, end: int) -> Iterator[Tensor]:
        """The logarithms of the probabilities of the tokens of a text from start up to end, segment by segment.

        Raises:
            FloatingPointError: one of them is not finite.
        """
        before = None
        for first in range(start, end, self.length):
            begin = max(start, first - (self.window or 0))
            target, source = stream.part(begin, min(first + self.length, end))
            position = begin - start if self.continue_positions else 0
            with carrying(self.model, before, position) as carried:
                features, _ = self.model(source.unsqueeze(0).to(self.device), features_only=True)
            if self.window is None:
                before = states_after(carried)
            scores = self._of(features.squeeze(0)[first - begin :], target[first - begin :].to(self.device))
            if not scores.isfinite().all():
                raise FloatingPointError("the model's probabilities are not finite; check the checkpoint for NaN")
            yield scores

    def _of(self, features: Tensor, target: Tensor) -> Tensor:
        """Features (N, embed_dim) and tokens (N) → (N)."""
        rows = max(1, MOST_ENTRIES // len(self.model.decoder.dictionary))
        scores = []
        for x, tokens in zip(features.split(rows), target.split(rows)):
            out = self.model.decoder.output_layer(x.unsqueeze(0))
            sample = {"target": tokens.unsqueeze(0)}
            log_probs = self.model.get_normalized_probs((out, None), log_probs=True, sample=sample)
            scores.append(log_probs.squeeze(0).gather(-1, tokens.unsqueeze(-1)).squeeze(-1))
        return torch.cat(scores)
