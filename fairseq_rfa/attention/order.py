"""Rows of a batch that change their order while decoding."""

import math
from typing import Dict, Iterator, Optional

import torch
from torch import Tensor


def is_identity(new_order: Tensor, rows: int) -> bool:
    """Whether each of the rows stays where it is, and no more come."""
    return new_order.numel() == rows and torch.equal(
        new_order, torch.arange(rows, device=new_order.device)
    )


def rows_of(state: Dict[str, Tensor]) -> int:
    """The number of hypotheses of a state, which says it if it is ours; the tensors of fairseq's begin with it."""
    rows = getattr(state, "num_rows", None)
    return next(iter(state.values())).size(0) if rows is None else rows


def reordered(state: Dict[str, Tensor], new_order: Tensor) -> Dict[str, Tensor]:
    """The state whose row i is the former row new_order[i]; the identity copies nothing."""
    if is_identity(new_order, next(iter(state.values())).size(0)):
        return state
    return {name: x.index_select(0, new_order) for name, x in state.items()}


class Slots:
    """Moves the rows of those tensors of a state that have slots, (C, B, …), of which the first `used` are in use.

    Only what is in use and differs is copied: in each slot, rows with the same origin hold the same. Where most of a
    tensor moves, it is copied to and fro between two places in memory, because new memory is slower than old.
    """

    def __init__(self, tensors: Dict[str, Tensor], *names: str, used: int = 0):
        """
        Args:
            tensors: the state, in which a tensor that has moved is replaced.
            names: those of its tensors that have these slots.
        """
        self.tensors = tensors
        self.names = names
        self.used = used
        first = tensors[names[0]]
        self.origin = torch.arange(first.size(1), device=first.device).repeat(first.size(0), 1)
        """The row in which each row of each slot was written, (C, B)."""
        self.other_places: Dict[str, Tensor] = {}

    def __getstate__(self):
        return {**vars(self), "other_places": {}}

    def held(self) -> Iterator[Tensor]:
        """The tensors that stand here and not in the state."""
        yield self.origin
        yield from self.other_places.values()

    def in_use(self, name: str) -> Tensor:
        """The slots of a tensor that are in use, (used, B, …)."""
        return self.tensors[name][: self.used]

    def append(self) -> int:
        """The next slot, whose rows are now to be written."""
        torch.arange(self.origin.size(1), out=self.origin[self.used])
        self.used += 1
        return self.used - 1

    def drop(self, number: int) -> None:
        """The first slots leave, and the others follow."""
        kept = self.used - number
        if kept and number:
            for x in (self.origin, *(self.tensors[name] for name in self.names)):
                x[:kept] = x[number : self.used].clone()
        self.used = kept

    def reorder(self, new_order: Tensor) -> None:
        """Row i becomes the former row new_order[i]."""
        if not self.used and new_order.numel() == self.origin.size(1):
            return
        former = self.origin[: self.used]
        origin = former.index_select(1, new_order)
        if new_order.numel() != self.origin.size(1) or torch.is_grad_enabled():
            self.origin = origin.new_empty(self.origin.size(0), new_order.numel())
            self.origin[: self.used] = origin
            self._move_whole(new_order)
            return
        differs = origin != former
        former.copy_(origin)
        slot, row = differs.nonzero().unbind(1)
        if 2 * row.numel() > differs.numel():
            self._move_whole(new_order)
            return
        slot = slot * new_order.numel()
        here, there = slot + row, slot + new_order[row]
        for name in self.names:
            cells = self.in_use(name).flatten(0, 1)
            cells.index_copy_(0, here, cells.index_select(0, there))

    def _move_whole(self, new_order: Tensor) -> None:
        for name in self.names:
            former = self.in_use(name)
            self.tensors[name] = self._other_place(name, new_order.numel())
            if torch.is_grad_enabled():
                self.in_use(name).copy_(former.index_select(1, new_order))
            else:
                torch.index_select(former, 1, new_order, out=self.in_use(name))

    def _other_place(self, name: str, rows: int) -> Tensor:
        """A tensor like that of the name but with so many rows, in memory other than its own."""
        here = self.tensors[name]
        shape = here.size(0), rows, *here.shape[2:]
        other: Optional[Tensor] = self.other_places.get(name)
        if other is None or other.numel() < math.prod(shape) or torch.is_grad_enabled():
            other = here.new_empty(math.prod(shape))
        self.other_places[name] = here.flatten()
        return other[: math.prod(shape)].view(shape)
