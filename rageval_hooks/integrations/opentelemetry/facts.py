"""What one span says, by the tables of ``conventions``: its kind, messages, documents, tool call and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.integrations.capture.passages import passage_of, text_results
from rageval_hooks.integrations.capture.values import names_search_results, queries_among
from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.messages import Said, ToolResult, is_content, messages_in, messages_of
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan, nested
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.runtime.narrowing import is_number, items_or_empty, mapping_or_empty, mappings_in
from rageval_hooks.turn import Passage, Usage

_OUR_METADATA = "rageval.document."


@dataclass(eq=False)
class Facts:
    """One span as the rules for turns see it.

    Attributes:
        span: the span.
        kind: what it does; None for a span of the application or of a server.
        parent: the span around it; None without one, or if it is missing.
        children: the spans directly inside it, by start time.
    """

    span: TracedSpan
    kind: names.Kind | None
    parent: Facts | None = None
    children: list[Facts] = field(default_factory=list)

    @classmethod
    def of(cls, span: TracedSpan) -> Facts:
        """Return the facts of a span, not yet in its place."""
        return cls(span, _kind_of(span))

    def inside(self) -> Iterator[Facts]:
        """Yield the span and all spans inside it, by start time as far as the tree has it."""
        waiting = [self]
        while waiting:
            facts = waiting.pop()
            yield facts
            waiting += reversed(facts.children)

    def around(self) -> Iterator[Facts]:
        """Yield the spans around it, the nearest first."""
        facts = self.parent
        while facts is not None:
            yield facts
            facts = facts.parent

    @cached_property
    def _messages(self) -> tuple[list[Said], list[Said]]:
        given, written = messages_in(self.span)
        if self.kind == "model":
            # OpenInference leaves out parts of messages that it does not know; the input has them all.
            whole = messages_of(self.input, "user")
            given = whole if len(whole) > len(given) else given
            if not any(said.text or said.calls for said in written):
                written = [one for one in messages_of(self.output, "assistant") if one.role == "assistant"] or written
        return given, written

    @property
    def given(self) -> list[Said]:
        """The messages that a model or an agent received."""
        return self._messages[0]

    @property
    def written(self) -> list[Said]:
        """The messages that it wrote."""
        return self._messages[1]

    @property
    def current(self) -> list[Said]:
        """The messages that it received from the last one of the user on: those before are of earlier turns."""
        start = 0
        for position, said in enumerate(self.given):
            if said.role == "user" and said.text:
                start = position
        return self.given[start:]

    @property
    def answer(self) -> str:
        """What it wrote, unless that asks for tools."""
        last = next((said for said in reversed(self.written) if said.role == "assistant"), None)
        return "" if last is None or last.calls else last.text

    @cached_property
    def input(self) -> Any:
        """The input, parsed; None without one."""
        return _first_value(self.span, names.INPUTS)

    @cached_property
    def output(self) -> Any:
        """The output, parsed; None without one."""
        return _first_value(self.span, names.OUTPUTS)

    @property
    def tasks(self) -> list[Mapping[str, Any]]:
        """The tasks of a crew."""
        return mappings_in(read_repr(self.span.attributes.get(names.TASKS)))

    @cached_property
    def query(self) -> str:
        """What a retriever searched for."""
        if is_content(found := self.first(names.QUERIES)):
            return str(found)
        return self.input if isinstance(self.input, str) else next(iter(queries_among(_unwrapped(self.input))), "")

    @cached_property
    def documents(self) -> list[Passage]:
        """What a retriever or reranker returned, as far as the span has the texts."""
        for prefix in names.DOCUMENTS[::-1] if self.kind == "rerank" else names.DOCUMENTS:
            if found := list(filter(None, map(_document, items_or_empty(nested(self.span.attributes, prefix))))):
                return found
        for name in names.DOCUMENTS_JSON:
            if found := list(filter(None, map(passage_of, mappings_in(read_repr(self.span.attributes.get(name)))))):
                return found
        listed = _unwrapped(self.output).get("documents")
        return documents_in(self.output if listed is None else listed) if self.kind in ("search", "rerank") else []

    @cached_property
    def document_ids(self) -> list[Mapping[str, Any]]:
        """Ids and scores of what a retriever returned, where the span has no texts."""
        return mappings_in(read_repr(next((self.span.attributes.get(name) for name in names.DOCUMENTS_JSON), None)))

    @cached_property
    def variables(self) -> dict[str, Any]:
        """The variables of a prompt, and the fields of a function's input, by name."""
        found: dict[str, Any] = {}
        for prefix in names.VARIABLES:
            found |= {name: read_repr(value) for name, value in self.span.below(prefix).items() if is_content(value)}
        for name in names.VARIABLES_JSON:
            found |= mapping_or_empty(read_repr(self.span.attributes.get(name)))
        if self.kind in ("chain", "agent"):
            found |= {name: item for name, item in _unwrapped(self.input).items() if is_content(item)}
        return found

    @property
    def context(self) -> list[Any]:
        """The variables that are named like search results."""
        return [value for name, value in self.variables.items() if names_search_results(name) and is_content(value)]

    def tool_results(self) -> list[ToolResult]:
        """Return what a span of a tool returned: the messages with results, or its output."""
        if self.kind != "tool":
            return []
        said = [result for one in messages_of(self.output, "") for result in one.results]
        if said and self.span.text(names.COMPONENT):
            return said
        name, call_id = self.first(names.TOOL_NAMES) or self.span.name, self.first(names.CALL_IDS) or ""
        return [ToolResult(name, call_id, _tool_output(self.output), _unwrapped(self.input) or self.input)]

    @cached_property
    def usage(self) -> Usage | None:
        """The tokens of a model call."""
        read, written = (
            next((self.span.attributes[name] for name in some if is_number(self.span.attributes.get(name))), None)
            for some in (names.INPUT_TOKENS, names.OUTPUT_TOKENS)
        )
        if read is None and written is None and self.kind == "model":
            meta = next(_usages(self.output), {})
            read, written = meta.get("prompt_tokens"), meta.get("completion_tokens")
        # Half of the usage would make a wrong price.
        known = is_number(read) and is_number(written)
        return Usage.model_validate({"input_tokens": read, "output_tokens": written}) if known else None

    def first(self, some: Sequence[str]) -> str | None:
        """Return the first of some attributes that the span has, as a text."""
        return next((text for name in some if (text := self.span.text(name))), None)


def tree_of(spans: Iterable[TracedSpan]) -> list[Facts]:
    """Return the outermost spans of a trace, by start time, with the others inside them. Parents may be missing."""
    by_id = {span.span_id: Facts.of(span) for span in sorted(spans, key=lambda span: (span.started_at, -span.ended_at))}
    tops = []
    for facts in by_id.values():
        outer = by_id.get(facts.span.parent_id)
        # The request of a web server may be missing. An export may name a span as its own parent.
        if outer is None or outer is facts:
            tops.append(facts)
        else:
            facts.parent = outer
            outer.children.append(facts)
    return tops


def _kind_of(span: TracedSpan) -> names.Kind | None:
    if span.span_kind and (kind := names.KINDS[0][1].get(span.kind)):
        return kind
    if component := span.text(names.COMPONENT):
        return next((kind for ending, kind in names.COMPONENTS if component.endswith(ending)), "chain")
    for name, kinds in names.KINDS:
        value = span.text(name).strip('"')
        if (kind := kinds.get(value) or kinds.get(value.upper())) is not None:
            # A framework's own name of a search comes before that of a step or a function.
            is_step = kind == "chain" and name != "gen_ai.operation.name"
            return "search" if is_step and _is_retriever(span) and span.parent_id else kind
    if span.name in names.NAMES:
        return names.NAMES[span.name]
    has_messages = any(name.startswith((*names.NUMBERED_OUT, *names.MESSAGES_OUT)) for name in span.attributes)
    return "model" if has_messages else "agent" if "final_result" in span.attributes else None


def _is_retriever(span: TracedSpan) -> bool:
    name = (span.text("traceloop.entity.name") or span.name).lower()
    return "retriev" in name and "queryengine" not in name.replace("_", "")


def _first_value(span: TracedSpan, some: Sequence[str]) -> Any:
    for name in some:
        value = span.attributes.get(name)
        kind = span.text(f"{name.removesuffix('.value')}.mime_type")
        if isinstance(value, str) and value.startswith('"') and (name.startswith("mlflow.") or "json" in kind):
            value = parsed_text(value)
        if is_content(value):
            read = read_repr(value)
            # A list of plain items is a text that looks like this: "['apple', 'banana']".
            is_plain = isinstance(read, list) and not any(isinstance(item, (dict, list)) for item in read)
            if is_content(read):
                return value if is_plain else read
    return None


def parsed_text(value: str) -> str:
    """Return the text that JSON holds: MLflow writes each value as JSON."""
    try:
        return str(json.loads(value))
    except ValueError:
        return value


_AROUND = ("inputs", "kwargs", "data", "input", "args", "kwargs")


def _unwrapped(value: Any, depth: int = 3) -> Mapping[str, Any]:
    """Return the fields of an input, without what a convention puts around them: {"args": [], "kwargs": {…}}."""
    fields = mapping_or_empty(value)
    for name in _AROUND:
        if depth and isinstance(fields.get(name), dict) and fields[name]:
            inner = _unwrapped(fields[name], depth - 1)
            return {**{key: item for key, item in fields.items() if key != name}, **inner}
    return fields


def _document(item: Any) -> Passage | None:
    fields = mapping_or_empty(mapping_or_empty(item).get("document")) or mapping_or_empty(item)
    content = fields.get("content")
    if not is_content(content) or not isinstance(content, str):
        return None
    metadata = fields.get("metadata")
    # Metadata is one attribute with JSON in OTLP, and several attributes in tables.
    known = dict(mapping_or_empty(read_repr(metadata)))
    ours = {name: known.pop(f"{_OUR_METADATA}{name}", None) for name in ("in_prompt", "prompt_share")}
    inner = mapping_or_empty(mapping_or_empty(known.get("rageval")).get("document"))
    if inner:
        del known["rageval"]
        ours |= {name: inner.get(name) for name in ours if ours[name] is None}
    identity = fields.get("id")
    score = fields.get("score")
    return Passage(
        text=content,
        id=None if identity is None or identity == "" else str(identity),
        score=float(score) if is_number(score) else None,
        metadata=known,
        **ours,
    )


def documents_in(value: Any) -> list[Passage]:
    """Return the passages in the output of a search."""
    if isinstance(value, str):
        value = read_repr(value)
    if isinstance(value, (list, tuple)):
        value = [read_repr(item) for item in value]
    return [one for one in text_results(value, {}, is_field=True) if is_content(one.text)] if value else []


def _tool_output(value: Any) -> Any:
    """Return the result of a tool without what a convention puts around it: {"output": …}, {"result": …}."""
    fields = mapping_or_empty(value)
    if "response" in fields and fields.keys() <= {"id", "name", "response"}:  # Google's function response
        return _tool_output(fields["response"])
    if len(fields) <= 3:
        for name in ("result", "output", "outputs", "content", "tool_response", "response"):
            if name in fields and (len(fields) == 1 or name in ("result", "output")):
                return _tool_output(read_repr(fields[name]))
    return value


def _usages(value: Any, depth: int = 6) -> Iterator[Mapping[str, Any]]:
    """Yield the counts of tokens in an output: {"replies": [{"meta": {"usage": {"prompt_tokens": 5, …}}}]}."""
    value = read_repr(value)
    if isinstance(value, Mapping):
        if "prompt_tokens" in value:
            yield value
        elif depth:
            for item in value.values():
                yield from _usages(item, depth - 1) if isinstance(item, (Mapping, list, str)) else ()
    elif depth:
        for item in items_or_empty(value):
            yield from _usages(item, depth - 1)
