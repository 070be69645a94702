"""Metrics from a third-party package, by entry point and by where they are: local ones, and ones that ask a judge."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.warm import run_command, run_warm_script

ENTRY_POINTS = """\
[rageval_hooks.metrics]
shouting = their_metrics:Shouting
words = their_metrics:words
broken = their_metrics:not_there
"""

MODULE = '''
from pydantic import BaseModel

from rageval_hooks import Metric, ScoreDefinition, metric


@metric(requires="response", high=None, unit="words", direction="lower", version="4")
def words(turn):
    """Words of the response."""
    return len(turn.response.split())


class Tone(BaseModel):
    polite: bool


@metric(requires=["query", "response"])
async def politeness(turn, judge):
    """Whether the response is polite."""
    judgement = await judge.complete([("user", turn.response)], Tone)
    return judgement.value.polite


class Shouting(Metric):
    """Share of capital letters."""

    name = "shouting"
    scores = (ScoreDefinition(name="shouting", description="share of capitals", direction="lower"),)
    requires = ("response",)
    family = "tone"
    source = "theirs"

    def evaluate(self, analysis):
        letters = [letter for letter in analysis.turn.response if letter.isalpha()]
        return self.score(sum(map(str.isupper, letters)) / len(letters))


class Polite(Metric):
    """Asks the judge about a turn as the built-in ones do."""

    name = "polite"
    scores = (ScoreDefinition(name="polite", description="1 if the response is polite"),)
    requires = ("query", "response")
    family = "tone"
    calls = "1"

    async def evaluate(self, case):
        judgement = await case.ask("Task: is the answer polite?", Tone, about_response=True)
        return self.judged(float(judgement.value.polite), judgement)
'''

EVALUATE = """
import json, sys
from rageval_hooks import Turn, evaluate
from rageval_hooks.testing import FakeJudge

names = sys.argv[1].split(",")
asking = [name for name in names if "olite" in name]
judge = FakeJudge(lambda call: {"polite": True}) if asking else None
turn = Turn(query="Why?", response="BECAUSE it is so")
found = evaluate(turn, metrics=names, judge=judge, models="lexical").results
print(json.dumps([result.model_dump(mode="json") for result in found]))
"""

Listing = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed, as pip installs a wheel."""
    folder = tmp_path_factory.mktemp("their-metrics")
    information = "their_metrics-1.2.3.dist-info"
    files = {
        "their_metrics/__init__.py": MODULE,
        f"{information}/METADATA": "Metadata-Version: 2.1\nName: their-metrics\nVersion: 1.2.3\n",
        f"{information}/entry_points.txt": ENTRY_POINTS,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def evaluated(package: Path, *names: str) -> dict[str, dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(package)}
    results = json.loads(run_warm_script(EVALUATE, ",".join(names), environment=environment).stdout)
    return {result["name"]: result for result in results}


@pytest.fixture
def listing(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Listing:
    """Runs ``rageval-hooks metrics`` where the package is installed."""
    monkeypatch.setenv("PYTHONPATH", str(package))

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return run_command("metrics", *arguments, status=status, folder=tmp_path)

    return run


def test_they_run_like_the_built_in_ones(package: Path) -> None:
    """By the name that their package publishes, or by their module and name, together with built-in metrics."""
    found = evaluated(package, "shouting", "words", "their_metrics:politeness", "their_metrics:Polite", "tokens")

    assert found["shouting"]["value"] == pytest.approx(7 / 13)
    assert (found["words"]["value"], found["words"]["version"]) == (4.0, "4")
    assert found["politeness"]["value"] == 1.0
    assert (found["polite"]["value"], found["polite"]["model"]) == (1.0, "fake")
    assert found["tokens"]["status"] == "scored"


def test_they_are_listed(listing: Listing) -> None:
    """The list has their definitions. A metric that cannot be imported is listed separately, with the reason."""
    done = listing("--json")
    found = {item["name"]: item for item in json.loads(done.stdout)}

    assert {"trace", "umbrela", "shouting", "words"} <= set(found)
    assert (found["shouting"]["family"], found["shouting"]["source"]) == ("tone", "theirs")
    assert found["words"]["scores"][0]["direction"] == "lower"
    assert "skipped: metric 'broken'" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_that_is_not_published_is_listed_by_where_it_is(listing: Listing, tmp_path: Path) -> None:
    """Also from a module in the current folder."""
    (tmp_path / "mine.py").write_text("from their_metrics import Polite as Mine\n")
    table = listing("mine:Mine", "their_metrics:politeness").stdout.splitlines()

    assert [line.split()[0] for line in table] == ["score", "polite", "politeness"]
    assert "1 if the response is polite" in table[1]
