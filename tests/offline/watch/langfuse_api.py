"""How Langfuse stores and shows spans that come by OTLP, written after its source.

``packages/shared/src/server/otel/OtelIngestionProcessor.ts`` and ``ObservationTypeMapper.ts`` of langfuse 4.16.0
(6275144, 22 August 2026), as far as the conventions of ``rageval_hooks.integrations.opentelemetry`` go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rageval_hooks.integrations.opentelemetry import TracedSpan
from rageval_hooks.integrations.opentelemetry.spans import nested

__all__ = ["observation", "spans_of_otlp"]

PROJECT = "prj-1"

_PAIRS = (
    ("gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"),
    ("gcp.vertex.agent.tool_call_args", "gcp.vertex.agent.tool_response"),
    ("prompt", "all_messages_events"),
    ("mlflow.spanInputs", "mlflow.spanOutputs"),
    ("traceloop.entity.input", "traceloop.entity.output"),
    ("input.value", "output.value"),
    ("input", "output"),
    ("pydantic_ai.all_messages", "final_result"),
    ("tool_arguments", "tool_response"),
)
"""Which of the attributes become the input and the output. The first pair of which one is there counts."""

_NUMBERED = (("gen_ai.prompt", "gen_ai.completion"), ("llm.input_messages", "llm.output_messages"))
_LAST = (
    ("gen_ai.input.messages", "gen_ai.output.messages"),
    ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
)
_VERCEL_IN = ("ai.prompt.messages", "ai.prompt", "ai.toolCall.args")
_VERCEL_OUT = ("ai.toolCall.result", "ai.response.object", "ai.response.toolCalls")
_SDK = ("langfuse.observation.input", "langfuse.observation.output")
_TAKEN = frozenset(
    {
        *(name for pair in (*_PAIRS, *_LAST, _SDK) for name in pair),
        "langfuse.trace.input",
        "langfuse.trace.output",
        *_VERCEL_IN,
        *_VERCEL_OUT,
        "ai.response.text",
        "events",
        "gen_ai.system_instructions",
    }
)
"""Attributes that are kept nowhere else, whether they became the input or not."""
_TAKEN_PREFIXES = (
    *(name for pair in _NUMBERED for name in pair),
    *("langfuse.trace.metadata", "langfuse.observation.metadata", "ai.telemetry.metadata"),
)

_TYPES: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        "langfuse.observation.type",
        {
            name.lower(): name
            for name in "SPAN GENERATION EVENT EMBEDDING AGENT TOOL CHAIN RETRIEVER GUARDRAIL EVALUATOR".split()
        },
    ),
    (
        "openinference.span.kind",
        {
            "LLM": "GENERATION",
            **{name: name for name in "CHAIN RETRIEVER EMBEDDING AGENT TOOL GUARDRAIL EVALUATOR".split()},
        },
    ),
    (
        "gen_ai.operation.name",
        {
            **dict.fromkeys(("chat", "completion", "text_completion", "generate_content", "generate"), "GENERATION"),
            "embeddings": "EMBEDDING",
            "invoke_agent": "AGENT",
            "create_agent": "AGENT",
            "execute_tool": "TOOL",
        },
    ),
)
_MODELS = (
    "langfuse.observation.model.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "llm.model_name",
    "model",
)


def _type_of(attributes: Mapping[str, Any]) -> str:
    for name, types in _TYPES:
        if found := types.get(str(attributes.get(name))):
            return found
    if attributes.get("gen_ai.tool.name") or attributes.get("gen_ai.tool.call.id"):
        return "TOOL"
    return "GENERATION" if any(attributes.get(name) for name in _MODELS) else "SPAN"


def _texts(span: TracedSpan) -> tuple[Any, Any]:
    """Return the input and the output."""
    attributes = span.attributes
    if any(attributes.get(name) is not None for name in _SDK):
        return attributes.get(_SDK[0]), attributes.get(_SDK[1])
    if span.scope == "ai":
        said, calls = attributes.get("ai.response.text"), attributes.get("ai.response.toolCalls")
        if said is not None and calls is not None:
            said = json.dumps({"role": "assistant", "content": said, "tool_calls": calls})
        given = next((attributes[name] for name in _VERCEL_IN if name in attributes), None)
        return given, said or next((attributes[name] for name in _VERCEL_OUT if name in attributes), None)
    for name, about in span.events:
        if name == "gen_ai.client.inference.operation.details" and any(about.get(one) for one in _LAST[0]):
            return about.get(_LAST[0][0]), about.get(_LAST[0][1])
    given = [
        {"role": name.removeprefix("gen_ai.").removesuffix(".message"), **about}
        for name, about in span.events
        if name.startswith("gen_ai.") and name.endswith(".message")
    ]
    chosen = [about for name, about in span.events if name == "gen_ai.choice"]
    if given or chosen:
        return given or None, chosen[0] if len(chosen) == 1 else chosen or None
    contents = {name: value for _, about in span.events for name, value in about.items() if name in _NUMBERED[0]}
    if contents:
        return contents.get("gen_ai.prompt"), contents.get("gen_ai.completion")
    listed = attributes.get("events")
    if isinstance(listed, str) and listed.startswith("["):
        events = json.loads(listed)
        choice = [one for one in events if one.get("event.name") == "gen_ai.choice"]
        return [one for one in events if one not in choice] or None, next(iter(choice), None)
    for pair in _PAIRS:
        if any(attributes.get(name) for name in pair):
            return attributes.get(pair[0]), attributes.get(pair[1])
    for pair in _NUMBERED:
        if any(name.startswith(pair) for name in attributes):
            found = [attributes.get(name) or nested(attributes, f"{name}.") for name in pair]
            return found[0], found[1]
    for pair in _LAST:
        if any(attributes.get(name) for name in pair):
            return _with_instructions(attributes, attributes.get(pair[0])), attributes.get(pair[1])
    return None, None


def _with_instructions(attributes: Mapping[str, Any], given: Any) -> Any:
    said = attributes.get("gen_ai.system_instructions")
    if not said or not isinstance(given, str):
        return given
    messages = json.loads(given)
    if not isinstance(messages, list) or any(one.get("role") == "system" for one in messages):
        return given
    parts = json.loads(said)
    return json.dumps([{"role": "system", "content": "\n".join(str(one["content"]) for one in parts)}, *messages])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _iso(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def observation(span: TracedSpan, version: int) -> dict[str, Any]:
    """Return a span as ``/api/public/v2/observations`` of version 4 shows it, or version 3's ``observations``."""
    attributes = span.attributes
    kept = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in attributes.items()
        if name not in _TAKEN and not name.startswith(_TAKEN_PREFIXES)
    }
    given, written = _texts(span)
    if (tools := _parsed(kept.get("gen_ai.tool.definitions", ""))) and isinstance(tools, list):
        del kept["gen_ai.tool.definitions"]
        messages = _parsed(given) if isinstance(given, str) else given
        given = {"messages": messages, "tools": tools} if isinstance(messages, list) else given
    is_sdk = span.scope.startswith("langfuse-sdk")
    metadata: dict[str, Any] = {"resourceAttributes.service.name": "app", "scope.name": span.scope}
    metadata |= {} if is_sdk else {f"attributes.{name}": _parsed(value) for name, value in kept.items()}
    if version < 4:
        metadata = {"resourceAttributes": {"service.name": "app"}, "scope": {"name": span.scope}}
        metadata |= {} if is_sdk else {"attributes": kept}
    texts = [one if one is None or isinstance(one, str) else json.dumps(one) for one in (given, written)]
    if version < 4:
        texts = [one if one is None else _parsed(one) for one in texts]
    usage = _parsed(str(attributes.get("langfuse.observation.usage_details", ""))) or {
        "input": attributes.get("gen_ai.usage.input_tokens", attributes.get("llm.token_count.prompt")),
        "output": attributes.get("gen_ai.usage.output_tokens", attributes.get("llm.token_count.completion")),
    }
    model = next((attributes[name] for name in _MODELS if attributes.get(name)), None)
    return {
        "id": span.span_id,
        "traceId": span.trace_id,
        "projectId": PROJECT,
        "parentObservationId": span.parent_id or None,
        "type": _type_of(attributes),
        "name": span.name,
        "startTime": _iso(span.started_at),
        "endTime": _iso(span.ended_at),
        "sessionId": attributes.get("session.id"),
        "level": "ERROR" if span.error else "DEFAULT",
        "statusMessage": span.message,
        "input": texts[0],
        "output": texts[1],
        "metadata": metadata,
        "usageDetails": {name: count for name, count in usage.items() if count is not None},
        **({"model": model} if version < 4 else {"providedModelName": model, "isRootObservation": not span.parent_id}),
    }


def spans_of_otlp(content: bytes) -> Iterable[TracedSpan]:
    """Return the spans of an OTLP request in protobuf."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def value(any_value: Any) -> Any:
        kind = any_value.WhichOneof("value")
        return (
            [value(one) for one in any_value.array_value.values] if kind == "array_value" else getattr(any_value, kind)
        )

    for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield TracedSpan(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    scope=scope.scope.name,
                    start_time=span.start_time_unix_nano,
                    end_time=span.end_time_unix_nano,
                    status_code=str(span.status.code),
                    status_message=span.status.message,
                    attributes={one.key: value(one.value) for one in span.attributes},
                )
