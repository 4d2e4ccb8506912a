"""python -m fairseq_rfa.average_checkpoints: one checkpoint whose parameters are the mean of several.

    python -m fairseq_rfa.average_checkpoints --inputs RUN --num-epoch-checkpoints 5 --output RUN/average.pt
    python -m fairseq_rfa.average_checkpoints --inputs a.pt b.pt --output average.pt

Everything else in the output (options, optimizer) is that of the newest input.
"""

import argparse
import os
import sys

from fairseq.checkpoint_utils import checkpoint_paths, load_checkpoint_to_cpu, torch_persistent_save
from omegaconf import OmegaConf

from .model.config import RFA_OPTIONS

EPOCH_CHECKPOINT = r"checkpoint(\d+)\.pt"
UPDATE_CHECKPOINT = r"checkpoint_\d+_(\d+)\.pt"


def average_checkpoints(paths):
    """The mean of the checkpoints at `paths`, computed in float64, so that the mean of copies is the copy.

    Returns:
        the first checkpoint with the mean in place of its parameters.

    Raises:
        ValueError: different options of attention (with other random matrices σ means something else),
            other keys, or other shapes.
    """
    first = load_checkpoint_to_cpu(paths[0])
    options = _attention_options(first)
    sums = {key: value.double() for key, value in first["model"].items()}
    for path in paths[1:]:
        checkpoint = load_checkpoint_to_cpu(path)
        for name, value in _attention_options(checkpoint).items():
            if value != options[name]:
                raise ValueError(
                    f"{path} has {name} {value!r} and {paths[0]} has {options[name]!r}; "
                    "average checkpoints of one run"
                )
        parameters = checkpoint["model"]
        if parameters.keys() != sums.keys():
            raise ValueError(
                f"{path} and {paths[0]} differ in {', '.join(sorted(parameters.keys() ^ sums.keys()))}; "
                "average checkpoints of one run"
            )
        for key, value in parameters.items():
            if value.shape != sums[key].shape:
                raise ValueError(
                    f"{key} is {tuple(value.shape)} in {path} and {tuple(sums[key].shape)} in {paths[0]}; "
                    "average checkpoints of one run"
                )
            sums[key] += value
    first["model"] = {
        key: (total / len(paths)).to(first["model"][key].dtype) for key, total in sums.items()
    }
    if first.get("cfg") is not None:
        # As the trainer stores it: plain containers, which load without running code.
        first["cfg"] = OmegaConf.to_container(first["cfg"], resolve=True, enum_to_str=True)
    return first


def _attention_options(checkpoint):
    options = checkpoint["args"] or checkpoint["cfg"]["model"]
    return {
        option.name: getattr(options, option.name, option.default)
        for option in RFA_OPTIONS
        if option.name != "rfa_monitor"
    }


def _newest(folder, pattern, number):
    paths = checkpoint_paths(folder, pattern)
    if len(paths) < number:
        raise ValueError(
            f"{folder} has {len(paths)} checkpoints of this kind and {number} are wanted; "
            "train longer, or with --keep-last-epochs"
        )
    return paths[:number]


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_rfa.average_checkpoints",
        description="Average the parameters of checkpoints of one run.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder of a run"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="where the average goes")
    newest = parser.add_mutually_exclusive_group()
    newest.add_argument(
        "--num-epoch-checkpoints", type=int, metavar="N", help="of a folder: the last N of whole epochs"
    )
    newest.add_argument(
        "--num-update-checkpoints", type=int, metavar="N", help="of a folder: the last N by updates"
    )
    options = parser.parse_args(arguments)
    number = options.num_epoch_checkpoints or options.num_update_checkpoints
    is_folder = os.path.isdir(options.inputs[0])
    if is_folder != (number is not None) or (is_folder and len(options.inputs) > 1):
        parser.error(
            "--inputs takes one folder with --num-epoch-checkpoints or --num-update-checkpoints, "
            "or checkpoints without either"
        )
    if number is not None and number < 1:
        parser.error(f"the number of checkpoints is {number}; use at least 1")
    return options


def main(arguments=None):
    options = parse_arguments(arguments)
    try:
        paths = options.inputs
        if options.num_epoch_checkpoints:
            paths = _newest(paths[0], EPOCH_CHECKPOINT, options.num_epoch_checkpoints)
        elif options.num_update_checkpoints:
            paths = _newest(paths[0], UPDATE_CHECKPOINT, options.num_update_checkpoints)
        torch_persistent_save(average_checkpoints(paths), options.output)
    except (OSError, ValueError) as error:
        sys.exit(f"average_checkpoints: {error}")
    print(f"{options.output} is the average of {', '.join(paths)}")


if __name__ == "__main__":
    main()
