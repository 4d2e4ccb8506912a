import json
import re
import shlex
import shutil
import sys
from importlib.util import find_spec

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

import fairseq_rfa  # noqa: F401 lets its checkpoints load
from recipe_data import FLAGS, SIZES, flag_values, make_data
from scripts import checksums, files_below, refused, run_script, succeed, times, write_executable

IWSLT14 = "recipes/iwslt14.sh"
TINY = ["--arch", "transformer_rfa_tiny", "--device", "cpu", "--update-tokens"]
SHORT = [*TINY, 200, "--max-epoch", 9]
SOFTMAX = ["--causal-attention", "softmax", "--cross-attention", "softmax"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("lower case") / "data", lowercase=True)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run of RFA from another folder with relative paths; what it printed is kept beside it."""
    folder = tmp_path_factory.mktemp("rfa")
    (folder / "data").symlink_to(data)
    arguments = ["--data", "data", "--out", "the run", *SHORT]
    arguments += ["--tensorboard", "board", "--", *FLAGS]
    result = succeed(IWSLT14, *arguments, cwd=folder)
    (folder / "printed").write_text(result.stdout, encoding="utf-8")
    return folder / "the run"


def stopping(name, tmp_path):
    """A folder of commands where this one stops at once."""
    folder = tmp_path / "commands"
    folder.mkdir()
    write_executable(folder / name, "#!/bin/bash\necho 'stopped here' >&2\nexit 3\n")
    return folder


@pytest.fixture
def no_training(tmp_path_factory):
    return stopping("fairseq-train", tmp_path_factory.mktemp("no training"))


def dry_run(data, *arguments, script=IWSLT14, **options):
    return succeed(script, "--data", data, "--out", "/nowhere/run", "--dry-run", *arguments, **options).stdout


def score_lines(text):
    return [line for line in text.splitlines() if line.startswith("SacreBLEU")]


def check_scores(data, run, printed, beams):
    import sacrebleu

    wanted = (data / "raw/test.en").read_text(encoding="utf-8").splitlines()
    bleu = sacrebleu.BLEU(lowercase=True)
    assert len(score_lines(printed)) == len(beams)
    for beam, line in zip(beams, score_lines(printed)):
        folder = run / f"test-beam-{beam}"
        report = json.loads((folder / "score.json").read_text(encoding="utf-8"))
        found = (folder / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
        score = round(bleu.corpus_score(found, [wanted]).score, 2)
        assert 0 < score == report["score"]
        assert (report["beam"], report["case"], report["checkpoints"]) == (beam, "lowercase", ["average.pt"])
        assert "|case:lc|" in report["signature"]
        assert f"SacreBLEU test BLEU|{bleu.get_signature().format()} = {score} " in line
        assert "lowercased" in line
        assert found == [text.lower() for text in found]
        assert sacrebleu.BLEU().corpus_score(found, [wanted]).score < score


def test_rfa_is_trained_averaged_decoded_and_scored(data, trained):
    printed = (trained.parent / "printed").read_text(encoding="utf-8")
    assert "# at most 200 tokens an update: 1 (workers) x 1 (steps) x 200 (tokens of a step)" in printed
    assert "averaging 9 checkpoints, because there are no 10" in printed
    check_scores(data, trained, printed, [5, 1])
    names = ("code", "preparation", "dict.de.txt", "dict.en.txt")
    assert all((trained / name).read_bytes() == (data / "binarized" / name).read_bytes() for name in names)


def epochs_kept(run):
    return sorted(int(file.stem.removeprefix("checkpoint")) for file in run.glob("checkpoint[0-9]*.pt"))


def test_the_average_is_the_mean_of_the_epochs(trained):
    assert epochs_kept(trained) == list(range(1, 10))
    files = [trained / f"checkpoint{epoch}.pt" for epoch in range(1, 10)]
    models = [load_checkpoint_to_cpu(str(file))["model"] for file in files]
    average = load_checkpoint_to_cpu(str(trained / "average.pt"))["model"]
    for key, value in average.items():
        mean = sum(model[key].double() for model in models) / len(models)
        assert torch.allclose(value.double(), mean, atol=1e-6)


def test_the_best_bleu_on_validation_data_is_kept(trained):
    log = (trained / "train.log").read_text(encoding="utf-8")
    scores = [float(score) for score in re.findall(r"on 'valid' subset \|.*?\| bleu (\S+)", log)]
    assert len(scores) == 9
    assert load_checkpoint_to_cpu(str(trained / "checkpoint_best.pt"))["extra_state"]["best"] == max(scores)


def test_tensorboard_files_are_where_they_were_wanted(trained):
    names = set(files_below(trained.parent / "board"))
    assert {name.split("/")[0] for name in names} == {"rfa", "train", "train_inner", "valid"}
    assert all("tfevents" in name for name in names)


def test_a_second_run_repeats_nothing(data, trained):
    before = times(trained)
    arguments = ["--data", data, "--out", trained, *SHORT, "--resume"]
    again = succeed(IWSLT14, *arguments, "--", *FLAGS).stdout
    assert times(trained) == before
    printed = (trained.parent / "printed").read_text(encoding="utf-8")
    assert score_lines(again) == score_lines(printed)


def test_softmax_on_two_workers_is_stopped_and_goes_on_with_one(data, tmp_path):
    stopped = stopping("fairseq-generate", tmp_path)
    out = tmp_path / "softmax"
    arguments = ["--data", data, "--out", out, *TINY, 1024]
    flags = ["--", *FLAGS, *SOFTMAX]
    result = run_script(IWSLT14, *arguments, "--workers", 2, "--max-update", 1, *flags, first=stopped)
    assert result.returncode != 0
    assert result.stderr.splitlines()[-1] == "score.sh: fairseq-generate stopped: stopped here"
    assert "2 (workers) x 1 (steps) x 512" in result.stdout
    assert "no checkpoint to average was kept; the scores are those of the best" in result.stdout
    assert "training on 2 devices" in (out / "train.log").read_text(encoding="utf-8")
    assert not list(out.glob("test*/score.json")) and not (out / "average.pt").exists()

    message = refused(IWSLT14, *arguments, "--max-epoch", 25, "--", *FLAGS)
    assert "made with other settings" in message and "causal-attention" in message

    longer = succeed(IWSLT14, *arguments, "--max-epoch", 25, "--resume", *flags).stdout
    log = (out / "train.log").read_text(encoding="utf-8")
    assert "(epoch 1 @ 1 updates)" in log.split("training on 1 devices")[1]
    assert "averaging the last 10 checkpoints" in longer
    last = int(re.findall(r"end of epoch (\d+)", log)[-1])
    assert epochs_kept(out) == list(range(last - 9, last + 1))
    check_scores(data, out, longer, [5, 1])


@pytest.mark.parametrize(
    ("arguments", "shares"),
    [
        (["--workers", 1], (1, 4096, 1)),
        (["--workers", 2], (2, 2048, 1)),
        (["--workers", 4], (4, 1024, 1)),
        (["--workers", 8], (8, 512, 1)),
        (["--workers", 2, "--max-tokens", 1024], (2, 1024, 2)),
        (["--workers", 3, "--update-tokens", 24576], (3, 4096, 2)),
        (["--max-tokens", 3000], (1, 2048, 2)),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_workers_and_steps_share_the_tokens_of_an_update(data, device, arguments, shares):
    output = dry_run(data, "--device", device, *arguments)
    flags = flag_values(output)
    names = ("--distributed-world-size", "--max-tokens", "--update-freq")
    workers, tokens, steps = (int(flags[name]) for name in names)
    assert (workers, tokens, steps) == shares
    total = workers * tokens * steps
    stated = f"{total} tokens an update: {workers} (workers) x {steps} (steps) x {tokens} (tokens"
    assert f"# at most {stated} of a step)" in output


def test_a_dry_run_prints_what_would_run(data, tmp_path):
    """The printed command gives fairseq-train the same arguments as the recipe does."""
    out = tmp_path / "a run"
    recorder = tmp_path / "commands"
    recorder.mkdir()
    text = f'#!/bin/bash\nprintf "%s\\n" "$@" >"{tmp_path}/recorded"\nexit 3\n'
    write_executable(recorder / "fairseq-train", text)
    arguments = ["--data", data, "--out", out, *TINY, 1024, "--", *FLAGS, *SOFTMAX]
    printed = succeed(IWSLT14, "--dry-run", *arguments).stdout
    assert not out.exists()
    assert run_script(IWSLT14, *arguments, first=recorder).returncode != 0
    recorded = (tmp_path / "recorded").read_text(encoding="utf-8").splitlines()
    commands = [shlex.split(line) for line in printed.replace("\\\n", " ").splitlines()]
    programs = {command[0]: command for command in commands if command[0] != "#"}
    assert programs["fairseq-train"][1:] == recorded
    assert f"{out}/average.pt" in programs["python"] + programs["fairseq-generate"]
    assert "--lowercase" in programs["sacrebleu"]
    assert len([command for command in commands if command[0] == "fairseq-generate"]) == 2


def test_flags_follow_device_and_precision(data):
    assert flag_values(dry_run(data)).keys().isdisjoint({"--cpu", "--tpu", "--fp16", "--bf16"})
    assert "--fp16" in flag_values(dry_run(data, "--precision", "fp16"))
    cpu = dry_run(data, "--device", "cpu", "--precision", "bf16", "--workers", 2)
    assert {"--cpu", "--bf16"} < flag_values(cpu).keys()
    assert "torchrun" in cpu and "--eval-bleu" in cpu
    tpu = flag_values(dry_run(data, "--device", "tpu", "--max-tokens", 1024))
    assert (tpu["--distributed-world-size"], tpu["--max-tokens"], tpu["--update-freq"]) == ("1", "1024", "4")
    assert {"--tpu", "--bf16", "--num-batch-buckets", "--patience"} < tpu.keys()
    assert "--eval-bleu" not in tpu and "--best-checkpoint-metric" not in tpu


def test_softmax_and_rfa_differ_in_nothing_else(data):
    rfa, softmax = dry_run(data), dry_run(data, "--", *SOFTMAX)
    assert {**flag_values(rfa), **dict(zip(SOFTMAX[::2], SOFTMAX[1::2]))} == flag_values(softmax)
    assert "--share-decoder-input-output-embed" in rfa and "--share-all-embeddings" not in rfa


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cuda"], "--device 'cuda' is not one of cpu, gpu, tpu"),
        (["--workers", "0"], "--workers '0' is not a whole number above 0"),
        (["--workers", "x"], "--workers 'x' is not a whole number above 0"),
        (["--workers", "3"], "--workers 3 cannot share the 4096 tokens of an update .*use one of 1 2 4 8$"),
        (["--workers", "16"], "in steps of 512 to 4096 tokens; use one of 1 2 4 8$"),
        (["--update-tokens", "4097", "--max-tokens", "512"], "none \\(change --update-tokens"),
        (["--precision", "fp64"], "--precision 'fp64' is not one of fp32, fp16, bf16"),
        (["--device", "cpu", "--precision", "fp16"], "fp16 on a CPU: .*use fp32 or bf16"),
        (["--device", "tpu", "--precision", "fp16"], "fp16 on a TPU: .*use bf16 or fp32"),
        (["--device", "tpu", "--workers", "2"], "--workers 2: .*with --device tpu use 1, gradients"),
        (["--max-epoch", "none"], "--max-epoch 'none' is not a whole number above 0"),
        (["--data", "/nowhere"], "--data '/nowhere' has no folder 'binarized'"),
        (["--", "--max-tokens", "9"], "flag '--max-tokens' after -- is set by this script"),
        (["--", "--update-freq=2"], "flag '--update-freq=2' after -- is set by this script"),
        (["--device", "cpu", "--resume"], "checkpoint_last.pt' not found; there is no training to resume"),
    ],
)
def test_bad_options_are_refused(data, no_training, tmp_path, arguments, message):
    arguments = ["--data", data, "--out", tmp_path / "run", *arguments]
    result = refused(IWSLT14, *arguments, first=no_training)
    assert re.search(message, result.strip())
    assert not (tmp_path / "run").exists()


def lacking(module, folder):
    """A python that does not find the module, first on the PATH."""
    text = f'#!/bin/bash\n[ "${{!#}}" != {module} ] || exit 1\nexec {sys.executable} "$@"\n'
    write_executable(folder / "python", text)
    return folder


def test_what_the_machine_lacks_is_refused(data, no_training, tmp_path):
    arguments = ["--data", data, "--out", tmp_path / "run", "--device"]
    if not torch.cuda.is_available():
        message = refused(IWSLT14, *arguments, "gpu", first=no_training)
        assert "--device gpu: torch finds no GPU; use --device cpu" in message
    if find_spec("torch_xla") is None:
        message = refused(IWSLT14, *arguments, "tpu", first=no_training)
        assert "'torch_xla' not found; --device tpu needs it" in message
    for module, more in (("tensorboard", ["--tensorboard", "board"]), ("sacremoses", [])):
        first = lacking(module, no_training)
        message = refused(IWSLT14, *arguments, "cpu", *more, first=first)
        assert f"'{module}' not found" in message and "pip install" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: (data / "raw/test.en").unlink(), "raw/test.en' not found"),
        (lambda data: (data / "binarized/valid.de-en.de.idx").unlink(), "does not hold 'valid'"),
        (lambda data: (data / "binarized/code").unlink(), "code' not found"),
        (
            lambda data: (data / "binarized/preparation").write_text("tokenizer=spacy\n"),
            "preparation' says 'tokenizer=spacy', which is not known here",
        ),
    ],
)
def test_faulty_data_are_refused_before_training(data, no_training, tmp_path, spoil, message):
    copy = shutil.copytree(data, tmp_path / "data")
    spoil(copy)
    before = checksums(tmp_path)
    arguments = ["--data", copy, "--out", tmp_path / "run", "--device", "cpu"]
    assert message in refused(IWSLT14, *arguments, first=no_training)
    assert checksums(tmp_path) == before


def test_data_without_a_preparation_are_moses_tokens_with_capitals(data, tmp_path):
    copy = shutil.copytree(data, tmp_path / "data")
    (copy / "binarized/preparation").unlink()
    printed = dry_run(copy, "--device", "cpu")
    words = " ".join(printed.replace("\\\n", " ").split())
    assert words.count("--tokenizer moses --bpe subword_nmt") == 2
    assert "--lowercase" not in printed
    assert len((copy / "raw/test.en").read_text(encoding="utf-8").splitlines()) == SIZES["test"]
