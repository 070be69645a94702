"""What only Langfuse's read API has: attributes that were moved, two versions, scores of traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.langfuse import SPAN_KEY
from rageval_hooks.integrations.opentelemetry import NoTurn, TracedSpan, turns_from_spans
from rageval_hooks.offline.backends import BACKENDS, StoredTrace
from rageval_hooks.offline.records import read_records
from tests.command import invoke
from tests.exporters.recording import RecordingServer
from tests.integrations.opentelemetry.recorded import ANSWER, CONVENTIONS, PASSAGE, QUESTION, load, names
from tests.offline.watch.backends import NOW, Langfuse3Store, LangfuseStore, rag_trace, serve

WRONG = "It was last rebuilt in 1978."

LOST = "langchain_genai"
"""Langfuse takes ``gen_ai.prompt.variable.*`` for the input, and drops the messages of the same span."""
FORMS = {name: spans for name, (spans, _) in CONVENTIONS.items()}
FORMS["Vercel"] = [{**span, "scope": "ai"} for span in FORMS["Vercel"]]
FORMS.pop("Pydantic AI, version 2")  # the answer of a root whose kind no attribute says


@pytest.fixture(params=[LangfuseStore, Langfuse3Store], ids=["Langfuse 4", "Langfuse 3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LangfuseStore:
    """The project."""
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-1")
    monkeypatch.chdir(tmp_path)
    made: LangfuseStore = request.param()
    return made


@pytest.fixture
def server(store: LangfuseStore) -> Iterator[RecordingServer]:
    """Serves it."""
    with serve(store) as found:
        yield found


def read(spans: list[TracedSpan]) -> list[tuple[str, list[str], str]]:
    """Return question, passages and answer of each turn, or why there is none."""
    return sorted(
        ("", [], one.cause)
        if isinstance(one, NoTurn)
        else (one.query, [passage.text for passage in one.prompt_passages], one.response)
        for one in turns_from_spans(spans)
    )


def slow(span: TracedSpan) -> TracedSpan:
    """Return a span that takes a thousand times as long: Langfuse rounds times to milliseconds."""
    begin = span.started_at // 10**9 * 10**9
    times = {name: begin + (getattr(span, name) - begin) * 1000 for name in ("started_at", "ended_at")}
    return span.model_copy(update=times)


def test_turns_are_those_of_the_spans(store: LangfuseStore, server: RecordingServer) -> None:
    """Of every convention, though Langfuse moves inputs and outputs."""
    backend = BACKENDS["langfuse"](server.url, None)
    store.page = 100
    lost: list[str] = []
    wrong: dict[str, Any] = {}
    for name, rows in {**{name: load(name)["spans"] for name in names()}, **FORMS}.items():
        store.observed = [slow(TracedSpan.of(row)) for row in rows]
        ids = dict.fromkeys(span.trace_id for span in store.observed)
        traces = [StoredTrace(id=one, started_at=0.0, ended_at=0.0, has_root=True, mark="") for one in ids]
        shown, expected = read(list(backend.spans(traces))), read(store.observed)
        if {answer for *_, answer in shown} == {"no_content"} != {answer for *_, answer in expected}:
            lost.append(name)
        elif shown != expected:
            wrong[name] = shown
    backend.close()

    assert wrong == {}
    assert all(name.startswith(LOST) for name in lost)


def traced(server: RecordingServer, answer: str = ANSWER) -> str:
    """Trace a turn by Langfuse's own SDK and return the id of its trace."""
    provider = TracerProvider(shutdown_on_exit=False)
    # The SDK has one client for each public key of a process.
    client = Langfuse(public_key=server.url, secret_key="sk-1", base_url=server.url, tracer_provider=provider)
    with client.start_as_current_observation(name="ask", as_type="chain", input={"question": QUESTION}) as root:
        with client.start_as_current_observation(name="search", as_type="retriever", input=QUESTION) as search:
            search.update(output=[{"page_content": PASSAGE, "metadata": {"source": "canal"}}])
        given = [{"role": "user", "content": f"{PASSAGE}\n\nQuestion: {QUESTION}"}]
        with client.start_as_current_observation(name="model", as_type="generation", input=given) as model:
            model.update(output={"role": "assistant", "content": answer}, usage_details={"input": 50, "output": 7})
        root.update(output={"answer": answer})
    client.flush()
    client.shutdown()
    return str(root.trace_id)


def test_an_application_with_langfuses_sdk(store: LangfuseStore, server: RecordingServer) -> None:
    """From its spans to scores, and from these with what a person says to a case; a second process adds nothing."""
    trace_id = traced(server, WRONG)
    common = {"url": server.url, "models": "lexical", "since": "1d"}
    first = invoke("watch", "langfuse", settle="0s", once=True, **common)
    posted = len(store.posted)
    Path(next(Path.cwd().glob("*.db"))).unlink()  # the scores themselves say what was scored
    again = invoke("watch", "langfuse", settle="0s", once=True, **common)

    assert first.stdout.splitlines() == ["verdict: 1 bad (100%); causes: 1 unsupported", "scored 1 turns"]
    assert again.stdout.splitlines() == ["scored 0 turns", "of other turns, 1 had scores already"]
    assert len(store.posted) == posted
    assert {body.get("observationId") for body in store.scores.values()} == {None}

    store.label({"context": {"trace_id": trace_id}}, "wrong", "In 1934.")
    invoke("collect", "langfuse", output="cases.jsonl", **common)
    [case] = read_records("cases.jsonl")
    assert (case.turn.query, case.turn.response, case.turn.reference) == (QUESTION, WRONG, "In 1934.")
    assert [passage.text for passage in case.turn.passages] == [PASSAGE]
    assert case.turn.metadata["label"] == "wrong"
    assert case.turn.usage is not None
    assert (case.turn.usage.input_tokens, case.turn.usage.output_tokens) == (50, 7)


def test_a_turn_within_a_request_has_scores_of_its_observation(store: LangfuseStore, server: RecordingServer) -> None:
    """Two turns of one trace keep their scores apart. The span of the web framework is no step."""
    for number in (1, 2):
        spans = [{**one, "context": {**one["context"], "trace_id": f"{1:032x}"}} for one in rag_trace(number)]
        store.add([{**one, "parent_id": one["parent_id"] or f"{99:016x}"} for one in spans])
    request = TracedSpan(
        trace_id=f"{1:032x}",
        span_id=f"{99:016x}",
        name="POST /ask",
        scope="opentelemetry.instrumentation.fastapi",
        start_time=int((NOW - 110) * 1e9),
        end_time=int((NOW - 90) * 1e9),
        attributes={"http.route": "/ask"},
    )
    store.observed.append(request)
    done = invoke("watch", "langfuse", url=server.url, models="lexical", since="9000d", once=True)

    assert "scored 2 turns" in done.stdout
    on = {body["observationId"]: body["metadata"][SPAN_KEY] for body in store.scores.values()}
    assert on == {f"{number * 16 + 1:016x}": f"0x{number * 16 + 1:016x}" for number in (1, 2)}


def test_observations_that_are_no_spans(store: LangfuseStore, server: RecordingServer) -> None:
    """Those of Langfuse's SDK 2 have other ids. Nothing is scored, and nothing fails."""
    [search, model, root] = rag_trace(1)
    store.add([{**one, "context": {"trace_id": "chat-1", "span_id": one["name"]}} for one in (search, model, root)])
    done = invoke("watch", "langfuse", url=server.url, models="lexical", since="9000d", once=True)

    assert done.stdout.splitlines() == ["scored 0 turns"]


@pytest.mark.parametrize("value", [True, 0, "good"])
def test_what_people_annotate(value: Any, store: LangfuseStore, server: RecordingServer) -> None:
    """A switch, a number or a choice, by who has said it."""
    store.add(rag_trace(1))
    kind = {bool: "BOOLEAN", int: "NUMERIC", str: "CATEGORICAL"}[type(value)]
    about = {"id": "1", "traceId": f"{1:032x}", "source": "ANNOTATION", "authorUserId": "ada", "metadata": {}}
    store.scores["1",] = {**about, "name": "correct", "dataType": kind, "value": value, "comment": "No."}
    backend = BACKENDS["langfuse"](server.url, None)
    [score] = backend.scores(list(backend.traces(NOW - 3600)), [])
    backend.close()

    assert (score.span_id, score.annotator, score.who, score.explanation) == (f"{1:032x}", "HUMAN", "ada", "No.")
    assert score.value == value
    assert not score.is_ours


def test_the_keys_are_needed(store: LangfuseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """They decide the project."""
    monkeypatch.delenv("LANGFUSE_SECRET_KEY")
    with pytest.raises(ConfigurationError, match="set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"):
        invoke("watch", "langfuse", once=True)
