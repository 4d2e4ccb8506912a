"""The only file that knows versions of fairseq, torch and torch_xla."""

import argparse
import functools

import numpy as np
import torch
from fairseq import utils
from numpy.core import multiarray
from omegaconf import OmegaConf, open_dict

NO_MEMORY_KNOWN = {"kb_free": 0, "kb_total": 0}
FLOAT_AND_INTEGER = [type(np.dtype(kind)) for kind in (np.float64, np.int64)]


def allow_checkpoint_classes():
    """Let `torch.load` with weights_only read the harmless classes that fairseq's checkpoints hold.

    torch 2.6 and newer refuse every class that is not listed; fairseq stores the options as a Namespace,
    and with --eval-bleu its counts as arrays.
    Loading stays safe: a pickle that would run code is still refused.
    """
    torch.serialization.add_safe_globals(
        [argparse.Namespace, multiarray._reconstruct, np.ndarray, np.dtype, *FLOAT_AND_INTEGER]
    )


def rebuild_batches_each_epoch(task):
    """Let a resumed training see the batches of one that was not stopped.

    fairseq makes the batches with the seed of the epoch in which the program starts and keeps them, so a
    training resumed in another epoch would see others. The task's option rebuild_batches makes them anew in
    each epoch; no flag of fairseq sets it.
    """
    if OmegaConf.is_config(task.cfg):
        with open_dict(task.cfg):
            task.cfg.rebuild_batches = True


def restore_xla_functions():
    """Give torch_xla, where it is installed, the functions back that fairseq still calls."""
    try:
        import torch_xla.core.xla_model as xla_model
        from torch_xla import runtime
    except ImportError:
        return
    restore_functions(xla_model, runtime)
    utils.tpu_data_loader = counting_from_start(utils.tpu_data_loader)


def restore_functions(xla_model, runtime):
    """torch_xla 2.7 removed get_ordinal and xrt_world_size, and get_memory_info counts in bytes.

    Doing it twice changes nothing.
    """
    for name, successor in (("get_ordinal", "global_ordinal"), ("xrt_world_size", "world_size")):
        if not hasattr(xla_model, name):
            setattr(xla_model, name, getattr(runtime, successor))
    xla_model.get_memory_info = in_kilobytes(xla_model.get_memory_info)


def in_kilobytes(get_memory_info):
    """get_memory_info with the keys that fairseq reads; zeros on a device that keeps no account, like a CPU."""

    @functools.wraps(get_memory_info)
    def with_former_keys(*arguments):
        try:
            info = get_memory_info(*arguments)
        except RuntimeError:
            return dict(NO_MEMORY_KNOWN)
        if "kb_total" in info:
            return info
        total, used = info["bytes_limit"] // 1024, info["bytes_used"] // 1024
        return {**info, "kb_total": total, "kb_free": total - used}

    return with_former_keys


def counting_from_start(tpu_data_loader):
    """tpu_data_loader without the loss of batches.

    fairseq asks where an iterator stands after torch_xla has begun to read it ahead in another thread, and so
    leaves out as many batches at the end of the epoch as that thread has read by then.
    """

    @functools.wraps(tpu_data_loader)
    def with_right_count(iterator):
        start = getattr(iterator, "n", 0)
        loader = tpu_data_loader(iterator)
        loader.n = start
        return loader

    return with_right_count
