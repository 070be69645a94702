"""Exports of traces as turns: made by real instrumentations, in the forms in which people get them."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import Evaluation
from tests.integrations.langchain.fakes import FACTS, lcel
from tests.offline.records.test_readers import QUERY, read, write_lines

Trace = Sequence[ReadableSpan]


def otlp(trace: Trace) -> list[dict[str, Any]]:
    """What a collector's file exporter writes, from the bytes that our OTLP exporter sends."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    message = MessageToDict(encode_spans(trace))
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64decode(span[name]).hex()
    return [message]


def phoenix(trace: Trace) -> list[dict[str, Any]]:
    """What Phoenix's API gives for spans."""
    return [
        {
            "name": span.name,
            "span_kind": span.attributes["openinference.span.kind"],
            "parent_id": span.parent and format(span.parent.span_id, "016x"),
            "start_time": datetime.datetime.fromtimestamp(span.start_time / 1e9, datetime.UTC).isoformat(),
            "end_time": datetime.datetime.fromtimestamp(span.end_time / 1e9, datetime.UTC).isoformat(),
            "status_code": span.status.status_code.name,
            "status_message": span.status.description or "",
            "attributes": nested(span.attributes),
            "context": {
                "trace_id": format(span.context.trace_id, "032x"),
                "span_id": format(span.context.span_id, "016x"),
            },
        }
        for span in trace
    ]


def table(trace: Trace) -> list[dict[str, Any]]:
    """What a data frame of Phoenix's spans becomes in JSON Lines: a column per attribute, times in milliseconds."""
    rows = []
    for row in phoenix(trace):
        context, attributes = row.pop("context"), row.pop("attributes")
        columns = {f"attributes.{a}{b}": part for a, inner in attributes.items() for b, part in items(inner)}
        row["start_time"] = round(datetime.datetime.fromisoformat(row["start_time"]).timestamp() * 1000)
        row["end_time"] = round(datetime.datetime.fromisoformat(row["end_time"]).timestamp() * 1000)
        rows.append({**row, **{f"context.{name}": value for name, value in context.items()}, **columns})
    return rows


def items(value: Any) -> list[tuple[str, Any]]:
    return [(f".{name}", part) for name, part in value.items()] if isinstance(value, dict) else [("", value)]


def nested(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as objects, numbers in them as lists: as Phoenix stores them."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        at = root
        *path, last = name.split(".")
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                break
        else:
            at[last] = list(value) if isinstance(value, tuple) else value
    return lists(root)


def lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    parts = {name: lists(part) for name, part in value.items()}
    return list(parts.values()) if parts and all(name.isdigit() for name in parts) else parts


def ours(answer: Any = "It was opened in 2019.", found: list[Evaluation] | None = None) -> Trace:
    """The spans of a chain that we have instrumented, with its scores; its evaluation is appended to ``found``."""
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    with rageval_hooks.instrument(
        models="lexical",
        metrics="groundedness, context_relevance",
        exporters=["otel"],
        tracer_provider=provider,
        on_evaluation=None if found is None else found.append,
    ) as handle:
        with contextlib.suppress(OSError):
            lcel(answer).invoke(QUERY, {"metadata": {"session_id": "s1", "user_id": "u1", "tier": "gold"}})
        assert handle.flush(30)
    return list(memory.get_finished_spans())


def theirs() -> Trace:
    """The spans that OpenInference makes of the same chain."""
    module = pytest.importorskip("openinference.instrumentation.langchain")
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    instrumentor = module.LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        lcel().invoke(QUERY)
    finally:
        instrumentor.uninstrument()
    return list(memory.get_finished_spans())


def phoenix_row(number: int, parent: int, kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "step",
        "span_kind": kind,
        "parent_id": f"{parent:016x}" if parent else None,
        "start_time": number,
        "end_time": number + 1,
        "attributes": attributes,
        "context": {"trace_id": "1" * 32, "span_id": f"{number:016x}"},
    }


class TestTraces:
    @pytest.mark.parametrize("export", [otlp, phoenix, table])
    @pytest.mark.parametrize("make", [ours, theirs])
    @pytest.mark.parametrize("suffix", ["jsonl", "json"])
    def test_an_exported_chain_is_a_turn(
        self,
        export: Callable[[Trace], list[dict[str, Any]]],
        make: Callable[[], Trace],
        suffix: str,
        tmp_path: Path,
    ) -> None:
        """Turns have question, answer, passages, tokens and times, whatever traced and exported them."""
        trace = make()
        rows = export(trace)
        path = tmp_path / f"a.{suffix}"
        write_lines(path, rows) if suffix == "jsonl" else path.write_text(json.dumps(rows))
        [record], bad = read(path)
        turn = record.turn

        assert not bad
        assert (turn.query, turn.response) == (QUERY, "It was opened in 2019.")
        assert [passage.text for passage in turn.passages] == [document.page_content for document in FACTS]
        assert turn.span is not None
        assert turn.span.trace_id == format(trace[0].context.trace_id, "032x")
        assert turn.span.external == (make is theirs)
        assert turn.timing is not None
        assert turn.timing.retrieval is not None
        assert turn.usage is not None
        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (40, 7)
        assert 0 < turn.timing.ended_at - turn.timing.started_at < 60e9
        if make is ours:
            assert [score.name for score in record.scores()] == ["groundedness", "context_relevance"]

    @pytest.mark.parametrize("answer", ["It was opened in 2019.", OSError("no disk")], ids=["answer", "failure"])
    def test_our_trace_says_what_the_turn_says(self, answer: Any, tmp_path: Path) -> None:
        """Who asked, what answered and how long it took; of a failed turn, what happened."""
        found: list[Evaluation] = []
        [record], _ = read(write_lines(tmp_path / "a.jsonl", otlp(ours(answer, found))))

        [evaluation] = found
        assert (record.turn.session_id, record.turn.user_id, record.turn.metadata["tier"]) == ("s1", "u1", "gold")
        if record.turn.error is not None:
            assert "OSError: no disk" in record.turn.error.message
        fields = "id query response passages timing span status framework model session_id user_id metadata"
        given, again = (
            {name: getattr(turn, name) for name in fields.split()} for turn in (evaluation.turn, record.turn)
        )
        assert again == given

    def test_traces_whose_spans_are_mixed(self, tmp_path: Path) -> None:
        """Spans of several traces may be in any order."""
        one, other = ours(), ours()
        rows = [row for pair in zip(phoenix(one), phoenix(other), strict=True) for row in pair]
        records, bad = read(write_lines(tmp_path / "a.jsonl", rows))

        assert len({record.id for record in records}) == 2
        assert [record.turn.query for record in records] == [QUERY, QUERY]
        assert not bad

    @pytest.mark.parametrize("depth", [0, 1500])
    def test_spans_around_themselves_and_very_deep_ones(self, depth: int, tmp_path: Path) -> None:
        """Are turns as any other."""
        rows = [phoenix_row(1, 0, "CHAIN", {"input": {"value": QUERY}, "output": {"value": "In 2019."}})]
        rows += [phoenix_row(number, number - 1, "TOOL", {}) for number in range(2, depth + 2)]
        documents = {"retrieval": {"documents": [{"document": {"content": "The pier."}}]}}
        rows.append(phoenix_row(depth + 2, depth + 1, "RETRIEVER", documents))
        if not depth:
            rows[0]["parent_id"] = rows[0]["context"]["span_id"]
            rows[0]["attributes"]["rageval"] = {"turn": {"id": "t1"}}
        [record], bad = read(write_lines(tmp_path / "a.jsonl", rows))

        assert [passage.text for passage in record.turn.passages] == ["The pier."]
        assert not bad

    def test_the_output_of_a_reranker_is_the_context(self, tmp_path: Path) -> None:
        """The prompt has what the reranker returned, not what the retriever found."""

        def documents(name: str, *texts: str) -> dict[str, Any]:
            group, _, names = name.partition(".")
            return {group: {names: [{"document": {"content": text}} for text in texts]}}

        rows = [
            phoenix_row(1, 0, "CHAIN", {"input": {"value": QUERY}, "output": {"value": "In 2019."}}),
            phoenix_row(2, 1, "RETRIEVER", documents("retrieval.documents", "The ferry.", "The pier.")),
            phoenix_row(3, 1, "RERANKER", documents("reranker.output_documents", "The pier.")),
        ]
        [record], bad = read(write_lines(tmp_path / "a.jsonl", rows))

        assert [passage.text for passage in record.turn.passages] == ["The pier."]
        assert not bad

    def test_the_passages_of_every_search_are_the_context(self, tmp_path: Path) -> None:
        """Where nothing reranks them, in the order of the searches."""
        rows = [
            phoenix_row(1, 0, "CHAIN", {"input": {"value": QUERY}, "output": {"value": "In 2019."}}),
            *(
                phoenix_row(number, 1, "RETRIEVER", {"retrieval": {"documents": [{"document": {"content": text}}]}})
                for number, text in ((2, "The pier."), (3, "The ferry."))
            ),
        ]
        [record], _ = read(write_lines(tmp_path / "a.jsonl", rows))

        assert [passage.text for passage in record.turn.passages] == ["The pier.", "The ferry."]

    @pytest.mark.parametrize(
        ("output", "response"),
        [
            ("['apple', 'banana']", "['apple', 'banana']"),
            ('["apple", "banana"]', '["apple", "banana"]'),
            ('{"answer": "In 2019."}', "In 2019."),
            ('[[{"content": "In 2019."}]]', "In 2019."),
        ],
    )
    def test_an_answer_that_looks_like_a_list(self, output: str, response: str, tmp_path: Path) -> None:
        """Is the answer; a mapping around an answer is not."""
        documents = {"retrieval": {"documents": [{"document": {"content": "The pier."}}]}}
        rows = [
            phoenix_row(1, 0, "CHAIN", {"input": {"value": QUERY}, "output": {"value": output}}),
            phoenix_row(2, 1, "RETRIEVER", documents),
        ]
        [record], _ = read(write_lines(tmp_path / "a.jsonl", rows))

        assert record.turn.response == response

    def test_the_time_of_concurrent_retrievers(self, tmp_path: Path) -> None:
        """Time that two of them share counts once."""
        documents = {"retrieval": {"documents": [{"document": {"content": "The pier."}}]}}
        rows = [
            phoenix_row(1, 0, "CHAIN", {"input": {"value": QUERY}, "output": {"value": "In 2019."}}),
            phoenix_row(2, 1, "RETRIEVER", documents),
            phoenix_row(3, 1, "RETRIEVER", documents),
        ]
        for row, (start, end) in zip(rows, [(1000, 1100), (1010, 1040), (1020, 1060)], strict=True):
            row |= {"start_time": start, "end_time": end}
        [record], _ = read(write_lines(tmp_path / "a.jsonl", rows))

        assert record.turn.timing is not None
        assert record.turn.timing.retrieval == pytest.approx(0.05)
        assert record.turn.timing.ended_at - record.turn.timing.started_at == 100_000_000

    @pytest.mark.parametrize("counted", [{"prompt": 40, "completion": 7}, {"prompt": 40}, {"completion": 7}])
    def test_half_of_the_tokens_is_no_usage(self, counted: dict[str, int], tmp_path: Path) -> None:
        """It would make a wrong price."""
        documents = {"retrieval": {"documents": [{"document": {"content": "The pier."}}]}}
        rows = [
            phoenix_row(1, 0, "CHAIN", {"input": {"value": QUERY}, "output": {"value": "In 2019."}}),
            phoenix_row(2, 1, "RETRIEVER", documents),
            phoenix_row(3, 1, "LLM", {"llm": {"token_count": counted}}),
        ]
        [record], bad = read(write_lines(tmp_path / "a.jsonl", rows))

        assert (record.turn.usage is not None, bad) == (len(counted) == 2, [])

    def test_spans_that_cannot_be_read(self, tmp_path: Path) -> None:
        """Each is a bad row; the others are read."""
        spans = phoenix(ours())
        [_], bad = read(write_lines(tmp_path / "a.jsonl", [*spans, "{", {**spans[0], "trace_flags": "some"}]))

        reasons = [(len(spans) + 1, "not JSON"), (len(spans) + 2, "trace_flags")]
        assert [(row.line, row.reason.partition(":")[0]) for row in bad] == reasons

    def test_spans_without_texts(self, tmp_path: Path) -> None:
        """A bad row that names what to set."""
        [model] = [row for row in phoenix(theirs()) if row["span_kind"] == "LLM"]
        bare = {**model, "parent_id": None, "attributes": {"openinference": {"span": {"kind": "LLM"}}}}
        records, [bad] = read(write_lines(tmp_path / "a.jsonl", [bare]))

        assert records == []
        assert "OPENINFERENCE_HIDE_INPUTS" in bad.reason
        assert bad.raw == {"span_id": model["context"]["span_id"]}

    def test_a_trace_without_retrieval_is_no_turn(self, tmp_path: Path) -> None:
        """It is passed over, not reported."""
        rows = [row for row in phoenix(theirs()) if row["span_kind"] not in ("RETRIEVER", "LLM")]
        assert read(write_lines(tmp_path / "a.jsonl", rows)) == ([], [])
