"""``rageval-hooks models``: what is configured, and how fast it is here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rageval_hooks.cli import app
from tests import tiny_models


def run(*arguments: str, status: int = 0) -> Result:
    done = CliRunner().invoke(app, ["models", *arguments])
    assert done.exit_code == status, done.output
    return done


def test_the_list_has_every_role_and_who_uses_it() -> None:
    """Whether the model is on this machine, and which metrics need it."""
    found = {row["role"]: row for row in json.loads(run("list", "--json").stdout)}

    assert set(found) == {"embedder", "cross_encoder", "nlp", "hhem", "grounding"}
    assert "groundedness" in found["embedder"]["metrics"]
    assert (found["grounding"]["name"], found["grounding"]["here"], found["grounding"]["metrics"]) == (
        "minilm",
        None,
        [],
    )


def test_with_a_grounding_model_groundedness_needs_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment configures it as everywhere; a folder is on this machine."""
    monkeypatch.setenv("RAGEVAL_MODELS__GROUNDING", str(tmp_path))

    [row] = [line for line in run("list").stdout.splitlines() if line.startswith("grounding ")]

    assert row.split() == ["grounding", str(tmp_path), "yes", "groundedness,", "verdict"]


def test_the_bench_measures_answers_by_size(tmp_path: Path) -> None:
    """For each number of passages the median, the 95th percentile and the tokens per second."""
    folder = tiny_models.build_grounding(tmp_path / "model", "BertForTokenClassification")
    tiny_models.add_graph(folder, "tokens")
    options = ("--passages", "1,2", "--words", "30", "--answers", "3", "--json")

    [result] = json.loads(run("bench", str(folder), *options).stdout)

    assert (result["model"], result["problem"]) == (str(folder), "")
    assert [(row["passages"], row["words"], row["answers"]) for row in result["rows"]] == [(1, 30, 3), (2, 30, 3)]
    assert all(0 < row["p50_ms"] <= row["p95_ms"] and row["tokens_per_second"] > 0 for row in result["rows"])

    head, *lines = run("bench", str(folder), *options[:-1]).stdout.splitlines()
    assert head.split() == "role model metric passages words each answers p50 ms p95 ms tokens/s".split()
    assert [line.split()[:6] for line in lines] == [
        ["grounding", str(folder), "groundedness", count, "30", "3"] for count in ("1", "2")
    ]


def test_the_bench_downloads_nothing() -> None:
    """It names the model that is not on this machine, says how to get it, and ends with status 2."""
    done = run("bench", "example/none", status=2)

    assert "grounding: example/none is not on this machine and may not be downloaded" in done.stderr
    assert "hf download example/none" in done.stderr


@pytest.mark.parametrize("given", ["0", "a", "1,-2", ""])
def test_sizes_are_whole_numbers(given: str) -> None:
    """The message names the option."""
    done = CliRunner().invoke(app, ["models", "bench", "--passages", given])

    assert "--passages is" in str(done.exception)
