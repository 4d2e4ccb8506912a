"""The only file that knows versions of fairseq and torch."""

import argparse

import torch
from omegaconf import OmegaConf, open_dict


def allow_checkpoint_classes():
    """Let `torch.load` with weights_only read the harmless classes that fairseq's checkpoints hold.

    torch 2.6 and newer refuse every class that is not listed; fairseq stores the options as a Namespace.
    Loading stays safe: a pickle that would run code is still refused.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])


def rebuild_batches_each_epoch(task):
    """Let a resumed training see the batches of one that was not stopped.

    fairseq makes the batches with the seed of the epoch in which the program starts and keeps them, so a
    training resumed in another epoch would see others. The task's option rebuild_batches makes them anew in
    each epoch; no flag of fairseq sets it.
    """
    if OmegaConf.is_config(task.cfg):
        with open_dict(task.cfg):
            task.cfg.rebuild_batches = True
