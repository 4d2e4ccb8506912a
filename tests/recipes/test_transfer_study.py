import csv
import json
import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recipe_data import FLAGS, flag_values, make_data
from scripts import PATIENCE, epoch_and_wait, refused, start, succeed, times, wait_until
from transfer import curves as transfer_curves
from transfer import plot as transfer_plot
from transfer import report as transfer_report
from transfer.plot import pyplot

RUNS = ["softmax", "softmax_source", "rfa_from_softmax"]
SCRIPT = "recipes/transfer-study.sh"
# Whatever the model translates at its start, it ends soon.
PLACE = FLAGS.index("--log-interval")
SMALL = [*FLAGS[:PLACE], *FLAGS[PLACE + 2 :], "--max-target-positions", "20"]
OPTIONS = {
    "--preset": "small",
    "--jobs": 1,
    "--beam": 1,
    "--update-tokens": 400,
    "--source-updates": 40,
    "--arm-updates": 40,
    "--arm-lr": 0.01,
    "--arm-warmup": 4,
    "--log-interval": 2,
    "--smooth": 4,
    "--arm": "rfa_from_softmax",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("with spaces") / "the data", joined=True)


def arguments(data, out, **more):
    options = {**OPTIONS, **{f"--{name.replace('_', '-')}": value for name, value in more.items()}}
    words = [word for pair in options.items() if pair[1] is not None for word in pair]
    return [str(word) for word in ("--data", data, "--out", out, *words, "--", *SMALL)]


@pytest.fixture(scope="module")
def study(data, tmp_path_factory):
    """The smallest study, stopped within its last training and started again."""
    out = tmp_path_factory.mktemp("runs") / "the study"
    arm = out / "rfa_from_softmax"
    process = start(SCRIPT, *arguments(data, out), first=epoch_and_wait(tmp_path_factory.mktemp("commands"), arm.name))
    wait_until((arm / "checkpoint_last.pt").exists, process)
    process.terminate()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert not (arm / "trained").exists()
    folders = [out / "softmax", out / "softmax_source", arm / "start"]
    before = [times(folder) for folder in folders]
    second = succeed(SCRIPT, *arguments(data, out)).stdout
    assert [times(folder) for folder in folders] == before
    return out, printed, second


def read_csv(out):
    with open(out / "transfer_study.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def read_report(out):
    return json.loads((out / "transfer_study.json").read_text(encoding="utf-8"))


def test_a_stopped_study_continues(study):
    out, first, second = study
    assert "Loaded checkpoint" in (out / "rfa_from_softmax/train.log").read_text(encoding="utf-8")
    assert first.splitlines()[::2] == [f"run {number} of 3: {name} …" for number, name in enumerate(RUNS, 1)]
    assert [line.partition(" was complete")[1] != "" for line in second.splitlines()] == [True, True, False, False]
    assert second.splitlines()[3].startswith("run 3 of 3: rfa_from_softmax: before training validation perplexity ")


def test_a_finished_study_repeats_nothing(data, study):
    out = study[0]
    before = {name: times(out / name) for name in RUNS}
    assert succeed(SCRIPT, *arguments(data, out)).stdout.count("was complete") == 3
    assert {name: times(out / name) for name in RUNS} == before
    assert "arm-updates=41" in refused(SCRIPT, *arguments(data, out, arm_updates=41))


def test_table_curves_and_figure_agree(study):
    out = study[0]
    rows = [row for row in read_csv(out) if row["arm"] == "rfa_from_softmax"]
    steps = [int(row["step"]) for row in rows if row["loss"]]
    assert steps == list(range(2, 41, 2))  # each once, although some were trained twice
    losses = {int(row["step"]): float(row["loss"]) for row in rows if row["loss"]}
    smoothed = {int(row["step"]): float(row["smoothed_loss"]) for row in rows if row["smoothed_loss"]}
    assert smoothed == {step: pytest.approx((losses[step] + losses[step - 2]) / 2, abs=1e-3) for step in steps[1:]}

    report = read_report(out)
    arm, source = report["arms"]["rfa_from_softmax"], report["sources"]["softmax"]
    wanted = source["training_loss"]
    reaching = [step for step, loss in smoothed.items() if loss <= wanted]
    assert arm["reached"] == {"softmax": min(reaching, default=None), "rfa": None}
    assert arm["least_smoothed_loss"] == min(smoothed.values())
    validated = [row for row in rows if row["validation_loss"] and row["step"] != "0"]
    best = min(validated, key=lambda row: float(row["validation_loss"]))
    assert arm["perplexity"] == pytest.approx(2 ** float(best["validation_nll_loss"]), abs=0.01)
    start = next(row for row in rows if row["step"] == "0")
    assert arm["start_perplexity"] == pytest.approx(2 ** float(start["validation_nll_loss"]), abs=0.01)

    score = json.loads((out / "rfa_from_softmax/valid/score.json").read_text(encoding="utf-8"))
    assert (score["subset"], score["beam"], score["sentences"], arm["bleu"]) == ("valid", 1, 10, score["score"])
    cell = min(reaching) if reaching else f"not reached ({arm['least_smoothed_loss']:.3f})"
    table = (out / "transfer_study.md").read_text(encoding="utf-8")
    assert f"| `rfa_from_softmax` | {arm['perplexity']:.2f} | {arm['bleu']:.2f} | {cell} |  |" in table
    assert f"step at softmax's loss ({wanted:.3f})" in table
    assert f"| softmax | RFA, sigma at its start | {arm['start_perplexity']:.2f} | {arm['start_bleu']:.2f} |" in table

    figure, axes = pyplot.subplots()
    transfer_plot.draw_model(axes, "rfa", report, transfer_report.report(out, 4)[1])
    lines = {line.get_gid(): line for line in axes.get_lines()}
    pyplot.close(figure)
    drawn = lines["rfa_from_softmax"]
    assert dict(zip(drawn.get_xdata(), drawn.get_ydata())) == smoothed
    assert list(lines["softmax"].get_ydata()) == [wanted, wanted] and lines["softmax"].get_linestyle() == "--"
    if reaching:
        mark = lines["rfa_from_softmax reaches softmax"]
        assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([cell], [smoothed[cell]])
    assert (out / "transfer_study.png").read_bytes().startswith(b"\x89PNG")


def test_the_source_does_not_change_while_its_loss_is_measured(study):
    """Its validation loss is that of the checkpoint which it was given."""
    out = study[0]
    found = transfer_curves.read_curves(out / "softmax_source/train.log")
    assert len(found.epochs) == len(found.validation) == 1
    assert found.best == transfer_curves.read_curves(out / "softmax/train.log").best


def test_tensorboard_reads_the_same_losses(study):
    out = study[0]
    events = EventAccumulator(str(out / "tensorboard/rfa_from_softmax/train_inner")).Reload()
    written = {event.step: event.value for event in events.Scalars("loss")}
    rows = [row for row in read_csv(out) if row["arm"] == "rfa_from_softmax" and row["loss"]]
    losses = {int(row["step"]): float(row["loss"]) for row in rows}
    assert written == {step: pytest.approx(loss, abs=1e-3) for step, loss in losses.items()}


def commands(output):
    """The printed commands by the row that they belong to."""
    rows = {}
    for line in output.replace("\\\n", " ").splitlines():
        if line.startswith("# "):
            place = rows.setdefault(line[2:], [])
        else:
            place.append(line.split())
    return rows


def test_all_arms_see_the_same_data_and_learning_rate(data, tmp_path):
    out = tmp_path / "out"
    more = ["--rfa-causal-dim", "32"]
    both = ["--dry-run", "--imitate", "unit-length", "--imitate", "softmax"]
    rows = commands(succeed(SCRIPT, *both, *arguments(data, out, arm=None), *more).stdout)
    assert not out.exists()
    assert list(rows) == [
        *("softmax", "rfa", "softmax_source", "rfa_source", "softmax_scratch", "rfa_scratch", "softmax_continued"),
        *("rfa_from_softmax", "rfa_from_softmax_fitted", "rfa_from_softmax_reset"),
        *("rfa_unnormalized_from_softmax", "rfa_unnormalized_from_softmax_reset"),
        *("softmax_from_rfa", "softmax_from_rfa_reset"),
    ]
    own = {"--save-dir", "--tensorboard-logdir", "--finetune-from-model"}
    own |= {"--causal-attention", "--cross-attention"}
    trainings = {}
    for name, printed in rows.items():
        training = [words for words in printed if words[0] == "fairseq-train"]
        assert len(training) == 1
        trainings[name] = flag_values(" ".join(training[0]))
    kinds = ("_from_", "_scratch", "_continued")
    arms = {name: flags for name, flags in trainings.items() if any(kind in name for kind in kinds)}
    same = [
        {flag: value for flag, value in flags.items() if flag not in own and not flag.startswith("--rfa-")}
        for flags in arms.values()
    ]
    assert len(arms) == 10 and all(flags == same[0] for flags in same)
    assert (same[0]["--lr"], same[0]["--warmup-updates"], same[0]["--max-update"]) == ("0.01", "4", "40")
    for name, flags in trainings.items():
        is_rfa = name.startswith("rfa")
        assert ("--rfa-causal-dim" in flags) == is_rfa and ("--causal-attention" in flags) != is_rfa
        assert ("--rfa-unnormalized" in flags) == name.startswith("rfa_unnormalized")
        starts = "_from_" in name or name.endswith(("_source", "_continued"))
        assert ("--finetune-from-model" in flags) == starts
    for name, wanted in {
        "rfa_from_softmax": "none --imitate unit-length --rfa-num-matrices 20 --rfa-causal-dim 32",
        "rfa_from_softmax_fitted": "none --imitate unit-length --rfa-num-matrices 20 --rfa-causal-dim 32 --fit-data",
        "rfa_from_softmax_reset": "projections --imitate unit-length --rfa-num-matrices 20 --rfa-causal-dim 32",
        "rfa_unnormalized_from_softmax": "none --imitate softmax --rfa-num-matrices 20 --rfa-causal-dim 32",
        "softmax_from_rfa": "none",
        "softmax_from_rfa_reset": "projections",
    }.items():
        (conversion,) = [" ".join(words) for words in rows[name] if words[0] == "python" and words[1] == "-m"]
        assert f"--to {name.partition('_')[0]} --reset-attention {wanted} " in conversion
        assert ("--fit-data" in conversion) == (name == "rfa_from_softmax_fitted")
    assert trainings["rfa_source"]["--lr"] == "0" and trainings["rfa_source"]["--max-epoch"] == "1"
    sources = [trainings[name]["--finetune-from-model"] for name in ("softmax_continued", "softmax_source")]
    assert sources[0] == sources[1] and sources[0].endswith("/softmax/checkpoint_best.pt")
    assert not any("fairseq_rfa.transfer" in words for words in rows["softmax_continued"])


def test_the_control_needs_the_model_that_it_continues(data, tmp_path):
    given = arguments(data, tmp_path / "out", arm="softmax_continued")
    rows = commands(succeed(SCRIPT, "--dry-run", *given).stdout)
    assert list(rows) == ["softmax", "softmax_source", "softmax_continued"]


def test_given_checkpoints_are_not_trained(data, tmp_path):
    checkpoint = tmp_path / "a checkpoint.pt"
    checkpoint.touch()
    given = arguments(data, tmp_path / "out", softmax_checkpoint=checkpoint)
    rows = commands(succeed(SCRIPT, "--dry-run", "--zero-shot", *given).stdout)
    assert list(rows) == ["softmax_source", "rfa_from_softmax"]
    zero_shot = " ".join(rows["rfa_from_softmax"][-1])
    assert "fairseq_rfa.zero_shot" in zero_shot and f"--checkpoint '{checkpoint}'" in zero_shot


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"smooth": 5}, "--smooth 5 is no multiple of --log-interval 2"),
        ({"arm_updates": 2}, "--arm-updates 2 is less than --smooth 4"),
        ({"arm_lr": "fast"}, "--arm-lr 'fast' is not a number"),
        ({"arm": "all"}, "--arm 'all' is not one of softmax_scratch rfa_scratch"),
        ({"imitate": "cosine"}, "--imitate 'cosine' is not one of unit-length, softmax"),
        ({"preset": "large"}, "--preset 'large' is not one of small, multi30k, iwslt14"),
        ({"arch": "transformer_rfa_tiny_gate_arccos"}, "use --arch transformer_rfa_tiny with flags of RFA after --"),
        ({"softmax_checkpoint": "nowhere.pt"}, "file 'nowhere.pt' not found; --softmax-checkpoint must be"),
        ({"workers": "two"}, "--workers 'two' is not a whole number"),
    ],
)
def test_bad_options_are_refused(data, tmp_path, more, message):
    assert message in refused(SCRIPT, *arguments(data, tmp_path / "out", **more))
    assert not (tmp_path / "out").exists()


def test_help_and_flags_that_the_study_sets(data, tmp_path):
    assert "--out DIR" in succeed(SCRIPT, "--help").stdout
    assert "unknown option '--nonsense'" in refused(SCRIPT, "--nonsense")
    given = [*arguments(data, tmp_path / "out"), "--max-update", "3"]
    assert "flag '--max-update' after -- is set by this script" in refused(SCRIPT, *given)
