"""``rageval-hooks models``: what is configured, and how fast it is here."""

from __future__ import annotations

import json
import sys
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


def test_without_a_name_the_bench_measures_the_configured_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lexical stand-in is no model, and a model that is not here has its reason. A slow case ends early."""
    monkeypatch.setattr(sys.modules["rageval_hooks.cli.models"], "_SECONDS", 0.0)
    monkeypatch.setenv("RAGEVAL_MODELS__EMBEDDER", str(tiny_models.build_encoder(tmp_path / "model")))
    monkeypatch.setenv("RAGEVAL_MODELS__CROSS_ENCODER", "example/none")
    monkeypatch.setenv("RAGEVAL_MODELS__NLP", "lexical")
    options = ("--passages", "1", "--words", "30", "--answers", "50", "--json")

    found = {result["role"]: result for result in json.loads(run("bench", *options).stdout)}

    assert set(found) == {"embedder", "cross_encoder", "hhem"}
    assert [(row["metric"], row["answers"]) for row in found["embedder"]["rows"]] == [("groundedness", 3)]
    assert found["cross_encoder"]["problem"].startswith("example/none is not on this machine")


def test_a_model_that_makes_no_score_has_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time would say nothing."""
    folder = tiny_models.build_grounding(tmp_path / "model", "BertForTokenClassification")
    tiny_models.add_graph(folder, "tokens")
    monkeypatch.setattr(sys.modules["rageval_hooks.cli.models"], "_ANSWER_WORDS", 0)

    assert "grounding: " in run("bench", str(folder), "--passages", "1", "--words", "30", status=2).stderr
