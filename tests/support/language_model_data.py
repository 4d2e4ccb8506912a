"""A made-up text, language models of its vocabulary, and fairseq's commands for them in this process."""

import random
from functools import lru_cache
from pathlib import Path

import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm, preprocess, train

from tiny_data import EVERY_SENTENCE, PLUGIN, generate_here

LINES = {"train": 60, "valid": 9, "test": 11}
LETTERS = "abcdefgh"
NEXT_LETTERS = {letter: [LETTERS[(place + step) % 8] for step in (1, 3, 4)] for place, letter in enumerate(LETTERS)}
SMALL_LM = tuple("--decoder-layers 2 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32".split())
FEW_MATRICES = ("--rfa-num-matrices", "20")
SEGMENT = 16
TEXT = ("--task", "language_modeling", "--tokens-per-sample", str(SEGMENT))
TRAINING_LM = EVERY_SENTENCE + tuple(
    "--batch-size 4 --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 5 --cpu --seed 7 "
    "--num-workers 0 --no-progress-bar --log-format simple --no-epoch-checkpoints".split()
)


def make_text(folder):
    """Lines in which each letter has three possible successors, made binary by fairseq-preprocess; its folder."""
    dice = random.Random(1)
    for split, number in LINES.items():
        lines = []
        for _ in range(number):
            letters = [dice.choice(LETTERS)]
            for _ in range(dice.randrange(9)):
                letters.append(dice.choice(NEXT_LETTERS[letters[-1]]))
            lines.append(" ".join(letters) + "\n")
        (folder / split).write_text("".join(lines))
    arguments = ["--only-source", "--destdir", f"{folder}/binary"]
    for split in LINES:
        arguments += [f"--{split}pref", f"{folder}/{split}"]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return folder / "binary"


def parse_lm(text, *flags, architecture="transformer_lm_rfa_tiny"):
    """The options as fairseq-train sees them."""
    arguments = [str(text), "--user-dir", str(PLUGIN), "--arch", architecture, *TEXT, *flags]
    return options.parse_args_and_arch(options.get_training_parser(), arguments)


@lru_cache(maxsize=None)
def task_of_text(text):
    return tasks.setup_task(convert_namespace_to_omegaconf(parse_lm(text)).task)


def build_lm(text, *flags, architecture="transformer_lm_rfa_tiny", seed=1):
    """A model in evaluation, through the real parser and the real task; flags win over small sizes."""
    torch.manual_seed(seed)
    args = parse_lm(text, *_small(architecture), *flags, architecture=architecture)
    return task_of_text(text).build_model(convert_namespace_to_omegaconf(args).model).eval()


def train_lm_here(text, save_dir, *flags, architecture="transformer_lm_rfa_tiny"):
    """fairseq-train in this process; the last checkpoint."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # fairseq's memory of an earlier run
    flags = (*_small(architecture), *TRAINING_LM, "--save-dir", str(save_dir), *flags)
    train.main(convert_namespace_to_omegaconf(parse_lm(text, *flags, architecture=architecture)))
    return Path(save_dir) / "checkpoint_last.pt"


def random_tokens(task, rows=3, length=12, seed=3):
    """(rows, length) of letters, of which the first begins a line."""
    first = task.source_dictionary.nspecial
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(first, len(task.source_dictionary), (rows, length), generator=generator)
    tokens[:, 0] = task.source_dictionary.eos()
    return tokens


@torch.no_grad()
def step_by_step(model, tokens):
    """Outputs for each position, one at a time."""
    state = {}
    outputs = [model.decoder(tokens[:, : end + 1], incremental_state=state)[0] for end in range(tokens.size(1))]
    return torch.cat(outputs, dim=1)


def _small(architecture):
    return SMALL_LM + FEW_MATRICES if "rfa" in architecture else SMALL_LM + ("--decoder-attention-heads", "4")


def eval_lm_here(text, checkpoint, *flags):
    """fairseq-eval-lm in this process: loss in bits and perplexity."""
    arguments = [str(text), "--user-dir", str(PLUGIN), "--path", str(checkpoint), "--cpu", "--num-workers", "0"]
    arguments += ["--gen-subset", "test", "--no-progress-bar", "--tokens-per-sample", str(SEGMENT), *flags]
    args = options.parse_args_and_arch(options.get_eval_lm_parser(), arguments)
    return eval_lm.main(convert_namespace_to_omegaconf(args))


def continue_here(text, checkpoint, *flags):
    """fairseq-generate in this process: its output for the first letters of the lines of the test."""
    lines = "--task language_modeling --sample-break-mode eos --prefix-size 2 --max-len-b 12".split()
    return generate_here(text, checkpoint, *lines, *flags)


def load_lm(checkpoint, text, **overrides):
    """The model of a checkpoint, in evaluation."""
    overrides = {"data": str(text), **overrides}
    return checkpoint_utils.load_model_ensemble([str(checkpoint)], arg_overrides=overrides)[0][0].eval()
