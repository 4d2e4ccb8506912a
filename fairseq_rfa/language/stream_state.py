"""What the columns of one stream have carried so far, and the same as plain tensors for a checkpoint."""

import logging
from typing import Dict, List, Optional

import torch
from torch import Tensor

from ..attention.carried_state import CarriedState, as_tensors, from_tensors
from .carrying import States, states_after

logger = logging.getLogger(__name__)

Place = Dict[str, int]
"""Where a batch stands in its stream: `SegmentDataset.collater`."""


class StreamState:
    """The states after the newest segment that was read, and those before it, which is read again after an overflow."""

    def __init__(self):
        self.place: Optional[Place] = None
        """Of that segment."""
        self.earlier: States = None
        self.newest: States = None

    def before(self, place: Place) -> States:
        """What a segment follows; None where it is the first, or where nothing was carried."""
        if place["segment"] == 0:
            return None
        if self.place is None:
            logger.warning(
                f"nothing was carried to segment {place['segment'] + 1} of this epoch; its columns start anew"
            )
            return None
        return self.earlier if place["segment"] == self.place["segment"] else self.newest

    def leave(self, place: Place, before: States, carried: List[CarriedState]) -> None:
        """Keep what a segment leaves."""
        self.place, self.earlier, self.newest = place, before, states_after(carried)

    def tensors(self) -> Optional[Dict]:
        """The newest states on the CPU, None where no segment will follow them."""
        if self.newest is None or not self.place["left"]:
            return None
        states = [None if x is None else as_tensors(x) for x in self.newest]
        return {"place": self.place, "states": _on_cpu(states)}


def joined(workers: List[Optional[Dict]]) -> Dict:
    """The tensors of all workers as those of one, with the columns in their order; empty where one has none."""
    if None in workers:
        return {}
    states = [
        None if None in parts else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        for parts in zip(*(worker["states"] for worker in workers))
    ]
    return {"place": workers[0]["place"], "states": states}


def restored(tensors: Dict, num_workers: int, worker: int, device: torch.device) -> StreamState:
    """The state of one of so many workers, who share out the columns."""
    state = StreamState()
    if tensors:
        rows = tensors["place"]["columns"] // num_workers
        own = slice(worker * rows, (worker + 1) * rows)
        state.place = tensors["place"]
        state.newest = [
            None if parts is None else from_tensors({name: x[own].to(device) for name, x in parts.items()})
            for parts in tensors["states"]
        ]
    return state


def _on_cpu(states: List[Optional[Dict[str, Tensor]]]) -> List[Optional[Dict[str, Tensor]]]:
    return [None if parts is None else {name: x.cpu() for name, x in parts.items()} for parts in states]

