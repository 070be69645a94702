"""The filters of docs/backends.md find the demo's wrong answer, and nothing else.

Phoenix, MLflow and Prometheus are asked themselves, in tests/e2e. Here are the backends that search the attributes of
spans, and those whose services cannot be run: their filters are applied to what they would get.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks.demo.chain import ExtractiveModel, build_chain
from rageval_hooks.demo.handbook import QUESTIONS, load_handbook
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.models import Models
from rageval_hooks.settings import ModelSettings
from tests.exporters.collector import http_collector, values
from tests.exporters.recording import RecordingServer, Reply, recording_server
from tests.exporters.score_backends import NAMES, backend_of
from tests.judges.server import JudgeServer, Received, answer, error
from tests.judges.server import Reply as JudgeReply

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
WRONG = "How long is the new pier on Hallay and what did it cost?"
LEXICAL = ModelSettings(embedder="lexical", cross_encoder="lexical", nlp="lexical")

# "rageval.verdict=bad"
TAG = re.compile(r"`(rageval\.(?:label\.[\w.]+|verdict))=(\w+)`")
# '{ name =~ "rag .*" && span.rageval.score.faithfulness < 0.5 } | select(…)'
TRACE_QUERY = re.compile(r"^\{ (.+?) \}", re.MULTILINE)
# 'span.rageval.label.unsupported_facts = "fail"', 'name =~ "rag .*"'
CONDITION = re.compile(r"(?:span\.)?([\w.]+) (=~|=|<|>) (\S+|\".*?\")$")


def judge_says(request: Received) -> JudgeReply:
    """Find every sentence supported, but for the wrong number."""
    question = str(request.body["messages"][-1]["content"])
    sentences = re.findall(r"^([a-z]): (.*)$", question, re.MULTILINE)
    support = [
        {
            "response_sentence_key": key,
            "explanation": "",
            "supporting_sentence_keys": [] if "41.2 million" in text else ["0a"],
            "fully_supported": "41.2 million" not in text,
        }
        for key, text in sentences
    ]
    return answer(
        {
            "relevance_explanation": "",
            "all_relevant_sentence_keys": ["0a"],
            "sentence_support_information": support,
            "all_utilized_sentence_keys": ["0a"],
            "overall_supported": all(item["fully_supported"] for item in support),
        }
    )


def ask_everything(*exporters: Any, judge: Callable[[Received], JudgeReply] = judge_says, **settings: Any) -> None:
    """Ask the demo's questions, with its models and a judge."""
    with JudgeServer() as server, pytest.MonkeyPatch.context() as patched:
        server.otherwise(judge)
        patched.setenv("OPENAI_API_KEY", "sk-test")
        patched.setenv("OPENAI_BASE_URL", server.url)
        chain = build_chain(load_handbook(), Models(LEXICAL).embedder(), ExtractiveModel())
        with rageval_hooks.instrument(
            models="lexical",
            judge="openai:judge-model",
            exporters=list(exporters),
            thresholds={"trace.adherence": 1},
            **{"inline_budget_ms": 60_000, **settings},
        ) as handle:
            for question in QUESTIONS:
                chain.invoke({"question": question.text})
            assert handle.flush(60)


def spans_of(**options: Any) -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    ask_everything(OtelExporter(provider, log_events=False, score_metrics=False), tracer_provider=provider, **options)
    return list(memory.get_finished_spans())


@pytest.fixture(scope="module")
def spans() -> list[ReadableSpan]:
    return spans_of()


def questions(spans: list[ReadableSpan], matches: Callable[[ReadableSpan], bool]) -> set[str]:
    """Return the questions of the traces in which a span matches, as backends list them."""
    traces = {span.context.trace_id for span in spans if span.context and matches(span)}
    roots = [span for span in spans if span.parent is None and span.context and span.context.trace_id in traces]
    return {str((span.attributes or {})["input.value"]) for span in roots}


@pytest.mark.parametrize("tag", sorted(set(TAG.findall(PAGE)) - {("rageval.label.trace", "failed")}))
def test_jaegers_tags(spans: list[ReadableSpan], tag: tuple[str, str]) -> None:
    """Jaeger finds equal strings."""
    name, value = tag

    assert questions(spans, lambda span: (span.attributes or {}).get(name) == value) == {WRONG}


def test_jaegers_tag_for_a_metric_that_did_not_work() -> None:
    """Every trace, as the judge answers no question."""
    assert "`rageval.label.trace=failed`" in PAGE
    spans = spans_of(judge=lambda _: error(401))

    found = questions(spans, lambda span: (span.attributes or {}).get("rageval.label.trace") == "failed")
    assert found == {question.text for question in QUESTIONS}


def condition(text: str) -> Callable[[ReadableSpan | SentSpan], bool]:
    """Return a condition of TraceQL as a function of a span."""
    found = CONDITION.match(text)
    assert found is not None, text
    name, operator, wanted = found.groups()

    def matches(span: ReadableSpan | SentSpan) -> bool:
        value: Any = span.name if name == "name" else (span.attributes or {}).get(name)
        if value is None:
            return False
        if operator == "=~":
            return re.fullmatch(json.loads(wanted), value) is not None
        if operator == "=":
            return bool(value == json.loads(wanted))
        return bool(value < float(wanted) if operator == "<" else value > float(wanted))

    return matches


@pytest.mark.parametrize("query", TRACE_QUERY.findall(PAGE))
def test_tempos_queries(spans: list[ReadableSpan], query: str) -> None:
    """TraceQL compares numbers. All conditions are about one span."""
    conditions = [condition(part) for part in query.split(" && ")]

    assert questions(spans, lambda span: all(matches(span) for matches in conditions)) == {WRONG}


@pytest.mark.parametrize("annotator", ["CODE", "LLM"])
@pytest.mark.parametrize("budgets", [(60_000,), (0,), (60_000, 0)], ids=["in time", "late", "both"])
def test_tempos_dashboard_counts_every_turn_once(budgets: tuple[int, ...], annotator: str) -> None:
    """In the bytes that leave. Without a judge the local verdicts, with one its own."""
    counted = re.findall(r"`\{ (.+?) \} \| rate\(\)`", PAGE)
    assert len(counted) == 2
    with http_collector() as collector:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
        for budget in budgets:
            ask_everything(
                OtelExporter(provider, log_events=False, score_metrics=False),
                tracer_provider=provider,
                inline_budget_ms=budget,
                judge_sample_rate=float(annotator == "LLM"),
            )
        sent = [SentSpan(span.name, values(span)) for span in collector.spans]

    queries = [[condition(part.replace("CODE", annotator)) for part in query.split(" && ")] for query in counted]
    bad, judged = (sum(all(matches(span) for matches in query) for span in sent) for query in queries)
    assert bad == len(budgets)
    assert judged == len(budgets) * len(QUESTIONS)


class SentSpan(NamedTuple):
    """A span as it was sent, as far as queries read it."""

    name: str
    attributes: dict[str, Any]


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with recording_server(lambda _: Reply(status=202)) as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_filters_of_backends_with_a_score_api(
    server: RecordingServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict of one answer matches, the local one and the judge's: that of the wrong number."""
    backend = backend_of(name)
    row = rf"^\| \[{backend.exporter.backend}\].*\| {re.escape(backend.bad_filter)} \|$"
    assert re.search(row, PAGE, re.MULTILINE)
    for variable, value in {**backend.variables, backend.address: server.url}.items():
        monkeypatch.setenv(variable, value)
    provider = TracerProvider(shutdown_on_exit=False)
    ask_everything(OtelExporter(provider), backend.exporter(), tracer_provider=provider)

    found = [score for body in server.posted() for score in backend.filtered(body)]
    reasons = [why for name, matches, why in found if name == "verdict" and matches]
    assert len(reasons) == 2
    assert "no passage has 41.2 million" in reasons[0]


def test_braintrusts_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shares only, on the span of kind score."""
    assert "`scores.verdict < 0.5`" in PAGE
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-bt-parent=project_name:harbour")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    spans = spans_of()

    def matches(span: ReadableSpan | SentSpan) -> bool:
        scores = json.loads(str((span.attributes or {}).get("braintrust.scores", "{}")))
        return bool(scores.get("verdict", 1) < 0.5)

    assert questions(spans, matches) == {WRONG}
