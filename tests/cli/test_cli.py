"""The command line, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rageval_hooks
from tests.exporters.recording import Reply, recording_server
from tests.exporters.test_providers import Collector, collector  # noqa: F401 - a fixture
from tests.judges.server import JudgeServer, answer, nonce_of
from tests.offline.scored import record, write
from tests.online.test_judge_stage import LABELS
from tests.warm import run_command

COMMAND = [str(Path(sys.executable).parent / "rageval-hooks")]


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_", "OPENAI_"))}


def run(*arguments: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, status=status, environment={**clean_environment(), **environment})


def run_fresh(*arguments: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed script in a fresh interpreter."""
    result = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=280, env={**clean_environment(), **environment}
    )
    assert result.returncode == status, result.stderr
    return result


def test_the_version() -> None:
    """One line."""
    assert run_fresh("--version").stdout == f"rageval-hooks {rageval_hooks.__version__}\n"


def test_the_package_is_a_command() -> None:
    """``python -m rageval_hooks``, where the folder of scripts is not on the path."""
    command = [sys.executable, "-m", "rageval_hooks", "metrics", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True, env=clean_environment())
    assert "Usage: rageval-hooks metrics" in found.stdout


def test_a_wrong_option_is_said() -> None:
    """With what is valid."""
    assert "'default', 'lexical'" in run("demo", "--models", "huge", status=2).stderr


def test_an_unexpected_error_is_no_broken_bound(tmp_path: Path) -> None:
    """Its traceback is shown, with status 2: 1 says that a bound was not kept."""
    (tmp_path / "jinja2.py").write_text("raise KeyError('a broken installation')\n")
    scores = write(tmp_path / "s.jsonl", [record(scores={"cost": 1})])
    page = tmp_path / "r.html"
    said = run_fresh("report", str(scores), "--output", str(page), status=2, PYTHONPATH=str(tmp_path)).stderr
    assert "Traceback" in said
    assert "a broken installation" in said


def scores(item: dict[str, Any]) -> dict[str, float]:
    return {s["name"]: s["value"] for s in item["scores"] if s["status"] == "scored" and s["target"]["kind"] == "turn"}


DEMO_ANSWERS = [
    ("The North Line sails", "crossing takes 55 minutes.", "north-line sandpiper-ship routes-overview bus-connection"),
    ("The company was founded", "mainland port of Ardwell.", "history routes-overview bus-connection complaints"),
    ("There are twelve charging", "booked with the ticket.", "electric-cars aurora-ship parking cars"),
    ("On the night boat", "on the night boat.", "pets fares-seniors motorcycles bus-connection"),
    ("The new pier on", "at the same time.", "hallay-harbour luggage fares-adult north-line"),
    ("The night boat to", "corner on deck five.", "night-boat wifi children-on-board aurora-ship"),
]
"""How each answer begins and ends, and the passages that were found."""


class TestDemo:
    def test_a_line_has_the_spans_of_its_turn(self) -> None:
        """And not those of earlier turns. Answers are two sentences of what was found, one of them with a slip."""
        items = list(map(json.loads, run("demo", "--json", "--models", "lexical").stdout.splitlines()))

        found = []
        for turn in (item["turn"] for item in items):
            words = turn["response"].split()
            passages = " ".join(passage["id"] for passage in turn["passages"])
            found.append((" ".join(words[:4]), " ".join(words[-4:]), passages))
        assert found == DEMO_ANSWERS
        assert "cost 41.2 million euros" in items[4]["turn"]["response"]

        traces = [{span["context"]["trace_id"] for span in item["spans"]} for item in items]
        assert traces == [{f"0x{item['turn']['span']['trace_id']}"} for item in items]

    def test_the_labels_of_the_lexical_tier_say_the_same(self) -> None:
        """Its scores are lower, and so are its thresholds: what fails is the wrong number and the missing answer."""
        failed = {
            (score["name"], item["turn"]["query"])
            for item in map(json.loads, run("demo", "--json", "--models", "lexical").stdout.splitlines())
            for score in item["scores"]
            if score["status"] == "scored" and score["target"]["kind"] == "turn" and score["label"] == "fail"
        }

        assert failed == {
            ("faithfulness", "How long is the new pier on Hallay and what did it cost?"),
            ("unsupported_facts", "How long is the new pier on Hallay and what did it cost?"),
            ("context_relevance", "Which hotels on Vaila have a swimming pool?"),
        }

    def test_the_text_is_readable_when_piped(self) -> None:
        """No colours, no line that is too long; each turn with its tree, and a table of scores."""
        text = run("demo", "--models", "lexical").stdout

        verdicts = [line.partition(": ")[0] for line in text.splitlines() if line.startswith(("good: ", "bad: "))]
        assert verdicts == ["good", "good", "good", "good", "bad", "good"]
        assert text.count("question: ") == 6
        assert text.count("groundedness ") == 6
        assert "retriever HandbookRetriever" in text
        assert "USD" in text
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 120

    def test_answers_are_judged_on_request(self) -> None:
        """The scores of TRACe are next to the local ones, also in the spans."""
        with JudgeServer() as server:
            # The application's model is on the same server; only a judge is asked for a nonce.
            server.otherwise(lambda asked: answer(LABELS if nonce_of(asked.prompt) else {"answer": "55 minutes"}))
            output = run(
                "demo",
                "--json",
                "--models",
                "lexical",
                "--judge",
                "openai:judge-model",
                OPENAI_API_KEY="sk-test",
                RAGEVAL_JUDGE_OPTIONS=f"base_url={server.url}",
                OPENAI_BASE_URL=server.url,
            ).stdout
        first = json.loads(output.splitlines()[0])

        assert "trace.context_relevance" in scores(first)
        assert "evaluate trace" in [span["name"] for span in first["spans"]]

    def test_a_judge_without_a_key_is_said(self) -> None:
        """Before anything else is done."""
        assert "OPENAI_API_KEY" in run("demo", "--models", "lexical", "--judge", "openai:x", status=2).stderr

    def test_spans_are_sent_on_request(self, collector: Collector) -> None:  # noqa: F811
        """To any OTLP endpoint."""
        output = run("demo", "--models", "lexical", "--otlp", collector.url).stdout

        assert [span.name for span in collector.spans].count("rag handbook") == 6
        assert f"went to {collector.url}" in output

    @pytest.mark.parametrize("address", ["nonsense", "ftp://host:21", "http://[x", "http://host:99999"])
    def test_an_address_that_is_none_is_said(self, address: str) -> None:
        """As a configuration error, before any request."""
        errors = run("demo", "--models", "lexical", "--otlp", address, status=2).stderr

        assert errors.startswith("rageval-hooks: --otlp is ")
        assert "give an address such as http://localhost:4318" in errors

    def test_two_destinations_are_one_too_many(self) -> None:
        errors = run("demo", "--models", "lexical", "--to", "mlflow", "--otlp", "http://127.0.0.1:9", status=2).stderr

        assert errors.startswith("rageval-hooks: --to and --otlp are both given")

    def test_a_backend_without_scores_is_said(self) -> None:
        """With the names of those that have them."""
        errors = run("demo", "--models", "lexical", "--to", "console", status=2).stderr

        assert "--to is 'console', which is not a backend with scores" in errors
        assert "mlflow, phoenix" in errors

    def test_the_scores_that_a_backend_has_are_counted(self) -> None:
        """And the page is named on which they are."""
        with recording_server() as server:
            keys = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "LANGFUSE_BASE_URL": server.url}
            text = run("demo", "--models", "lexical", "--to", "langfuse", **keys).stdout
            taken = sum(map(len, server.posted("/scores")))

        assert f"The backend also has {taken} scores as its own." in text
        assert taken > 50
        assert f"Open {server.url}" in text

    def test_scores_that_the_backend_does_not_have_are_said(self) -> None:
        """With their number, and an exit status."""
        with recording_server(lambda found: Reply(status=400 if found.path.endswith("/scores") else 200)) as server:
            keys = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "LANGFUSE_BASE_URL": server.url}
            errors = run("demo", "--models", "lexical", "--to", "langfuse", status=2, **keys).stderr

        assert f"{server.url}/api/public/otel/v1/traces does not have everything (langfuse " in errors
        assert " rejected)" in errors

    def test_an_endpoint_that_is_not_there_is_said(self) -> None:
        """One line, and an exit status."""
        errors = run("demo", "--models", "lexical", "--otlp", "http://me:hunter2@127.0.0.1:9", status=2).stderr

        assert "the spans cannot be sent to http://127.0.0.1:9/v1/traces" in errors
        assert "hunter2" not in errors
        assert "Traceback" not in errors.split("rageval-hooks: ")[-1]
