"""The passages of a turn, from its spans: from where they are certain to where they have to be read out of a prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rageval_hooks.integrations.capture.evidence import WRITTEN_BY_MODEL, Evidence
from rageval_hooks.integrations.capture.passages import mark_seen, passage_key, text_results, unique_passages
from rageval_hooks.integrations.capture.recorder import Framework, Run
from rageval_hooks.integrations.capture.turns import prompt_text
from rageval_hooks.integrations.capture.values import queries_among
from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.facts import Facts, documents_in
from rageval_hooks.integrations.opentelemetry.messages import ToolResult, is_content
from rageval_hooks.integrations.opentelemetry.prompts import parts_of, passages_in
from rageval_hooks.integrations.opentelemetry.question_and_answer import strings_in
from rageval_hooks.integrations.opentelemetry.turn_spans import SEARCHES, TurnSpans
from rageval_hooks.runtime.jsonable import string_of
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty, mappings_in
from rageval_hooks.turn import Passage, StepKind, Turn

STEPS: Mapping[str, StepKind] = {"model": "llm", "search": "retriever", "rerank": "reranker", "tool": "tool"}
"""The kinds of spans that are steps of a turn."""

Parts = Mapping[str, Sequence[Turn]]
"""Turns that an integration has captured inside a span, by the id of the span."""


class TurnPassages:
    """Finds the passages of a turn.

    Args:
        spans: the spans of the turn.
        question: the question.
        search_tools: the setting of this name.
        parts: what integrations have captured inside the spans.

    Attributes:
        found: what each search found, by the id of its span.
        left_out: why the result of a tool is no passage, by the id of its span.
        passages: the passages.
    """

    def __init__(self, *, spans: TurnSpans, question: str, search_tools: Collection[str], parts: Parts) -> None:
        self._spans = spans
        self._question = question
        self._parts = parts
        self._runs = _runs_of(spans)
        self._evidence = Evidence(list(self._runs.values()), search_tools)
        self.left_out: dict[str, str] = {}
        self.found: dict[str, list[Passage]] = {}
        self.passages = self._collect()

    def _collect(self) -> tuple[Passage, ...]:
        found = self._retrieved() or self._of_tools()
        # A step of the agent that is no tool may have searched, too.
        found += [one for facts in self._spans.all if facts.kind != "tool" for one in self._found_by_parts(facts)]
        if not found:
            found = self._of_outputs() or self._of_variables() or self._of_prompt()
        marked = mark_seen(found, self._prompt)
        # What tools return reaches the model, in whatever form.
        return unique_passages(new if new.in_prompt else old for old, new in zip(found, marked, strict=True))

    @property
    def _prompt(self) -> str | None:
        model = self._spans.answering
        if model is None or not all(said.text or said.calls or said.results for said in model.given):
            return None
        return prompt_text(said.message for said in model.given) or None

    def _retrieved(self) -> list[Passage]:
        searches = [one for one in self._spans.of_kind("search", "rerank", "model") if one.kind != "model"]
        for facts in searches:
            self.found[facts.span.span_id] = self._unwritten(facts, facts.documents, [facts.query])
        # A reranker receives what the retrievers found, and its output is what the prompt has.
        rerankers = [self.found[one.span.span_id] for one in searches if one.kind == "rerank"]
        for earlier, later in pairwise(rerankers[:]):
            if {passage_key(one) for one in later} <= {passage_key(one) for one in earlier}:
                rerankers.remove(earlier)
        lists = rerankers if any(rerankers) else [self.found[one.span.span_id] for one in searches]
        found = [passage for passages in lists for passage in passages]
        marked = mark_seen(found, self._prompt)
        # Tools format documents as they like: only where the prompt has some of them, the others were dropped.
        found = list(marked) if any(passage.in_prompt for passage in marked) else found
        return [*found, *self._of_tools()] if found else []

    def _of_tools(self) -> list[Passage]:
        found, seen = list[Passage](), set[str]()
        tools = [one for one in self._spans.all if one.kind == "tool"]
        for tool in tools:
            inside = [one for one in tool.inside() if one is not tool]
            # A retriever has what was found, or a tool of an agent that is a tool itself.
            if any(one.kind in SEARCHES and one.documents for one in inside) or any(
                result.value is not None for one in inside for result in one.tool_results()
            ):
                continue
            results = tool.tool_results()
            seen.update(result.call_id for result in results)
            if parts := [one for facts in tool.inside() for one in self._found_by_parts(facts)]:
                self.found[tool.span.span_id] = parts
                found += parts
                continue
            for result in results:
                found += self._results(result, tool)
        if not found and not any(self.left_out):
            model = self._spans.answering or next(iter(reversed(self._spans.models)), self._spans.root)
            for said in () if model is None else model.current:
                for result in said.results:
                    if not result.call_id or result.call_id not in seen:
                        found += self._results(self._with_call(result, model), None)
        return found

    def _found_by_parts(self, facts: Facts) -> list[Passage]:
        """Return what an integration has found inside a span, with the ids of the store."""
        return [passage for part in self._parts.get(facts.span.span_id, ()) for passage in part.prompt_passages]

    def _with_call(self, result: ToolResult, model: Facts | None) -> ToolResult:
        """Return a result with the name and the arguments of its call, which an earlier message has."""
        calls = [call for said in (model.current if model is not None else ()) for call in said.calls]
        call = next((one for one in calls if one.id and one.id == result.call_id), None)
        if call is None and not result.name:
            call = calls[-1] if calls else None
        if call is None:
            return result
        return ToolResult(result.name or call.name, result.call_id, result.value, result.arguments or call.arguments)

    def _results(self, result: ToolResult, tool: Facts | None) -> list[Passage]:
        if result.value is None or not is_content(result.value):
            return []
        about = self._descriptions.get(result.name) or (None if tool is None else tool.first(names.TOOL_DESCRIPTIONS))
        is_search, reason = self._evidence.tool_searches(
            result.name, description=about, arguments=result.arguments, result=result.value
        )
        place = result.name if tool is None else tool.span.span_id
        if not is_search:
            self.left_out[place] = reason
            return []
        about_all = {"tool": result.name}
        ids = [about for one in (tool.inside() if tool is not None else ()) for about in one.document_ids]
        if ids and isinstance(result.value, str):  # the texts that a retriever inside found, joined by the tool
            found = [one.model_copy(update={"metadata": about_all}) for one in passages_in(result.value, len(ids))]
            found = _with_ids(found, ids)
        else:
            found = [_plain(passage) for passage in text_results(result.value, about_all) if is_content(passage.text)]
        arguments = mapping_or_empty(read_repr(result.arguments))
        kept = found if tool is None else self._unwritten(tool, found, queries_among(arguments))
        if found and not kept:
            self.left_out[place] = WRITTEN_BY_MODEL
        self.found[place] = kept
        return kept

    @cached_property
    def _descriptions(self) -> dict[str, str]:
        """What tools say of themselves, by name."""
        found: dict[str, str] = {}
        for model in self._spans.models:
            for item in mappings_in(read_repr(model.span.attributes.get("gen_ai.tool.definitions"))):
                found[string_of(item.get("name"))] = string_of(item.get("description") or "")
        return found

    def _of_outputs(self) -> list[Passage]:
        """Return the documents in the output of a pipeline: {"retriever": {"documents": […]}, "llm": {…}}."""
        outputs = [mapping_or_empty(facts.output) for facts in self._spans.all if facts.kind == "chain"]
        fields = [part for output in outputs for part in (output, *map(mapping_or_empty, output.values()))]
        listed: Any = next((part["documents"] for part in fields if items_or_empty(part.get("documents"))), [])
        return documents_in(listed)

    def _of_variables(self) -> list[Passage]:
        values = [value for facts in self._spans.all for value in facts.context]
        ids = [one for facts in self._spans.of_kind("search") for one in facts.document_ids]
        for value in values:
            found = (
                list(passages_in(value, len(ids) or None))
                if isinstance(value, str)
                else [_plain(one) for one in text_results(value, {}, is_field=True)]
            )
            if found := [one for one in found if is_content(one.text) and " " in one.text.strip()]:
                return _with_ids(found, ids)
        return []

    def _of_prompt(self) -> list[Passage]:
        model = self._spans.answering
        ids = [one for facts in self._spans.of_kind("search") for one in facts.document_ids]
        given = () if model is None else [*(one for one in model.given if one.role == "system"), *model.current]
        for said in reversed(given):
            if said.role in ("user", "system") and said.text:
                context = parts_of(said.text, self._question).context
                if context and is_content(context) and (found := passages_in(context, len(ids) or None)):
                    return _with_ids(found, ids)
        return []

    def _unwritten(self, facts: Facts, found: Sequence[Passage], queries: Iterable[str]) -> list[Passage]:
        """Return the passages that no model of the turn wrote."""
        return self._evidence.among(found, self._evidence.found_at(self._runs[facts.span.span_id]), lambda: queries)


def _runs_of(spans: TurnSpans) -> dict[str, Run]:
    """Return the spans as runs, by their ids."""
    runs: dict[str, Run] = {}
    for facts in spans.all:
        outer = next((runs[one.span.span_id] for one in facts.around() if one.span.span_id in runs), None)
        runs[facts.span.span_id] = Run(
            id=facts.span.span_id,
            parent=outer,
            framework=_FRAMEWORK,
            kind=STEPS.get(facts.kind or "", "chain"),
            name=facts.span.name,
            input=facts,
            started_at=facts.span.started_at,
            ended_at=facts.span.ended_at,
        )
    return runs


def _given_text(run: Run) -> str:
    facts: Facts = run.input
    if facts.given:
        return prompt_text(said.message for said in facts.given)
    return "\n".join(strings_in(facts.input))


def _returned_text(run: Run) -> str:
    facts: Facts = run.input
    if facts.kind == "model":
        return "\n".join((said.text or "") + "\n".join(call.arguments for call in said.calls) for said in facts.written)
    return "\n".join(passage.text for passage in facts.documents) or "\n".join(strings_in(facts.output))


_FRAMEWORK = Framework(
    "opentelemetry",
    turn_of=lambda *_args, **_kwargs: Turn(),
    ambient=lambda: None,
    given_text=_given_text,
    returned_text=_returned_text,
)


def _with_ids(found: Sequence[Passage], ids: Sequence[Mapping[str, Any]]) -> list[Passage]:
    """Return passages with the ids and scores that a search reports without the texts, if there are as many."""
    if len(found) != len(ids) or any(passage.id for passage in found):
        return list(found)
    pairs = zip(found, ids, strict=True)
    return [
        one.model_copy(update={"id": string_of(about.get("id")), "score": about.get("score")}) for one, about in pairs
    ]


def _plain(passage: Passage) -> Passage:
    """Return a passage whose text is not the ``repr`` of a document."""
    read = read_repr(passage.text)
    text = mapping_or_empty(read).get("content") or mapping_or_empty(read).get("page_content")
    return passage.model_copy(update={"text": text}) if isinstance(text, str) else passage
