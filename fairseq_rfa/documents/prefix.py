"""A forced prefix that a decoder reads in one chunk, and the positions of what follows it.

P tokens of a prefix, of which rows may have fewer: padding is on the right.
"""

from contextlib import ExitStack, contextmanager, suppress
from typing import Dict, Iterator, Optional

from torch import Tensor, nn

from ..attention.given_options import given

PREFIX = "prefix"
"""The name in an incremental state under which it holds what is here."""

IncrementalState = Dict[str, Dict[str, Optional[Tensor]]]


def read_prefix(decoder: nn.Module, tokens: Tensor, encoder_out) -> IncrementalState:
    """The incremental state of one of fairseq's Transformer decoders after tokens (B, P), as if read one by one.

    It holds self-attention's keys or sums; cross-attention makes its own at the next step. fairseq's decoder takes one
    token at a time wherever it is given a state. So it is given none, and its self-attention is. What the last layer
    would do after that is left out: nobody asks for features of a prefix.
    """
    state: IncrementalState = {}
    with ExitStack() as hooks:
        for layer in decoder.layers:
            hooks.enter_context(given(layer.self_attn, incremental_state=state))
        hooks.enter_context(decoder.layers[-1].self_attn.register_forward_hook(_stop))
        with suppress(_AllRead):
            decoder(tokens, encoder_out=encoder_out, features_only=True)
    state[PREFIX] = {"length": tokens.ne(decoder.padding_idx).sum(1)}
    return state


class _AllRead(Exception):
    """The last self-attention has its state."""


def _stop(module, arguments, output) -> None:
    raise _AllRead


def reorder_prefix(state: IncrementalState, new_order: Tensor) -> None:
    """Row i of the lengths becomes the former row new_order[i]; the decoder does so with the rest."""
    if PREFIX in state:
        state[PREFIX]["length"] = state[PREFIX]["length"].index_select(0, new_order)


@contextmanager
def positions_after(decoder: nn.Module, state: IncrementalState) -> Iterator[None]:
    """Within it, the decoder's next token stands after the prefix of its row, of whatever length it is.

    fairseq's embeddings of positions take all rows of a search to be equally long.
    """
    if PREFIX not in state or decoder.embed_positions is None:
        yield
        return

    def moved(module, arguments, options, embedded):
        if options.get("incremental_state") is None:
            return embedded
        index = state[PREFIX]["length"] + arguments[0].size(1) - 1
        return _embedded_positions(module, state, arguments[0])[index].unsqueeze(1)

    with decoder.embed_positions.register_forward_hook(moved, with_kwargs=True):
        yield


def _embedded_positions(module: nn.Module, state: IncrementalState, tokens: Tensor) -> Tensor:
    """Those of a row without padding, (positions, embed_dim); made anew, for twice as many, where more are needed."""
    prefix, needed = state[PREFIX], int(state[PREFIX]["length"].max()) + tokens.size(1)
    if "positions" not in prefix or prefix["positions"].size(0) < needed:
        most = getattr(module, "max_positions", 2 * needed)
        row = tokens.new_full((1, max(needed, min(most, 2 * needed))), module.padding_idx + 1)
        prefix["positions"] = module(row).squeeze(0)
    return prefix["positions"]
