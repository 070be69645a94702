"""``rageval-hooks collect``: from turns that were scored to the cases of a test set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rageval_hooks
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.backends import BACKENDS
from rageval_hooks.offline.records import read_records, write_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.testsets import read_questions
from rageval_hooks.score import VERDICT, Skipped
from rageval_hooks.turn import Turn
from tests.command import invoke
from tests.exporters.recording import RecordingServer
from tests.offline.watch.backends import STORES, PhoenixStore, Store, rag_trace, serve

WRONG = "It was last rebuilt in 1978."
LENGTH = "How long is the lock of the Tessel canal?"


@pytest.fixture(params=STORES, ids=lambda kind: str(kind.__name__))
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The backend: two bad answers to one question, one to another, and a good one."""
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-1")
    made: Store = request.param()
    bad = [rag_trace(1, answer=WRONG), rag_trace(2, answer=WRONG), rag_trace(3, question=LENGTH, answer="It is 9 km.")]
    made.add(*bad, rag_trace(4))
    return made


@pytest.fixture
def server(store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RecordingServer]:
    """Serves it, with its scores."""
    monkeypatch.chdir(tmp_path)
    with serve(store) as found:
        invoke("watch", store.name, url=found.url, models="lexical", once=True, since="9000d")
        yield found


def test_bad_answers_become_cases(store: Any, server: RecordingServer) -> None:
    """With verdict, cause and trace; of two that ask the same, the first."""
    done = invoke("collect", store.name, url=server.url, models="lexical", since="9000d", output="cases.jsonl")
    records = list(read_records("cases.jsonl"))

    assert done.stdout.splitlines() == [
        "collected 2 cases of 4 turns: cases.jsonl",
        "2 unsupported",
        "left out: 1 near duplicates",
    ]
    assert [record.turn.query for record in records] == ["When was the Tessel canal lock rebuilt?", LENGTH]
    assert {(one.results[0].name, one.results[0].label, one.results[0].cause) for one in records} == {
        (VERDICT, "bad", "unsupported")
    }
    assert [record.turn.metadata["trace"] for record in records] == [f"{1:032x}", f"{3:032x}"]
    questions, bad = read_questions(Path("cases.jsonl"))
    assert ([one.question for one in questions], bad) == ([one.turn.query for one in records], [])


def test_a_report_on_the_turns_of_a_backend(store: Any, server: RecordingServer) -> None:
    """By its scores, and corrected by what people say there."""
    store.label(rag_trace(1)[2], "wrong", "In 1934.")
    options = {"url": server.url, "since": "9000d", "format": "json"}
    [file] = json.loads(invoke("report", store.name, **options).stdout)["files"]
    [corrected] = json.loads(invoke("report", store.name, people="correct", **options).stdout)["files"]

    assert (file["name"], file["verdicts"]["good"], file["verdicts"]["bad"]) == (store.name, 1, 3)
    assert (corrected["judged_share"]["judged"], corrected["judged_share"]["by_people"]) == (1, True)
    with pytest.raises(ConfigurationError, match=f"{store.name} has no turn with scores in this time"):
        invoke("report", store.name, url=server.url, since="1s")


def test_a_report_weights_what_was_sampled(store: Any, server: RecordingServer) -> None:
    """Each bad answer stands for two, the good one for itself."""
    for body in store.scores.values():
        if body.get("name", body.get("assessment_name")) == "verdict":
            is_good = any(f'"{label}"' in json.dumps(body) for label in ("good", "pass"))
            body["metadata"]["probability"] = 1.0 if is_good else 0.5
    [file] = json.loads(invoke("report", store.name, url=server.url, since="9000d", format="json").stdout)["files"]
    [bad] = [score for score in file["scores"] if score["name"] == "verdict.bad"]

    assert bad["spread"]["mean"] == pytest.approx(6 / 7)


def test_what_people_say_comes_along(store: Any, server: RecordingServer) -> None:
    """As the label that ``agreement`` reads, and as the reference."""
    store.label(rag_trace(1)[2], "wrong", "In 1934.")
    invoke("collect", store.name, url=server.url, models="lexical", since="9000d", output="cases.jsonl")
    first = next(iter(read_records("cases.jsonl"))).turn

    assert first.metadata["label"] == "wrong"
    assert first.reference == (None if isinstance(store, PhoenixStore) else "In 1934.")


def test_what_several_people_say_of_a_trace(store: Any, server: RecordingServer) -> None:
    """What an application has handed over with ``feedback()``, by who says it, with the page of the trace."""
    exporter = BACKENDS[store.name](server.url, None).exporter
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        handle.feedback(1, False, annotator="ada", comment="The year is wrong.")
        handle.feedback(1, "up", annotator="bob")
        assert handle.flush(10)
    invoke("collect", store.name, url=server.url, models="lexical", since="9000d", output="cases.jsonl")
    first = next(iter(read_records("cases.jsonl")))

    assert first.turn.metadata["label"] == {"ada": "down", "bob": "up"}
    assert first.annotations == {"feedback": {"ada": "down", "bob": "up"}}
    assert [result.name for result in first.results if result.annotator == "HUMAN"] == []
    paths = {
        "phoenix": f"/redirects/traces/{1:032x}",
        "langfuse": f"/project/prj-1/traces/{1:032x}",
        "mlflow": f"/#/experiments/0/traces?selectedEvaluationId=tr-{1:032x}",
    }
    assert first.turn.metadata["trace_url"] == server.url + paths[store.name]


def test_feedback_in_files(tmp_path: Path) -> None:
    """A line that knows the trace alone belongs to the turn of that trace, wherever it is; else it is named."""
    path = tmp_path / "scores.jsonl"
    with rageval_hooks.instrument(
        models="lexical", metrics=["verdict"], exporters=["jsonl"], jsonl_path=str(path)
    ) as handle:
        assert handle.feedback("f" * 32, True)
        handle.flush(10)
        with rageval_hooks.start_turn("When was the pier opened?") as turn:
            turn.add_passages(["The pier was opened in 2019."])
            turn.respond("The pier was opened in 2018 by the queen of Sheba.")
        assert handle.feedback(turn.trace_id, False, comment="No.")
        assert handle.flush(10)
    done = invoke("collect", path, models="lexical", output=tmp_path / "cases.jsonl")
    [record] = read_records(tmp_path / "cases.jsonl")

    assert (record.turn.query, record.turn.metadata["label"]) == ("When was the pier opened?", "down")
    assert "left out: 1 rows: feedback on a trace that has no turn in this file, or several" in done.stdout


def test_limits_and_causes(store: Any, server: RecordingServer) -> None:
    """Of each cause so many."""
    common = {"url": server.url, "models": "lexical", "since": "9000d", "max_per_cause": 1}
    assert "collected 1 case of 4 turns" in invoke("collect", store.name, output="a.jsonl", **common).stdout
    done = invoke("collect", store.name, output="b.jsonl", cause="off_topic", **common)
    assert "collected 0 cases of 4 turns" in done.stdout
    done = invoke("collect", store.name, output="c.jsonl", verdict=("good", "bad"), **common)
    assert "collected 2 cases of 4 turns" in done.stdout


def test_files_and_questions_that_have_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the answer rightly declines, the case says so; texts are redacted."""
    monkeypatch.setenv("RAGEVAL_REDACT", "true")
    declined = Skipped(name=VERDICT, reason="declines", label="declined", cause="nothing_found", metric=VERDICT)
    turn = Turn(id="1", query="Who is ada@example.org?", response="I do not know.")
    write_records(tmp_path / "scored.jsonl", [Record(id="1", turn=turn, results=(declined,))])
    output = tmp_path / "cases.jsonl"
    invoke("collect", tmp_path / "scored.jsonl", verdict="declined", models="lexical", output=output)
    [record] = read_records(output)

    assert record.answerable is False
    assert "ada@example.org" not in output.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"verdict": "wrong"}, "unknown verdict 'wrong'"), ({"cause": "weather"}, "unknown cause 'weather'")],
)
def test_wrong_options(tmp_path: Path, options: dict[str, str], message: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ConfigurationError, match=message):
        invoke("collect", "phoenix", output=tmp_path / "a.jsonl", **options)


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    """It may have cases that somebody has labelled."""
    output = tmp_path / "a.jsonl"
    output.write_text("mine")
    with pytest.raises(ConfigurationError, match=r"a\.jsonl exists already: name another output"):
        invoke("collect", "phoenix", output=output)
    assert output.read_text() == "mine"
