"""python -m fairseq_rfa.average_checkpoints: one checkpoint whose parameters are the mean of several.

    python -m fairseq_rfa.average_checkpoints --inputs RUN --num-epoch-checkpoints 5 --output RUN/average.pt
    python -m fairseq_rfa.average_checkpoints --inputs a.pt b.pt --output average.pt

Everything else in the output (options, optimizer, history) is that of the newest input, which has the most updates.
"""

import os

import torch
from fairseq.checkpoint_utils import checkpoint_paths
from omegaconf import OmegaConf

from .model.config import RFA_OPTIONS
from .programs.checkpoint_file import check_output, read_checkpoint, some_of, write_checkpoint
from .programs.program import errors_in_one_line, parser_of, positive_number

NAME = "average_checkpoints"
EPOCH_CHECKPOINT = r"checkpoint(\d+)\.pt"
UPDATE_CHECKPOINT = r"checkpoint_\d+_(\d+)\.pt"
REMEDY = "average checkpoints of one run"


def average_checkpoints(paths):
    """The mean of the checkpoints at `paths`, computed in float64, so that the mean of copies is the copy.

    Returns:
        the newest checkpoint with the mean in place of its parameters.

    Raises:
        ValueError: no whole checkpoint; different options of attention (with other random matrices σ means something
            else), other names, or other sizes; a tensor of whole numbers, which have no mean, that is not the same
            in all.
    """
    newest = _read(paths[0])
    sums = {name: value.double() for name, value in newest["model"].items() if value.is_floating_point()}
    for path in paths[1:]:
        checkpoint = _read(path)
        _check_one_run(checkpoint, newest, path, paths[0])
        for name, total in sums.items():
            total += checkpoint["model"][name]
        if _num_updates(checkpoint) > _num_updates(newest):
            newest = checkpoint
    for name, total in sums.items():
        newest["model"][name] = (total / len(paths)).to(newest["model"][name].dtype)
    # As the trainer stores it: plain containers, which load without running code. What fairseq has made of args, it
    # makes again.
    is_made_of_args = newest["args"] is not None
    newest["cfg"] = None if is_made_of_args else OmegaConf.to_container(newest["cfg"], resolve=True, enum_to_str=True)
    return newest


def _read(path):
    checkpoint = read_checkpoint(path)
    checkpoint.setdefault("args", None)
    strange = [name for name, value in checkpoint["model"].items() if not torch.is_tensor(value)]
    if strange:
        raise ValueError(f"{some_of(strange)} in {path} is no tensor; use checkpoints that fairseq-train wrote")
    return checkpoint


def _check_one_run(checkpoint, other, path, other_path):
    """Raises ValueError where parameters of the one mean something else in the other."""
    theirs = _attention_options(other)
    for name, value in _attention_options(checkpoint).items():
        if value != theirs[name]:
            raise ValueError(f"{path} has {name} {value!r} and {other_path} has {theirs[name]!r}; {REMEDY}")
    parameters, others = checkpoint["model"], other["model"]
    if parameters.keys() != others.keys():
        raise ValueError(f"{path} and {other_path} differ in {some_of(parameters.keys() ^ others.keys())}; {REMEDY}")
    for name, value in parameters.items():
        expected = others[name]
        if value.shape != expected.shape:
            raise ValueError(
                f"{name} is {tuple(value.shape)} in {path} and {tuple(expected.shape)} in {other_path}; {REMEDY}"
            )
        has_mean = value.is_floating_point() and expected.is_floating_point()
        if not has_mean and not torch.equal(value, expected):
            raise ValueError(
                f"{name} is {_kind(value)} in {path} and {_kind(expected)} in {other_path}, with other values; "
                f"only floating-point numbers have a mean; {REMEDY}"
            )


def _kind(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _attention_options(checkpoint):
    options = checkpoint["args"] or checkpoint["cfg"]["model"]
    return {
        option.name: getattr(options, option.name, option.default)
        for option in RFA_OPTIONS
        if option.name not in ("rfa_monitor", "decoding_precision")
    }


def _num_updates(checkpoint):
    return checkpoint["optimizer_history"][-1]["num_updates"]


def _newest(folder, pattern, number):
    paths = checkpoint_paths(folder, pattern)
    if len(paths) < number:
        raise ValueError(
            f"{folder} has {len(paths)} checkpoints of this kind and {number} are wanted; "
            "train longer, or with --keep-last-epochs"
        )
    return paths[:number]


def parse_arguments(arguments=None):
    parser = parser_of(NAME, __doc__)
    parser.add_argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder of a run"
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="where the average goes; an older file is replaced"
    )
    newest = parser.add_mutually_exclusive_group()
    whole = positive_number(int)
    newest.add_argument(
        "--num-epoch-checkpoints", type=whole, metavar="N", help="of a folder: the last N of whole epochs"
    )
    newest.add_argument(
        "--num-update-checkpoints", type=whole, metavar="N", help="of a folder: the last N by updates"
    )
    options = parser.parse_args(arguments)
    number = options.num_epoch_checkpoints or options.num_update_checkpoints
    is_folder = os.path.isdir(options.inputs[0])
    if is_folder != (number is not None) or (is_folder and len(options.inputs) > 1):
        parser.error(
            "--inputs takes one folder with --num-epoch-checkpoints or --num-update-checkpoints, "
            "or checkpoints without either"
        )
    return options


def main(arguments=None):
    options = parse_arguments(arguments)
    with errors_in_one_line(NAME, sizes="--inputs"):
        check_output(options.output)
        paths = options.inputs
        if options.num_epoch_checkpoints:
            paths = _newest(paths[0], EPOCH_CHECKPOINT, options.num_epoch_checkpoints)
        elif options.num_update_checkpoints:
            paths = _newest(paths[0], UPDATE_CHECKPOINT, options.num_update_checkpoints)
        write_checkpoint(average_checkpoints(paths), options.output)
    print(f"{options.output} is the average of {', '.join(paths)}")


if __name__ == "__main__":
    main()
