"""One run of a script of data-prep/ at a time works in a folder, and nothing outlives it."""

import os
import re
import shutil
import signal

import pytest

import made_archives
from made_archives import iwslt_files, write_tar
from scripts import (
    PATIENCE,
    files_below,
    locked,
    programs_with,
    refused,
    run_script,
    start,
    wait_until,
    write_executable,
)

PAIRS = made_archives.sentence_pairs(60, seed=12)
SLEEPS = "#!/bin/bash\necho $$ >'{0}'/started.new\nmv '{0}'/started.new '{0}'/started\nsleep 300\n"


@pytest.fixture
def given(tmp_path):
    """What each script needs besides --out."""
    folder = tmp_path / "given"
    write_tar(folder / "de-en.tgz", iwslt_files(PAIRS[:50], [PAIRS[50 + 2 * n : 52 + 2 * n] for n in range(5)]))
    for split in ("train", "valid", "test"):
        for side, language in enumerate(("de", "en")):
            lines = "".join(pair[side] + "\n" for pair in PAIRS[:20])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    return {
        "data-prep/iwslt14-de-en.sh": ["--from", folder],
        "data-prep/wmt14.sh": ["--target", "de", "--from", folder],
        "data-prep/multi30k.sh": ["--from", folder],
        "data-prep/prepare.sh": ["--raw", folder, "--source", "de", "--target", "en"],
    }


SCRIPTS = ["data-prep/iwslt14-de-en.sh", "data-prep/wmt14.sh", "data-prep/multi30k.sh", "data-prep/prepare.sh"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_file_in_the_place_of_the_folder_is_refused(given, tmp_path, script):
    file = tmp_path / "out"
    file.write_text("mine\n")
    assert f"--out '{file}' is not a folder; use another --out" in refused(script, *given[script], "--out", file)
    below = refused(script, *given[script], "--out", file / "out")
    assert f"--out '{file}/out' cannot be made (Not a directory); use another --out" in below
    assert file.read_text() == "mine\n"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_folder_in_which_another_run_is_at_work_is_refused(given, tmp_path, script):
    out = tmp_path / "out"
    out.mkdir()
    with locked(out):
        assert f"is at work in '{out}'; wait for it or stop it" in refused(script, *given[script], "--out", out)
        assert not files_below(out)


@pytest.fixture
def sleeping(tmp_path):
    """A program that says that it was started and then sleeps; its name is the test's choice."""
    folder = tmp_path / "commands"
    folder.mkdir()

    def make(name):
        write_executable(folder / name, SLEEPS.format(tmp_path))
        return folder

    return make


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(
    ("script", "program"),
    [("data-prep/iwslt14-de-en.sh", "tar"), ("data-prep/multi30k.sh", "fairseq-preprocess")],
)
def test_two_runs_at_a_time_are_refused_and_nothing_outlives_the_first(
    given, tmp_path, sleeping, script, program, number
):
    commands = [*given[script], "--merges", 30, "--out", tmp_path / "out"]
    if script.endswith("multi30k.sh"):
        commands += ["--source", "de", "--target", "en"]
        for ours, name in (("valid", "val"), ("test", "test_2016_flickr"), ("test", "test_2017_flickr")):
            for language in ("de", "en"):
                shutil.copy(tmp_path / f"given/{ours}.{language}", tmp_path / f"given/{name}.{language}")
    run = start(script, *commands, first=sleeping(program))
    wait_until((tmp_path / "started").exists, run)
    assert programs_with(tmp_path)
    assert "is at work in" in refused(script, *commands)
    run.send_signal(number)
    printed, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 128 + number and errors == ""
    assert programs_with(tmp_path) == []


@pytest.mark.parametrize("session", [True, False])
def test_workers_end_with_the_script(tmp_path, session):
    """Whether the script leads its process group, as when it is started by hand, or not."""
    pairs = [(f"{german} {number}", f"{english} {number}") for number in range(300) for german, english in PAIRS[:50]]
    write_tar(tmp_path / "de-en.tgz", iwslt_files(pairs, [PAIRS[50 + 2 * n : 52 + 2 * n] for n in range(5)]))
    arguments = ["--from", tmp_path, "--out", tmp_path / "out", "--jobs", 2]
    run = start("data-prep/iwslt14-de-en.sh", *arguments, start_new_session=session)
    # Two workers, and the program that started them.
    wait_until(lambda: len(programs_with(tmp_path / "out/raw.partial")) == 3, run)
    run.terminate()
    _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 128 + signal.SIGTERM and errors == ""
    assert programs_with(tmp_path) == []


def test_what_a_killed_run_has_left_keeps_others_away(given, tmp_path, sleeping):
    script = "data-prep/iwslt14-de-en.sh"
    arguments = [*given[script], "--out", tmp_path / "out"]
    run = start(script, *arguments, first=sleeping("tar"))
    wait_until((tmp_path / "started").exists, run)
    run.kill()
    run.wait()
    try:
        assert "a process that it left, is at work in" in refused(script, *arguments)
    finally:
        for program in programs_with(tmp_path):
            os.kill(int(program), signal.SIGKILL)


SUM = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "line",
    [
        f"{SUM}  de-en.tgz\n",
        f"{SUM} *archives of IWSLT/de-en.tgz",
        f"{SUM.upper()}  de-en.tgz\n",
        f"{SUM}  de-en.tgz\r\n",
        f"\ufeff{SUM.upper()} *C:\\data\\de-en.tgz\r\n",
        f"SHA256 (de-en.tgz) = {SUM}\n",
        f"SHA256 (/data (old)/de-en.tgz) = {SUM.upper()}\r\n",
        f"SHA2-256(de-en.tgz)= {SUM}\n",
    ],
)
def test_checksums_are_read_in_all_usual_forms(given, tmp_path, line):
    (tmp_path / "list").write_bytes(f"# a list\n{'1' * 64}  other.tgz\n{line}".encode())
    arguments = [*given["data-prep/iwslt14-de-en.sh"], "--out", tmp_path / "out", "--checksums", tmp_path / "list"]
    message = refused("data-prep/iwslt14-de-en.sh", *arguments)
    assert re.search(rf"has the sha256 [0-9a-f]{{64}}, not {SUM} as '.*/list' says", message)


def test_a_checksum_of_another_kind_is_refused(given, tmp_path):
    (tmp_path / "list").write_text(f"{'a' * 32}  de-en.tgz\n")
    arguments = [*given["data-prep/iwslt14-de-en.sh"], "--out", tmp_path / "out", "--checksums", tmp_path / "list"]
    assert f"has '{'a' * 32}' for de-en.tgz, which is no sha256" in refused("data-prep/iwslt14-de-en.sh", *arguments)


def test_a_script_ends_with_the_status_of_its_work(given, tmp_path):
    assert run_script("data-prep/prepare.sh", "--help").returncode == 0
    assert run_script("data-prep/prepare.sh").returncode == 1
