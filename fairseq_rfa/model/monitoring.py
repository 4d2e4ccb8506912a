"""TensorBoard shows how attention through features fares in training, beside what fairseq logs.

Each attention of each layer has its scalars: the share of denominators at the floor, the mean of σ, and the mean of
the gate where there is one. They stand in a folder of their own, because TensorBoard reads one file of a folder at a
time.
"""

import os
import weakref
from argparse import Namespace
from typing import Dict, Optional, Union

from fairseq.distributed.utils import get_global_rank
from fairseq.logging import progress_bar
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..attention.base import RandomFeatureAttention
from ..attention.observations import NoneInCopies, Observations

FOLDER = "rfa"


class Monitor(NoneInCopies):
    """Writes the means over the updates since the last writing, whenever fairseq logs.

    fairseq tells a model of each update that begins, and of none that ends. The end is the step of the optimizer, so
    that nothing is left to be written when a training stops, however it stops.

    Args:
        folder: where the files go.
        interval: number of updates from one writing to the next.
        model: whose attentions are watched.
    """

    latest: Optional["weakref.ref[Monitor]"] = None
    """Whose model began an update last: an optimizer's step is taken for the end of that one."""

    def __init__(self, folder: str, interval: int, model: nn.Module):
        self.folder = folder
        self.interval = interval
        self.num_updates: Optional[int] = None
        self.writer = None
        self.sites: Dict[str, Observations] = {}
        for module in model.modules():
            if isinstance(module, RandomFeatureAttention):
                module.observations = Observations()
                self.sites[f"{module.place}_layer_{module.layer_index}"] = module.observations
        handle = register_optimizer_step_post_hook(_after_step_of(weakref.ref(self)))
        weakref.finalize(self, handle.remove)

    def begin_update(self, num_updates: int) -> None:
        """So many updates are done. With accumulation the same number comes before each batch of an update."""
        if num_updates != self.num_updates:
            self._write(num_updates)
            self.num_updates = num_updates
        Monitor.latest = weakref.ref(self)

    def end_update(self) -> None:
        """One more update is done, which may be the last."""
        if self.num_updates is not None:
            self._write(self.num_updates + 1)

    def _write(self, num_updates: int) -> None:
        if num_updates % self.interval:
            return
        scalars = {
            f"{site}/{name}": mean
            for site, observations in self.sites.items()
            for name, mean in observations.take_means().items()
        }
        if not scalars:
            return
        if self.writer is None:
            self.writer = progress_bar.SummaryWriter(self.folder)
        for name, mean in scalars.items():
            self.writer.add_scalar(name, mean, num_updates)
        self.writer.flush()


def _after_step_of(reference: "weakref.ref[Monitor]"):
    """What a step of any optimizer calls; it keeps no monitor alive."""

    def after_step(*of_optimizer):
        monitor = reference()
        if monitor is not None and Monitor.latest == reference:
            monitor.end_update()

    return after_step


def monitor_of(
    cfg: Union[Namespace, DictConfig], wanted: Optional[bool], model: nn.Module
) -> Optional[Monitor]:
    """The monitor that the options of a training ask for, in the first worker.

    Args:
        cfg: what fairseq gives to build_model. That of a command line, or of a checkpoint, holds all options; that
            of a configuration file hangs in one that holds the others.
        wanted: --rfa-monitor; None for a monitor where fairseq writes for TensorBoard, but not on a TPU, which would
            have to be waited for.

    Raises:
        ValueError: wanted, but there is no folder.
    """
    options = _options_of_every_command(cfg)
    folder = getattr(options, "tensorboard_logdir", None)
    if wanted and not folder:
        raise ValueError(
            "--rfa-monitor writes for TensorBoard, but nothing says where; "
            "use it with --tensorboard-logdir FOLDER"
        )
    if wanted is None:
        wanted = folder and not options.tpu
    if not wanted or progress_bar.SummaryWriter is None or get_global_rank() > 0:
        return None
    return Monitor(os.path.join(folder, FOLDER), options.log_interval, model)


def _options_of_every_command(
    cfg: Union[Namespace, DictConfig],
) -> Union[Namespace, DictConfig, None]:
    if not OmegaConf.is_config(cfg):
        return cfg
    try:
        return OmegaConf.select(cfg, "..common")
    except KeyError:
        return None  # a configuration of the model alone


def refuse_monitor_without_tensorboard(args: Namespace) -> None:
    """On the command line; a model that is only decoded needs no TensorBoard. By default fairseq's warning has to do.

    Raises:
        ValueError
    """
    if args.rfa_monitor and not hasattr(args, "_name") and progress_bar.SummaryWriter is None:
        raise ValueError("--rfa-monitor needs TensorBoard; run: pip install tensorboard")
