"""``rageval-hooks metrics``: the list."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from rageval_hooks.metrics.base import REGISTRY
from tests.cli.test_cli import COMMAND
from tests.warm import run_command


def run(*arguments: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command("metrics", *arguments, status=status, environment={**os.environ, **environment})


@pytest.fixture(scope="module")
def everything() -> list[dict[str, Any]]:
    return json.loads(run("--json").stdout)


class TestTheList:
    def test_every_metric_states_what_it_is(self, everything: list[dict[str, Any]]) -> None:
        """Name, family, direction, range, inputs, calls, source, version; and each score what it means."""
        assert {item["name"] for item in everything} >= set(REGISTRY.builtin())
        for item in everything:
            assert item["family"] != "custom"
            assert item["source"]
            assert item["version"]
            assert item["scores"]
            assert (item["calls"] != "0") == item["asks_judge"]
            for score in item["scores"]:
                assert score["description"], score
                assert score["direction"] in ("higher", "lower")
                assert score["high"] is None or score["low"] < score["high"]

    def test_default_thresholds_say_how_good_they_are(self, everything: list[dict[str, Any]]) -> None:
        """For which model, of what, how it agreed with people, on which sets."""
        found = {score["name"]: score["thresholds"] for item in everything for score in item["scores"]}
        [facts] = found["unsupported_facts"]

        assert {name for name, thresholds in found.items() if thresholds} == {
            "faithfulness",
            "groundedness",
            "unsupported_facts",
            "context_relevance",
        }
        assert (facts["value"], facts["models"], facts["target"]) == (0, [None], "turn")
        assert [len(item["models"]) for item in found["context_relevance"]] == [2, 1]
        assert {item["target"] for item in found["context_relevance"]} == {"passage"}
        for item in found["groundedness"]:
            assert 0.5 < item["accuracy"][0] < item["accuracy"][1] < 1
            assert "wice_test" in item["sets"]

    def test_no_two_scores_have_one_name(self, everything: list[dict[str, Any]]) -> None:
        """One could not tell them apart in a trace."""
        names = [score["name"] for item in everything for score in item["scores"]]

        assert len(set(names)) == len(names)

    def test_only_trace_runs_by_itself_with_a_judge(self, everything: list[dict[str, Any]]) -> None:
        """Metrics that cost money have to be named."""
        assert [item["name"] for item in everything if item["asks_judge"] and item["default"]] == ["trace"]

    def test_piped_it_is_one_plain_line_per_score(self, everything: list[dict[str, Any]]) -> None:
        """Columns in the same place, no colours, whatever the width of a terminal."""
        head, *lines = run(COLUMNS="40").stdout.splitlines()
        at = head.index("meaning")

        assert len(lines) == sum(len(item["scores"]) for item in everything)
        assert "\x1b" not in "".join(lines)
        [mrr] = [line for line in lines if line.startswith("mrr ")]
        assert mrr[at:] == "1 / rank of the first relevant passage; 0 without one"
        assert mrr.split()[1:8] == ["ranking", "retrieval", "higher", "0", "to", "1", "-"]
        [relevance] = [line for line in lines if line.startswith("context_relevance ")]
        assert ">= 0.54 (all-MiniLM-L6-v2: 0.84), >= 0.48 (lexical: 0.74)" in relevance

    def test_some_of_them(self) -> None:
        """By their names."""
        lines = run("no_answer", "latency").stdout.splitlines()

        assert [line.split()[0] for line in lines[1:3]] == ["no_answer", "latency"]

    def test_in_a_terminal_it_is_a_table(self) -> None:
        """Wrapped to its width, by family."""
        pty = pytest.importorskip("pty")
        main, other = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, "metrics", "umbrela", "cost"],
            stdout=other,
            stderr=other,
            env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
        )
        os.close(other)
        output = b""
        try:
            while chunk := os.read(main, 65536):
                output += chunk
        except OSError:  # Linux says so at the end
            pass
        process.wait(30)
        os.close(main)
        text = output.decode()

        assert process.returncode == 0
        assert "RETRIEVAL" in text
        assert "umbrela.mean" in text
        assert "\x1b[" in text

    def test_a_wrong_name_is_corrected(self) -> None:
        """In a line or two, with exit status 2."""
        done = run("grounded", status=2)

        assert "Did you mean 'groundedness'?" in done.stderr
        assert "Traceback" not in done.stderr
