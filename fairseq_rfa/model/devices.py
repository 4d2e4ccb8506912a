"""What the options of fairseq-train mean on the device that it runs on: CPU, GPU or TPU.

fairseq finds its workers by counting GPUs, and takes --bf16 for --tpu. An architecture may change options that
have been parsed, and these are changed before fairseq looks at them.
"""

import logging
import os
import sys
from importlib.util import find_spec

logger = logging.getLogger(__name__)

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def settle_devices(args):
    """Change args such that --bf16 works without a TPU, and several workers without a GPU.

    Raises:
        ValueError: several workers that fairseq cannot start; --tpu without torch_xla or with --cpu.
    """
    if hasattr(args, "_name") or not hasattr(args, "distributed_world_size"):
        return  # no command line, but a checkpoint or a configuration file
    _check_tpu_flag(args)
    if args.bf16 and args.tpu and (args.cpu or find_spec("torch_xla") is None):
        args.tpu = False
        where = "on the CPU" if args.cpu else "without a TPU, because torch_xla is not installed"
        logger.info(f"--bf16: training {where}")
    _find_workers(args)
    if args.distributed_world_size > 1:
        # Or the first worker would send a checkpoint to the others as objects that torch 2.6 and newer do not load.
        args.load_checkpoint_on_all_dp_ranks = True


def _check_tpu_flag(args):
    # --bf16 sets args.tpu as well, so only the command line says that a TPU was asked for.
    if "--tpu" not in sys.argv:
        return
    if args.cpu:
        raise ValueError("--tpu and --cpu are two devices; leave one of them away")
    if find_spec("torch_xla") is None:
        raise ValueError(
            "--tpu needs torch_xla, which is not installed; use an environment with it (recipes/tpu-check.sh makes "
            "one), or leave --tpu away and train on a GPU or, with --cpu, on the CPU"
        )


def _find_workers(args):
    if args.tpu:
        if args.distributed_world_size > 1:
            raise ValueError(
                f"--distributed-world-size is {args.distributed_world_size}, but fairseq cannot start several workers "
                "with torch_xla; with --tpu use 1"
            )
        return
    if args.distributed_init_method is not None:
        return
    if all(name in os.environ for name in TORCHRUN):
        _join_torchrun(args)
    elif args.cpu and args.distributed_world_size > 1:
        raise ValueError(
            f"--distributed-world-size is {args.distributed_world_size}, but fairseq starts workers on GPUs only; "
            f"with --cpu use: torchrun --nproc_per_node {args.distributed_world_size} $(which fairseq-train) …"
        )


def _join_torchrun(args):
    # By itself fairseq trains alone in each worker where it counts one GPU or none.
    args.distributed_world_size = int(os.environ["WORLD_SIZE"])
    if args.cpu and args.distributed_world_size > 1:
        args.distributed_init_method = "env://"
        args.distributed_rank = int(os.environ["RANK"])
        args.distributed_no_spawn = True
        args.distributed_backend = "gloo"
        args.ddp_backend = "legacy_ddp"  # the other ones want a GPU
