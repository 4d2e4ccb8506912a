"""A made-up parallel corpus, models of its vocabulary, and fairseq's commands in this process or another."""

import os
import random
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from functools import lru_cache
from io import StringIO
from pathlib import Path
from unittest import mock

import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate, preprocess, train

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "fairseq_rfa"
SPLITS = {"train": 64, "valid": 8, "test": 8}
LETTERS = "abcdefgh"
SMALL = tuple(
    "--encoder-layers 1 --decoder-layers 2 --encoder-embed-dim 32 --decoder-embed-dim 32 "
    "--encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32 --rfa-num-matrices 20".split()
)
# By default fairseq leaves out the last batch where it is no multiple of 8 sentences.
EVERY_SENTENCE = ("--required-batch-size-multiple", "1")
TRAINING = EVERY_SENTENCE + tuple(
    "--max-tokens 64 --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 5 "
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --cpu --seed 7 --num-workers 0 "
    "--no-progress-bar --log-format simple --no-epoch-checkpoints".split()
)


def make_data(folder):
    """Letters and their capitals in reverse order, made binary by fairseq-preprocess; returns its folder."""
    dice = random.Random(1)
    for split, size in SPLITS.items():
        sentences = [dice.choices(LETTERS, k=1 + line % 9) for line in range(size)]
        for language, lines in (
            ("de", sentences),
            ("en", [[letter.upper() for letter in reversed(words)] for words in sentences]),
        ):
            text = "".join(" ".join(words) + "\n" for words in lines)
            (folder / f"{split}.{language}").write_text(text)
    arguments = ["--source-lang", "de", "--target-lang", "en", "--destdir", f"{folder}/binary"]
    for split in SPLITS:
        arguments += [f"--{split}pref", f"{folder}/{split}"]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    return folder / "binary"


def parse(data, *flags, architecture="transformer_rfa_tiny"):
    """The options as fairseq-train sees them."""
    arguments = [str(data), "--user-dir", str(PLUGIN), "--arch", architecture, *flags]
    return options.parse_args_and_arch(options.get_training_parser(), arguments)


@lru_cache(maxsize=None)
def task_of(data):
    return tasks.get_task("translation").setup_task(parse(data))


def build(data, *flags, architecture="transformer_rfa_tiny", seed=1):
    """A model in evaluation, through the real parser and the real task; flags win over small sizes."""
    torch.manual_seed(seed)
    small = SMALL if "rfa" in architecture else SMALL[:-2]
    args = parse(data, *small, *flags, architecture=architecture)
    return task_of(data).build_model(args).eval()


def make_batch(task, sources, targets=None, left_pad_source=True, padding=0):
    """Rows of words as fairseq's tensors, with `padding` more columns of it in the source."""
    dictionaries = task.source_dictionary, task.target_dictionary
    eos, pad = dictionaries[0].eos(), dictionaries[0].pad()

    def joined(rows, left, columns=0):
        width = max(map(len, rows)) + columns
        filled = [[pad] * (width - len(row)) for row in rows]
        return torch.tensor([f + r if left else r + f for f, r in zip(filled, rows)])

    source = [[dictionaries[0].index(word) for word in row.split()] + [eos] for row in sources]
    batch = {
        "src_tokens": joined(source, left_pad_source, padding),
        "src_lengths": torch.tensor([len(row) for row in source]),
    }
    if targets is not None:
        target = [[eos] + [dictionaries[1].index(word) for word in row.split()] for row in targets]
        batch["prev_output_tokens"] = joined(target, left=False)
    return batch


def train_here(data, save_dir, *flags, architecture="transformer_rfa_tiny"):
    """fairseq-train in this process: no start of an interpreter, no import of torch."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # fairseq's memory of an earlier run
    small = SMALL if "rfa" in architecture else SMALL[:-2]
    flags = (*small, *TRAINING, "--save-dir", str(save_dir), *flags)
    train.main(convert_namespace_to_omegaconf(parse(data, *flags, architecture=architecture)))
    return Path(save_dir) / "checkpoint_last.pt"


def generate_here(data, checkpoint, *flags):
    """fairseq-generate in this process: its output."""
    parser = options.get_generation_parser()
    arguments = [str(data), "--user-dir", str(PLUGIN), "--path", str(checkpoint), "--cpu"]
    arguments += ["--num-workers", "0"]
    args = options.parse_args_and_arch(parser, [*arguments, *EVERY_SENTENCE, *flags])
    output = StringIO()
    with redirect_stdout(output), mock.patch.object(sys, "stdout", output):
        generate.main(convert_namespace_to_omegaconf(args))
    return output.getvalue()


def results(output, kind="H"):
    """Lines such as «H-3<tab>score<tab>text» by their number; a list of fields for each line."""
    found = re.findall(rf"^{kind}-(\d+)\t(.*)$", output, flags=re.MULTILINE)
    return sorted((int(number), fields.split("\t")) for number, fields in found)


def command(name, *arguments, folder, **options):
    """A fairseq command in a process of its own, which knows the plugin only by --user-dir."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment.update(OMP_NUM_THREADS="1", **options.pop("environment", {}))
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or name
    return subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        **options,
    )
