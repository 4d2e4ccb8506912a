"""The only file that knows versions of fairseq and torch."""

import argparse

import torch


def allow_checkpoint_classes():
    """Let `torch.load` with weights_only read the harmless classes that fairseq's checkpoints hold.

    torch 2.6 and newer refuse every class that is not listed; fairseq stores the options as a Namespace.
    Loading stays safe: a pickle that would run code is still refused.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])
