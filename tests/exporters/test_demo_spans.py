"""The demo with a judge, as a collector receives it: rules that Jaeger and other readers of traces need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.exporters.collector import http_collector, values
from tests.exporters.test_providers import clean_environment
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS
from tests.warm import run_command

SCORE_ATTRIBUTES = ("rageval.score.", "rageval.label.", "rageval.failed.", "rageval.skipped.")


@pytest.fixture(scope="module")
def spans() -> Iterator[list[Span]]:
    """The spans of the demo's turns, decoded from the bytes that a collector received."""
    with http_collector() as collector, JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        arguments = ["demo", "--json", "--models", "lexical", "--judge", "openai:judge-model", "--otlp", collector.url]
        keys = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": judge.url}
        run_command(*arguments, environment={**clean_environment(), **keys})
        yield collector.spans


def of_kind(spans: list[Span], kind: str) -> list[dict[str, Any]]:
    """Return the attributes of the spans of an OpenInference kind."""
    found = [values(span) for span in spans]
    return [attributes for attributes in found if attributes["openinference.span.kind"] == kind]


def roots(spans: list[Span]) -> list[dict[str, Any]]:
    """Return the attributes of the turns' spans."""
    return [values(span) for span in spans if not span.parent_span_id]


def test_every_span_has_a_length_and_lies_within_its_parent(spans: list[Span]) -> None:
    """Otherwise Jaeger warns about a negative duration or a skewed clock."""
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        assert span.start_time_unix_nano < span.end_time_unix_nano, span.name
        if span.parent_span_id:
            parent = by_id[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano, span.name
            assert span.end_time_unix_nano <= parent.end_time_unix_nano, span.name


def test_the_turns_spans_have_at_most_twelve_score_attributes(spans: list[Span]) -> None:
    """So that a preview, sorted by name, shows something else than scores."""
    for attributes in roots(spans):
        assert 0 < len([name for name in attributes if name.startswith(SCORE_ATTRIBUTES)]) <= 12


def test_a_search_for_a_failing_label_finds_the_turns(spans: list[Span]) -> None:
    """What failed in an evaluation of the inline stage is a label of the turn's span too."""
    label = "rageval.label.unsupported_facts"
    by_turn = {span.span_id: values(span)[label] for span in spans if not span.parent_span_id}
    evaluated = {span.parent_span_id: values(span)[label] for span in spans if span.name == "evaluate"}

    assert by_turn == evaluated
    assert "fail" in by_turn.values()


def test_turns_and_model_calls_say_what_was_asked_and_answered(spans: list[Span]) -> None:
    """As JSON by the GenAI conventions, for the conversation view."""
    for attributes in [*roots(spans), *of_kind(spans, "LLM")]:
        [*_, last] = json.loads(attributes["gen_ai.input.messages"])
        [reply] = json.loads(attributes["gen_ai.output.messages"])
        assert last["parts"][0]["type"] == reply["parts"][0]["type"] == "text"
        assert (last["role"], reply["role"]) == ("user", "assistant")
        assert reply["finish_reason"] == "stop"


def test_turns_name_their_operation(spans: list[Span]) -> None:
    """A chain is a workflow."""
    assert {attributes["gen_ai.operation.name"] for attributes in roots(spans)} == {"invoke_workflow"}
    assert {bool(attributes["gen_ai.agent.name"]) for attributes in roots(spans)} == {True}


def test_each_turn_has_one_evaluation_of_the_inline_stage_and_one_of_the_judge(spans: list[Span]) -> None:
    """Not a span per metric."""
    names = [span.name for span in spans if span.name.startswith("evaluate")]
    turns = len(roots(spans))

    assert names.count("evaluate") == names.count("evaluate trace") == turns


def test_no_span_has_events(spans: list[Span]) -> None:
    """OpenTelemetry deprecates them, and results are attributes and log events."""
    assert not [span.name for span in spans if span.events]


def test_one_attribute_is_an_array(spans: list[Span]) -> None:
    """As the conventions want it, and every instrumentor writes it. Some backends show no others."""
    kinds = {item.key: item.value.WhichOneof("value") for span in spans for item in span.attributes}
    kinds.pop("gen_ai.response.finish_reasons", None)

    assert set(kinds.values()) <= {"string_value", "int_value", "double_value", "bool_value"}


def test_every_span_has_a_genai_attribute(spans: list[Span]) -> None:
    """Langfuse's SDK drops the others."""
    for span in spans:
        assert [name for name in values(span) if name.startswith("gen_ai.")], span.name
