"""One of several workers: trainings one after the other, and what each left in this worker.

torchrun starts it with a JSON file: a list of lists of fairseq-train's flags. It writes a list of what
`watched_training` returns to the file FILE.RANK.
"""

import hashlib
import json
import os
import sys
from unittest import mock

from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import call_main
from fairseq.trainer import Trainer
from fairseq_cli import train


class WatchedTrainer(Trainer):
    """Remembers the loss of each update and the batches that a worker made up because it had none left."""

    last = None

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.losses, self.dummy_batches, self.sizes = [], 0, []
        WatchedTrainer.last = self

    def train_step(self, samples, *arguments, **named):
        self.dummy_batches += sum(not sample for sample in samples)
        self.sizes += [list(sample["target"].shape) for sample in samples if sample]
        return super().train_step(samples, *arguments, **named)

    def _reduce_and_log_stats(self, logging_outputs, sample_size, grad_norm=None):
        if grad_norm is not None:  # an update, and no validation
            losses = [float(output["loss"]) for output in logging_outputs]
            self.losses.append(sum(losses) / float(sample_size))
        return super()._reduce_and_log_stats(logging_outputs, sample_size, grad_norm)


def watched_training(arguments):
    """fairseq-train with these arguments: digest of the parameters, loss of each update, number of batches
    made up, shapes of the others."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # fairseq's memory of an earlier run
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    with mock.patch.object(train, "Trainer", WatchedTrainer):
        call_main(convert_namespace_to_omegaconf(args), train.main)
    trainer = WatchedTrainer.last
    digest = hashlib.sha256()
    for name, parameter in sorted(trainer.get_model().named_parameters()):
        digest.update(name.encode() + parameter.detach().float().numpy().tobytes())
    return {
        "parameters": digest.hexdigest(),
        "losses": trainer.losses,
        "dummy_batches": trainer.dummy_batches,
        "sizes": trainer.sizes,
    }


if __name__ == "__main__":
    file = sys.argv[1]
    with open(file, encoding="utf-8") as stream:
        found = [watched_training(arguments) for arguments in json.load(stream)]
    with open(f"{file}.{os.environ['RANK']}", "w", encoding="utf-8") as stream:
        json.dump(found, stream)
