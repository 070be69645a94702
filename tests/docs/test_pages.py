"""The documentation: what is generated in it is up to date, and what it links to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "extending.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
]
METRICS = ROOT / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics:begin -->", "<!-- metrics:end -->"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()\s]*\))?)\)|(?:src|href)=\"([^\"]+)\"")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """Return what a page links to on this machine."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    found = [one or other for one, other in _LINK.findall(text)]
    return [link for link in found if not re.match(r"[a-z][a-z0-9+.-]*:|//", link)]


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_exists(page: Path) -> None:
    """Every relative link: the file, and the heading in it."""
    missing = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(link)

    assert missing == []


def test_links_are_found() -> None:
    """So that the test above means something: the README links to pages here."""
    assert "docs/spans.md" in links(ROOT / "README.md")
    assert "the-turn" in anchors(ROOT / "docs" / "spans.md")


def test_the_tables_of_metrics_are_up_to_date() -> None:
    """They are what ``scripts/metrics_tables.py`` writes."""
    command = [sys.executable, str(ROOT / "scripts" / "metrics_tables.py"), "--check"]

    assert subprocess.run(command, timeout=240, check=False).returncode == 0


def test_every_metric_has_its_paragraph() -> None:
    """The page explains each metric's scores and their limits, outside the tables."""
    text = METRICS.read_text(encoding="utf-8")
    prose = text.split(BEGIN)[0] + text.split(END)[1]
    names = re.findall(r"^\| `([^`]+)`", text.split(BEGIN)[1].split(END)[0], re.MULTILINE)

    families = {re.split(r"[.@]", name)[0] for name in names}
    assert len(families) > 10
    assert {name for name in families if f"`{name}" not in prose} == set()


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    """What users import: of the package, the frameworks, the judges and the tools for tests."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: rageval_hooks\.(?:[\w.]+\.)?(\w+)$", text, re.MULTILINE))
    packages = ("", ".judges", ".testing", ".integrations.langchain", ".integrations.llama_index")
    public = {name for package in packages for name in import_module(f"rageval_hooks{package}").__all__}
    errors = set(vars(import_module("rageval_hooks.errors")))  # the page shows the whole module

    assert sorted(public - shown - errors - {"__version__"}) == []


def test_the_page_about_agreement_is_up_to_date() -> None:
    """It has the figures that ``benchmarks/agreement_page.py`` writes."""
    command = [sys.executable, str(ROOT / "benchmarks" / "agreement_page.py"), "--check"]

    assert subprocess.run(command, timeout=240, check=False).returncode == 0
