"""From the spans of a trace to its turns, by the attributes of OpenInference and of this package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

from pydantic import ValidationError

from rageval_hooks.offline.records.from_columns import explain
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.offline.records.source import RowSource
from rageval_hooks.offline.records.traces.scores import scores_of
from rageval_hooks.offline.records.traces.spans import ExportedSpan, spans_of, trace_ids
from rageval_hooks.offline.records.traces.tree import RETRIEVAL, TURN_ID, SpanTree
from rageval_hooks.runtime.jsonable import plain_mapping
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Timing, Turn, Usage

__all__ = ["read_traces", "records_from_spans"]

_DOCUMENTS = {"RETRIEVER": "retrieval.documents", "RERANKER": "reranker.output_documents"}
# Names under which frameworks keep the question, the answer, and what is around either, the most likely first.
_ASKED = ("query", "question", "input", "user_input", "query_str", "query_bundle", "content", "text")
_SAID = ("answer", "response", "output", "result", "generated_answer", "content", "text")
_WRAPPERS = ("messages", "kwargs", "message")
_MOST_DEPTH = 12


def read_traces(source: RowSource) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield the turns of an export, each with the line on which its trace begins.

    Traces without a turn are passed over: nothing was retrieved, or nothing was answered from it.
    """
    for group in source.groups(lambda row: trace_ids(row.data)):
        if isinstance(group, BadRow):
            yield group.line, group
            continue
        # A row of OTLP-JSON has spans of several traces.
        spans = [span for span in chain.from_iterable(map(spans_of, group.rows)) if span.trace_id == group.key]
        try:
            for record in records_from_spans(spans):
                yield group.line, record
        except ValidationError as error:
            yield group.line, BadRow(group.line, f"trace {group.key}: {explain(error)}", {"trace_id": group.key})


def records_from_spans(spans: Iterable[ExportedSpan]) -> list[Record]:
    """Return the turns of one trace in the order of their start."""
    tree = SpanTree(spans)
    roots = sorted(tree.roots(), key=lambda span: span.started_at)
    return [_record(tree, root) for root in roots]


def _record(tree: SpanTree, root: ExportedSpan) -> Record:
    inside = list(tree.below(root))
    identity = root.text(TURN_ID) or root.span_id
    scored = [root, *(span for span in inside if span.kind == "EVALUATOR")]
    results = tuple(chain.from_iterable(map(scores_of, scored)))
    return Record(id=identity, turn=_turn(tree, root, inside, identity), results=results)


def _turn(tree: SpanTree, root: ExportedSpan, inside: Sequence[ExportedSpan], identity: str) -> Turn:
    retrievers = list(tree.outermost(root, RETRIEVAL))
    models = [span for span in inside if span.kind == "LLM"]
    failure: dict[str, Any] = {}
    if root.error is not None:
        failure = {"status": "error", "error": ErrorInfo(type="Error", message=root.error)}
    return Turn(
        id=identity,
        query=_query(root, retrievers),
        response=_response(root, models),
        passages=tuple(_passages(retrievers)),
        usage=Usage.sum(map(_usage, models)),
        model=_first(span.text("llm.model_name") for span in reversed(models)) or None,
        timing=_timing(root, retrievers, models),
        span=SpanReference(trace_id=root.trace_id, span_id=root.span_id, external=TURN_ID not in root.attributes),
        name=root.name or "turn",
        framework=root.text_or_none("rageval.framework"),
        session_id=root.text_or_none("session.id"),
        user_id=root.text_or_none("user.id"),
        metadata=_json_object(root.attributes.get("metadata")),
        **failure,
    )


def _query(root: ExportedSpan, retrievers: Sequence[ExportedSpan]) -> str:
    """Return the input of the root; if it has none, what the first retriever looked for."""
    return _first([_text(root.text("input.value"), _ASKED), *map(_retrieval_query, retrievers[:1])])


def _response(root: ExportedSpan, models: Sequence[ExportedSpan]) -> str:
    """Return the output of the root; if it has none, what the last model wrote."""
    return _first([_text(root.text("output.value"), _SAID), *map(_written, models[-1:])])


def _first(texts: Iterable[str]) -> str:
    """Return the first text that is not empty; an empty text if all are."""
    return next(filter(None, texts), "")


def _passages(retrievers: Sequence[ExportedSpan]) -> list[Passage]:
    """Return the context: the output of the last reranker, or else that of all retrievers."""
    # A reranker receives what the retrievers found, and its output is what the prompt has.
    rerankers = [span for span in retrievers if span.kind == "RERANKER"]
    found: dict[tuple[str | None, str], Passage] = {}
    for span in rerankers[-1:] or retrievers:
        for passage in _documents(span):
            # Several retrievers may find the same document.
            found.setdefault((passage.id, passage.text), passage)
    return list(found.values())


def _documents(span: ExportedSpan) -> Iterator[Passage]:
    """Yield the documents of a span, whose attributes are numbered: ``retrieval.documents.0.document.content``."""
    for number in count():
        fields = _below(span.attributes, f"{_DOCUMENTS[span.kind]}.{number}.document.")
        if not fields:
            return
        yield _document(fields)


def _below(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the attributes with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in attributes.items() if name.startswith(prefix)}


def _document(fields: Mapping[str, Any]) -> Passage:
    # Metadata is one attribute with JSON in OTLP, and several attributes in tables.
    metadata = {**_json_object(fields.get("metadata")), **_below(fields, "metadata.")}
    in_prompt = metadata.pop("rageval.document.in_prompt", None)
    share = metadata.pop("rageval.document.prompt_share", None)
    identity = fields.get("id")
    return Passage(
        text=str(fields.get("content") or ""),
        id=None if identity is None else str(identity),
        score=fields.get("score"),
        metadata=metadata,
        in_prompt=in_prompt,
        prompt_share=share,
    )


def _retrieval_query(span: ExportedSpan) -> str:
    return _text(span.text("input.value") or span.text("reranker.query"), _ASKED)


def _written(span: ExportedSpan) -> str:
    return span.text("llm.output_messages.0.message.content") or _text(span.text("output.value"), _SAID)


def _usage(span: ExportedSpan) -> Usage | None:
    read = span.attributes.get("llm.token_count.prompt")
    written = span.attributes.get("llm.token_count.completion")
    # Half of the usage would make a wrong price.
    if read is None or written is None:
        return None
    return Usage(input_tokens=int(read), output_tokens=int(written))


def _timing(root: ExportedSpan, retrievers: Sequence[ExportedSpan], models: Sequence[ExportedSpan]) -> Timing | None:
    if not root.started_at or not root.ended_at:
        return None
    return Timing(
        started_at=root.started_at,
        ended_at=root.ended_at,
        retrieval=_together(retrievers),
        generation=_together(models),
        time_to_first_token=root.attributes.get("rageval.timing.time_to_first_token"),
        waiting=root.attributes.get("rageval.timing.waiting"),
    )


def _together(spans: Iterable[ExportedSpan]) -> float | None:
    """Return the seconds during which at least one of the spans ran."""
    times = sorted((span.started_at, span.ended_at) for span in spans if span.started_at and span.ended_at)
    if not times:
        return None
    total = until = 0
    for start, end in times:
        # Only what is after the end of the spans before it is counted: retrievers run concurrently.
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total / 1e9


def _json_object(value: Any) -> dict[str, Any]:
    """Return the object that an attribute holds, mostly as JSON; empty for anything else."""
    found = _parsed(value) if isinstance(value, str) else value
    return plain_mapping(mapping_or_empty(found))


def _text(value: str, names: Sequence[str]) -> str:
    """Return the question or the answer, which a framework may have wrapped in JSON: ``{"query": "..."}``."""
    if not value.startswith(("{", "[")):
        return value
    return _inner(_parsed(value), names, 0) or value


def _parsed(text: str) -> Any:
    """Return the value that a text holds as JSON; None if it holds none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _inner(value: Any, names: Sequence[str], depth: int) -> str:
    """Return the text under one of the names, at any level of lists, messages and LangChain's ``kwargs``."""
    if isinstance(value, str):
        return value
    if depth > _MOST_DEPTH:
        return ""
    return _first(_inner(part, names, depth + 1) for part in _parts(value, names))


def _parts(value: Any, names: Sequence[str]) -> list[Any]:
    """Return the parts of a value in which a text is looked for, the most likely first."""
    if isinstance(value, list):
        # The last message is the newest.
        return value[::-1]
    fields = mapping_or_empty(value)
    return [fields[name] for name in (*names, *_WRAPPERS) if name in fields]
