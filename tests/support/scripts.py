"""Run the project's scripts as a user would, and look at what they left behind."""

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600
"""Seconds after which a program hangs, on however busy a machine."""


def environment(first=None, **variables):
    """Commands of this Python come first on the PATH, after those in the folder `first`."""
    folders = [str(first)] if first else []
    folders += [os.path.dirname(sys.executable), os.environ["PATH"]]
    # Proxies would stand between the scripts and the tests' own server.
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "OMP_NUM_THREADS": "1", "PATH": os.pathsep.join(folders), **variables}


def run_script(script, *arguments, first=None, **options):
    return subprocess.run(
        ["bash", str(ROOT / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(first),
        **options,
    )


def succeed(script, *arguments, **options):
    result = run_script(script, *arguments, **options)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result


def refused(script, *arguments, **options):
    """The one line of a refusal."""
    result = run_script(script, *arguments, **options)
    assert result.returncode != 0
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


def run_helper(folder, module, *arguments):
    """A Python helper of recipes or data-prep, as their scripts run it; warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-P", "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=str(ROOT / folder / "lib")),
    )


def refused_by(main, capsys, *arguments):
    """The one line of a refusal of a program that is called in this process."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    text = stop.value.code if isinstance(stop.value.code, str) else capsys.readouterr().err
    assert stop.value.code and len(text.strip().splitlines()) == 1, text
    return text


def _heed_signals():
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def start(script, *arguments, first=None, **options):
    """A script in the background; signals reach it even where they are ignored here, as under nohup."""
    return subprocess.Popen(
        ["bash", str(ROOT / script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(first),
        preexec_fn=_heed_signals,
        **options,
    )


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def epoch_and_wait(folder, run):
    """A fairseq-train that trains one epoch of the run of that name and then waits until it is ended; it is the real
    one for other runs."""
    real = Path(sys.executable).with_name("fairseq-train")
    write_executable(
        folder / "fairseq-train",
        f"""#!/bin/bash
[[ " $* " != *"/{run} "* ]] || {{ '{real}' "$@" --max-epoch 1 && sleep {PATIENCE}; exit 1; }}
exec '{real}' "$@"
""",
    )
    return folder


@contextmanager
def locked(folder):
    """A folder in which no run is at work, once all processes of the last one have ended, nor can begin."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def programs_with(text):
    """Running programs that were called with a text."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(text).encode() in file.read_bytes():
                found.append(file.parent.name)
        except OSError:
            pass
    return found


def spoil(file, text):
    """Write another text into a file, or remove it if there is none."""
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")


def files_below(folder):
    return {str(f.relative_to(folder)): f for f in Path(folder).rglob("*") if f.is_file()}


def checksums(folder):
    return {n: hashlib.sha256(f.read_bytes()).hexdigest() for n, f in files_below(folder).items()}


def times(folder):
    return {name: file.stat().st_mtime_ns for name, file in files_below(folder).items()}


def write_executable(file, text):
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
