"""From the spans of a trace to the turns in it: OpenInference's attributes, and ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rageval_hooks.offline.records.aliases import explain
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, read_groups
from rageval_hooks.offline.records.spans import ExportedSpan, spans_of, trace_ids
from rageval_hooks.runtime.jsonable import plain_mapping
from rageval_hooks.score import Result, Score
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Timing, Turn, Usage

__all__ = ["read_traces", "records_from_spans"]

_TURN_ID = "rageval.turn.id"
_RETRIEVAL = ("RETRIEVER", "RERANKER")
_ROOTS = ("CHAIN", "AGENT")
_DOCUMENTS = {"RETRIEVER": "retrieval.documents", "RERANKER": "reranker.output_documents"}
_ASKED = ("query", "question", "input", "user_input", "query_str", "query_bundle", "content", "text")
_SAID = ("answer", "response", "output", "result", "generated_answer", "content", "text")
_MOST_DEPTH = 12


def read_traces(path: Path) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield the turns of an export of traces, each with the line on which its trace begins.

    Traces without a turn (nothing was retrieved, or nothing was answered from it) are passed over.
    """
    for group in read_groups(path, lambda row: trace_ids(row.data)):
        if isinstance(group, BadRow):
            yield group.line, group
            continue
        spans = [span for row in group.rows for span in spans_of(row) if span.trace_id == group.key]
        try:
            for record in records_from_spans(spans):
                yield group.line, record
        except ValidationError as error:
            yield group.line, BadRow(group.line, f"trace {group.key}: {explain(error)}", {"trace_id": group.key})


def records_from_spans(spans: Iterable[ExportedSpan]) -> list[Record]:
    """Return the turns of one trace, in the order of their beginnings."""
    tree = _Tree(spans)
    return [_record(tree, root) for root in sorted(tree.roots(), key=lambda span: span.started_at)]


class _Tree:
    """The spans of a trace, as a tree."""

    def __init__(self, spans: Iterable[ExportedSpan]) -> None:
        self.spans = {span.span_id: span for span in spans}
        self._children: dict[str, list[ExportedSpan]] = {}
        for span in sorted(self.spans.values(), key=lambda span: span.started_at):
            self._children.setdefault(span.parent_id, []).append(span)

    def children(self, span: ExportedSpan) -> list[ExportedSpan]:
        return self._children.get(span.span_id, []) if span.span_id else []

    def below(self, span: ExportedSpan) -> Iterator[ExportedSpan]:
        """Yield the spans inside of a span, outer ones first."""
        seen = {span.span_id}
        waiting = list(self.children(span))
        while waiting:
            child = waiting.pop(0)
            if child.span_id not in seen:
                seen.add(child.span_id)
                yield child
                waiting += self.children(child)

    def outermost(self, span: ExportedSpan, kinds: Sequence[str]) -> Iterator[ExportedSpan]:
        """Yield the spans of some kinds inside of a span that are in no other such span."""
        seen = {span.span_id}
        waiting = self.children(span)[::-1]
        while waiting:
            child = waiting.pop()
            if child.span_id in seen:
                continue
            seen.add(child.span_id)
            if child.kind in kinds:
                yield child
            else:
                waiting += self.children(child)[::-1]

    def roots(self) -> list[ExportedSpan]:
        """Return the spans that are turns: those we have made; else the outermost chains that retrieve."""
        ours = [span for span in self.spans.values() if _TURN_ID in span.attributes]
        if ours:
            return ours
        tops = [span for span in self.spans.values() if span.parent_id not in self.spans]
        chains = [top for top in tops if top.kind in _ROOTS]
        chains += [chain for top in tops if top.kind not in _ROOTS for chain in self.outermost(top, _ROOTS)]
        return [chain for chain in chains if any(span.kind in _RETRIEVAL for span in self.below(chain))]


def _record(tree: _Tree, root: ExportedSpan) -> Record:
    inside = list(tree.below(root))
    retrievers = list(tree.outermost(root, _RETRIEVAL))
    models = [span for span in inside if span.kind == "LLM"]
    ours = _TURN_ID in root.attributes
    query = _text(root.text("input.value"), _ASKED) or next((_retrieval_query(span) for span in retrievers), "")
    response = _text(root.text("output.value"), _SAID) or next((_written(span) for span in reversed(models)), "")
    identity = root.text(_TURN_ID) or root.span_id
    turn = Turn(
        id=identity,
        query=query,
        response=response,
        passages=tuple(_passages(retrievers)),
        usage=Usage.sum(_usage(span) for span in models),
        model=next((span.text("llm.model_name") for span in reversed(models) if span.text("llm.model_name")), None),
        timing=_timing(root, retrievers, models),
        span=SpanReference(trace_id=root.trace_id, span_id=root.span_id, external=not ours),
        status="ok" if root.error is None else "error",
        error=None if root.error is None else ErrorInfo(type="Error", message=root.error),
        name=root.name or "turn",
        framework=root.text("rageval.framework") or None,
        session_id=root.text("session.id") or None,
        user_id=root.text("user.id") or None,
        metadata=_json_object(root.attributes.get("metadata")),
    )
    scored = [root, *(span for span in inside if span.kind == "EVALUATOR")]
    return Record(id=identity, turn=turn, results=tuple(result for span in scored for result in _scores(span)))


def _passages(retrievers: Sequence[ExportedSpan]) -> list[Passage]:
    """Return the context: what the last reranker has left of it, else what all retrievers have found."""
    rerankers = [span for span in retrievers if span.kind == "RERANKER"]
    found: dict[tuple[str | None, str], Passage] = {}
    for span in rerankers[-1:] or retrievers:
        for passage in _documents(span):
            found.setdefault((passage.id, passage.text), passage)
    return list(found.values())


def _documents(span: ExportedSpan) -> Iterator[Passage]:
    number = 0
    while True:
        prefix = f"{_DOCUMENTS[span.kind]}.{number}.document."
        fields = {
            name.removeprefix(prefix): value for name, value in span.attributes.items() if name.startswith(prefix)
        }
        if not fields:
            return
        metadata = _json_object(fields.get("metadata"))
        metadata.update({n.removeprefix("metadata."): v for n, v in fields.items() if n.startswith("metadata.")})
        in_prompt = metadata.pop("rageval.document.in_prompt", None)
        share = metadata.pop("rageval.document.prompt_share", None)
        yield Passage(
            text=str(fields.get("content") or ""),
            id=None if fields.get("id") is None else str(fields["id"]),
            score=fields.get("score"),
            metadata=metadata,
            in_prompt=in_prompt,
            prompt_share=share,
        )
        number += 1


def _retrieval_query(span: ExportedSpan) -> str:
    return _text(span.text("input.value") or span.text("reranker.query"), _ASKED)


def _written(span: ExportedSpan) -> str:
    return span.text("llm.output_messages.0.message.content") or _text(span.text("output.value"), _SAID)


def _usage(span: ExportedSpan) -> Usage | None:
    read, written = span.attributes.get("llm.token_count.prompt"), span.attributes.get("llm.token_count.completion")
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
    )


def _together(spans: Iterable[ExportedSpan]) -> float | None:
    """Return the seconds during which at least one of some spans ran."""
    total, until = 0, 0
    times = sorted((span.started_at, span.ended_at) for span in spans if span.started_at and span.ended_at)
    for start, end in times:
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total / 1e9 if times else None


def _scores(span: ExportedSpan) -> Iterator[Result]:
    """Yield the scores of the whole turn that stand on a span; those of its passages may have the same names."""
    number, seen = 0, set()
    while (name := span.text(f"evaluations.{number}.evaluation.name")) != "":
        prefix = f"evaluations.{number}.evaluation."
        value = span.attributes.get(f"{prefix}score")
        annotator = span.text(f"{prefix}annotator_kind")
        whole = span.attributes.get(f"rageval.score.{name}")
        if isinstance(value, (int, float)) and value == whole and name not in seen:
            seen.add(name)
            yield Score(
                name=name,
                value=value,
                label=span.text(f"{prefix}label") or None,
                explanation=span.text(f"{prefix}explanation") or None,
                annotator="LLM" if annotator == "LLM" else "HUMAN" if annotator == "HUMAN" else "CODE",
                model=span.text(f"{prefix}identifier") or None,
                metric=span.text("rageval.metric") or None,
            )
        number += 1


def _json_object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return plain_mapping(value) if isinstance(value, Mapping) else {}


def _text(value: str, names: Sequence[str]) -> str:
    """Return what a user has asked or was told: a framework may have wrapped it in JSON."""
    if value[:1] not in ("{", "["):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return _inner(found, names, 0) or value


def _inner(value: Any, names: Sequence[str], depth: int) -> str:
    if isinstance(value, str):
        return value
    if depth > _MOST_DEPTH:
        return ""
    if isinstance(value, list):
        return next((text for item in reversed(value) if (text := _inner(item, names, depth + 1))), "")
    if isinstance(value, Mapping):
        for name in (*names, "messages", "kwargs", "message"):
            if name in value and (text := _inner(value[name], names, depth + 1)):
                return text
    return ""
