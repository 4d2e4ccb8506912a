"""What pip makes of the repository: a source distribution that holds all of it, and a wheel with the whole package."""

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import fairseq_rfa
from scripts import files_below
from tiny_data import ROOT

FOLDERS = ("data-prep", "fairseq_rfa", "recipes", "tests")
FILES = (".shellcheckrc", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "ruff.toml", "setup.py")
WITHOUT_NETWORK = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")


def succeed(*arguments, folder):
    result = subprocess.run([sys.executable, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy, because building leaves files behind, and takes those that an earlier one left."""
    copy = tmp_path_factory.mktemp("copy") / "repository"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, copy / file)
    return copy


@pytest.fixture(scope="module")
def source_distribution(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    copied = set(files_below(repository))
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    succeed("-c", build, folder, folder=repository)
    (archive,) = folder.iterdir()
    return archive, copied


@pytest.fixture(scope="module")
def wheel(source_distribution, tmp_path_factory):
    """Built from the source distribution, as pip does where it finds no wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    succeed("-m", "pip", "wheel", *WITHOUT_NETWORK, "--wheel-dir", folder, source_distribution[0], folder=folder)
    (file,) = folder.iterdir()
    with zipfile.ZipFile(file) as opened:
        yield opened


def test_a_source_distribution_holds_the_repository(source_distribution):
    archive, copied = source_distribution
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert copied <= held


def test_a_wheel_holds_the_package_and_nothing_else(wheel, repository):
    package = {f"fairseq_rfa/{name}" for name in files_below(repository / "fairseq_rfa")}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == package


def test_a_wheel_says_what_it_is(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(wheel.read(name))
    assert (metadata["Name"], metadata["Version"]) == ("fairseq-rfa", fairseq_rfa.__version__)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True).decode() == (ROOT / "README.md").read_text(encoding="utf-8")
