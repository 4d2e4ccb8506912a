"""The documents: what they link to and name is there, and the first of them stays short."""

import re
from importlib.util import find_spec

import pytest
from fairseq.models import ARCH_MODEL_INV_REGISTRY

from fairseq_rfa.functional.encoding import FEATURE_MAPS
from fairseq_rfa.model.config import RFA_OPTIONS
from tiny_data import ROOT

DOCUMENTS = (
    "README.md",
    "fairseq_rfa/README.md",
    "data-prep/README.md",
    "recipes/README.md",
    "recipes/RESULTS.md",
)
MOST_LINES = 220
"""Of README.md, which somebody in a hurry reads from end to end."""


def without_code(text):
    """The text without blocks of code, where a # begins a comment."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors that GitHub makes of the headings, in their order."""
    for heading in re.findall(r"^#+ (.*)$", without_code(text), flags=re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(document):
    """Relative links of a document that lead nowhere: no such file, or no such heading in it."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield link


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    assert not list(broken_links(ROOT / name))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_headings_of_a_document_differ(name):
    found = list(anchors((ROOT / name).read_text(encoding="utf-8")))
    assert len(found) == len(set(found))


@pytest.mark.parametrize("link", ["no.md", "../other.md", "other.md#no-heading", "#a-comment", "#no-heading"])
def test_a_broken_link_is_found(tmp_path, link):
    (tmp_path / "other.md").write_text("# Heading\n")
    document = tmp_path / "document.md"
    document.write_text(f"# The paper's `heading`: one\n```\n# a comment\n```\n[words]({link})\n")
    assert list(broken_links(document)) == [link]


@pytest.mark.parametrize("link", ["other.md", "other.md#heading", "#the-papers-heading-one", "https://example.org/no"])
def test_a_whole_link_is_not(tmp_path, link):
    (tmp_path / "other.md").write_text("# Heading\n")
    document = tmp_path / "document.md"
    document.write_text(f"# The paper's `heading`: one\n[words]({link})\n")
    assert not list(broken_links(document))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_named_scripts_and_programs_are_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    scripts = set(re.findall(r"\b(?:recipes|data-prep|tests)/[\w-]+\.sh\b", text))
    assert not [script for script in scripts if not (ROOT / script).is_file()]
    programs = set(re.findall(r"python -m (fairseq_rfa\.\w+)", text))
    assert not [program for program in programs if find_spec(program) is None]


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_all_options_architectures_and_maps_are_described():
    """Each in a table, where the first column says what the row is about."""
    text = (ROOT / "fairseq_rfa/README.md").read_text(encoding="utf-8")
    first_columns = set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| ([^|]+) \|", text, flags=re.MULTILINE))))
    flags = {"--" + option.name.replace("_", "-") for option in RFA_OPTIONS}
    assert not (flags | set(FEATURE_MAPS)) - first_columns
    assert not set(ARCH_MODEL_INV_REGISTRY["transformer_rfa"]) - set(re.findall(r"`([^`]+)`", text))
    sizes = {re.sub("(_gate)?(_arccos)?$", "", name) for name in ARCH_MODEL_INV_REGISTRY["transformer_lm_rfa"]}
    assert not sizes - first_columns
