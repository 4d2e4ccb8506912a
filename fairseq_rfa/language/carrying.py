"""A model that reads a segment of a text after the segments before it: by hooks, without a change of its code."""

import math
from contextlib import ExitStack, contextmanager
from typing import Iterator, List, Optional

import torch
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from fairseq.utils import make_positions
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..attention import CausalRFA
from ..attention.carried_state import CarriedState
from ..attention.decoding_state import Totals
from ..attention.given_options import given

States = Optional[List[Optional[Totals]]]
"""What each causal attention of a model keeps of the segments before, in their order; None at the start of a text."""


def causal_attentions(model: nn.Module) -> List[CausalRFA]:
    return [module for module in model.modules() if isinstance(module, CausalRFA)]


@contextmanager
def carrying(model: nn.Module, before: States, first_position: int = 0) -> Iterator[List[CarriedState]]:
    """Within it, a forward of the model reads what follows these states; its backward must be within it, too.

    Args:
        first_position: so many positions stand before those of the segment. Learned ones cannot be moved.

    Yields:
        the state of each attention before and, in the end, after the segment.
    """
    attentions = causal_attentions(model)
    states = [CarriedState(x) for x in before or [None] * len(attentions)]
    with ExitStack() as hooks:
        for attention, state in zip(attentions, states):
            hooks.enter_context(given(attention, carried=state))
        if first_position:
            for module in model.modules():
                if isinstance(module, SinusoidalPositionalEmbedding):
                    hooks.enter_context(_moved(module, first_position))
        yield states


def states_after(carried: List[CarriedState]) -> List[Optional[Totals]]:
    """What the next segment follows; a layer that was dropped leaves what it found."""
    return [state.before if state.after is None else state.after for state in carried]


def _moved(embedding: SinusoidalPositionalEmbedding, first: int) -> RemovableHandle:
    """Within it, positions are counted from the first one on."""

    def of_later_positions(module, arguments, embedded):
        tokens = arguments[0]
        is_word = tokens.ne(module.padding_idx)
        positions = make_positions(tokens, module.padding_idx) + first * is_word
        return (sinusoids(positions, module.embedding_dim) * is_word.unsqueeze(-1)).to(embedded)

    return embedding.register_forward_hook(of_later_positions)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """The entries (…, width) that fairseq's sinusoidal embedding has at these positions (…), however great they are.

    fairseq's own table begins at 0, and so grows with the length of the text.
    """
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=positions.device) * -(math.log(10000) / (half - 1)))
    angles = positions.float().unsqueeze(-1) * frequencies
    return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, width % 2))


def refuse_without_state(model: nn.Module, remedy: str) -> None:
    """
    Raises:
        ValueError: the model has nothing to carry.
    """
    if not causal_attentions(model):
        raise ValueError(
            f"the state of causal random feature attention is carried on, which this model lacks; {remedy}"
        )


def refuse_to_train(model: nn.Module) -> None:
    """
    Raises:
        ValueError: the model has nothing to carry, or would read it in other directions than it wrote it.
    """
    refuse_without_state(model, "use --causal-attention rfa, or --task language_modeling")
    attentions = causal_attentions(model)
    if any(x.feature_map.source == "pool" and not x.fixed_matrices for x in attentions):
        raise ValueError(
            "--no-rfa-fixed-matrices draws other directions for each batch, in which a state cannot be read; leave it "
            "out with stateful_language_modeling"
        )
    if any(x.exact_updates for x in attentions):
        raise ValueError("--rfa-exact-updates has no state; leave it out with stateful_language_modeling")


def refuse_without_later_positions(model: nn.Module) -> None:
    """
    Raises:
        ValueError: the positions of the model have an end.
    """
    if any(isinstance(module, LearnedPositionalEmbedding) for module in model.modules()):
        raise ValueError(
            "--continue-positions counts beyond any number of learned positions; use it without --decoder-learned-pos"
        )
