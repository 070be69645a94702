"""From finished spans to turns: pure functions for every source of spans.

Read :func:`turns_from_spans` first: it finds which spans make a turn. ``TurnBuilder`` finds the question, the passages
and the answer among them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from rageval_hooks.integrations.capture.authorship import Authors, carries
from rageval_hooks.integrations.capture.passages import mark_seen, passage_key, text_results, unique_passages
from rageval_hooks.integrations.capture.recorder import Framework, Run
from rageval_hooks.integrations.capture.search_tools import classify_tool
from rageval_hooks.integrations.capture.turns import busy_times, prompt_text, rewritten
from rageval_hooks.integrations.capture.values import answer_keys_in, queries_among, question_among
from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.facts import Facts, documents_in, tree_of
from rageval_hooks.integrations.opentelemetry.messages import Said, ToolResult, is_content, messages_of
from rageval_hooks.integrations.opentelemetry.prompts import parts_of, passages_in
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan
from rageval_hooks.runtime.jsonable import string_of
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty, mappings_in
from rageval_hooks.turn import Passage, SpanReference, Step, StepKind, Timing, Turn, Usage

TURN_ID = "rageval.turn.id"
"""Attribute of a span that this package wrote for a turn."""

_ASKED = "query question input user_input query_str query_bundle task user_message message prompt topic content text"
_SAID = ("answer", "response", "output", "result", "generated_answer", "final_answer", "raw", "content", "text")
_WRAPPERS = ("messages", "kwargs", "message", "data", "replies", "outputs", "llm", "generator")
_MAX_DEPTH = 8
_STEPS: Mapping[str, StepKind] = {"model": "llm", "search": "retriever", "rerank": "reranker", "tool": "tool"}
# "[[ ## answer ## ]]" of DSPy's prompts and answers.
_FIELD = re.compile(r"^\[\[ ## (\w{1,80}) ## \]\][ \t]{0,8}$", re.MULTILINE)


Parts = Mapping[str, Sequence[Turn]]
Make = Callable[[Sequence[Facts]], "TurnBuilder"]
_NO_PARTS: Parts = {}


@dataclass(frozen=True)
class NoTurn:
    """Why spans make no turn.

    Attributes:
        reason: the reason, for a reader.
        cause: ``no_answer``; ``search_only`` for a search, whose answer may be in another trace; or ``no_content`` if
            the spans have no texts.
        instrumentor: who made the spans.
        span_id: the outermost of them.
    """

    reason: str
    cause: str
    instrumentor: str = ""
    span_id: str = ""


def turn_from_spans(spans: Iterable[TracedSpan], search_tools: Collection[str] = ()) -> Turn | NoTurn:
    """Return the turn of some spans, the first of several; see :func:`turns_from_spans`."""
    found = list(turns_from_spans(spans, search_tools))
    turn = next((one for one in found if isinstance(one, Turn)), None)
    return turn or next(iter(found), NoTurn("no span is of a model, an agent or a search", "no_answer"))


def turns_from_spans(spans: Iterable[TracedSpan], search_tools: Collection[str] = ()) -> Iterator[Turn | NoTurn]:
    """Yield the turns of spans by their start, and why other spans make none.

    An outermost agent, chain or workflow is a turn. Calls of models, searches and tools that the application makes by
    itself are one turn up to the call that answers from passages.

    Args:
        spans: finished spans of one or more traces. Parents may be missing.
        search_tools: the setting of this name.
    """
    for builder in builders_of(spans, search_tools):
        yield builder.turn()


def builders_of(
    spans: Iterable[TracedSpan], search_tools: Collection[str] = (), parts: Parts = _NO_PARTS
) -> Iterator[TurnBuilder]:
    """Yield a builder for each turn; see :func:`turns_from_spans`.

    Args:
        spans: finished spans.
        search_tools: the setting of this name.
        parts: turns that an integration has captured inside a span, by the id of the span.
    """
    traces: dict[str, list[TracedSpan]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    for trace in traces.values():
        make = partial(TurnBuilder, search_tools=search_tools, parts=parts)
        tops = tree_of(trace)
        if any(TURN_ID in span.attributes for span in trace):
            yield from (make([one]) for top in tops for one in top.inside() if TURN_ID in one.span.attributes)
            continue
        done, rest = _segments(tops, make)
        kept: list[TurnBuilder] = []
        for builder in sorted((*done, *_split(rest, make)), key=lambda one: one.started_at):
            # Two tracers at once: the same answer to the same question at the same time.
            if not any(builder.repeats(other) for other in kept):
                kept.append(builder)
        yield from kept


def _segments(nodes: Sequence[Facts], make: Make) -> tuple[list[TurnBuilder], list[Facts]]:
    """Return the turns among spans at one level and below, and the spans that belong to none of them so far."""
    done, waiting = list[TurnBuilder](), list[Facts]()
    for node in nodes:
        if node.kind is None:
            inner, rest = _segments(node.children, make)
            if inner and waiting:
                inner[0], waiting = make([*waiting, *inner[0].units]), []
            done += inner
            waiting += rest
        elif node.kind not in ("embedding", "evaluation"):
            waiting.append(node)
            segment = make(waiting)
            if done and segment.follows(done[-1]):
                # A check, a title or a follow-up question: the answer stays what it was.
                done[-1].later += waiting
                waiting = []
            elif segment.response and segment.passages:
                done.append(segment)
                waiting = []
    return done, waiting


def _split(rest: Sequence[Facts], make: Make) -> Iterator[TurnBuilder]:
    """Yield what is left over, up to each answer: turns without passages, and searches without an answer."""
    waiting = list[Facts]()
    for facts in rest:
        waiting.append(facts)
        if make([facts]).response:
            yield make(waiting)
            waiting = []
    if waiting:
        yield make(waiting)


class TurnBuilder:
    """The turn of some spans.

    Args:
        units: the outermost spans of the turn, by start time.
        search_tools: the setting of this name.
        parts: turns that an integration has captured inside a span, by the id of the span.

    Attributes:
        later: spans after the answer that belong to the turn.
    """

    def __init__(self, units: Sequence[Facts], search_tools: Collection[str] = (), parts: Parts = _NO_PARTS) -> None:
        self.units = list(units)
        self.later: list[Facts] = []
        self._search_tools = search_tools
        self._parts = parts
        self._left_out: dict[str, str] = {}
        self._found: dict[str, list[Passage]] = {}

    @property
    def instrumentor(self) -> str:
        """Who made the spans."""
        return instrumentor_of(self._all)[0]

    def has(self, span_id: str) -> bool:
        """Return True if a span is part of the turn."""
        return any(facts.span.span_id == span_id for facts in self._all)

    @property
    def started_at(self) -> int:
        """When the first span began."""
        return min(unit.span.started_at for unit in self.units)

    @property
    def _ended_at(self) -> int:
        return max(unit.span.ended_at for unit in self.units)

    def follows(self, other: TurnBuilder) -> bool:
        """Return True if this is one call of a model that was given the answer of another turn to work on."""
        last = self.units[-1]
        return (
            last.kind == "model"
            and bool(other.response)
            and last.parent is other.units[-1].parent
            and any(carries(said.text, other.response) for said in last.current if said.role != "assistant")
        )

    def repeats(self, other: TurnBuilder) -> bool:
        """Return True if another tracer has made the same turn of the same calls."""
        ours, theirs = self.units[-1].span, other.units[-1].span
        overlap = self.started_at < other._ended_at and other.started_at < self._ended_at
        differs = (ours.scope or instrumentor_of(self.units)) != (theirs.scope or instrumentor_of(other.units))
        return overlap and differs and bool(self.response) and self.response == other.response

    # ----------------------------------------------------------------------- spans by kind

    @cached_property
    def _all(self) -> list[Facts]:
        found = [facts for unit in self.units for facts in unit.inside()]
        return sorted(found, key=lambda facts: (facts.span.started_at, -facts.span.ended_at))

    def _outermost(self, *kinds: str) -> list[Facts]:
        return [
            facts
            for facts in self._all
            if facts.kind in kinds and not any(outer.kind in kinds for outer in facts.around())
        ]

    @cached_property
    def _models(self) -> list[Facts]:
        """The model calls outside of searches, the outermost of nested ones that has the texts."""
        found = [one for one in self._outermost("model") if not any(o.kind in _SEARCHES for o in one.around())]
        return [self._with_texts(model) for model in found]

    def _with_texts(self, model: Facts) -> Facts:
        inner = [one for one in model.inside() if one.kind == "model" and (one.given or one.written)]
        return next((one for one in inner if one.given and one.written), next(iter(inner), model))

    @cached_property
    def _answering(self) -> Facts | None:
        """The model call that wrote the answer: the last one that asked for no tools."""
        return next((model for model in reversed(self._models) if model.answer), None)

    @property
    def _root(self) -> Facts | None:
        """The agent, chain or workflow around everything."""
        last = self.units[-1]
        return last if last.kind in ("agent", "chain") else None

    # ----------------------------------------------------------------------- the answer

    @cached_property
    def response(self) -> str:
        """The answer; empty without one."""
        written = "" if self._answering is None else _plain_answer(self._answering.answer)
        root = self._root
        if root is None:
            return written
        if root.kind == "chain" and not _works(root):
            return ""  # for example a step that makes a prompt
        if root.answer:
            return _plain_answer(root.answer)
        for output in (root.output, self._output_inside):
            if isinstance(output, str):
                return _plain_answer(output)
            if output is not None:
                raw = "" if self._answering is None else self._answering.answer
                texts = list(_strings(output))
                if raw and any(raw.strip() in text for text in texts):
                    return written
                if found := _inner(output, _SAID):
                    return _plain_answer(found)
        return written

    @property
    def _output_inside(self) -> Any:
        """The output of the chain or agent that alone is inside the root, which may have none of its own."""
        facts = self._root
        while facts is not None and facts.output is None:
            inner = [one for one in facts.children if one.kind in ("agent", "chain") and _works(one)]
            facts = inner[0] if len(inner) == 1 else None
        return None if facts is None else facts.output

    # ----------------------------------------------------------------------- the question

    @cached_property
    def query(self) -> str:
        """The question; empty if no span has it."""
        return next(filter(None, map(self._asked, self._questions())), "")

    def _questions(self) -> Iterator[str]:
        model = self._answering or next(iter(self._models), None)
        for facts in (model, *self._all):
            variables = {} if facts is None or facts.kind != "model" else facts.variables
            named = (variables.get(name) for name in ("question", "query", "input", "user_input"))
            yield next((text for text in named if isinstance(text, str)), "")
        root = self._root
        outer = [] if root is None else [root, *(one for one in root.inside() if one.kind in ("agent", "chain"))]
        for facts in outer:
            yield from (string_of(task.get("description")) for task in facts.tasks)
            if facts.given:
                yield _last_of_user(facts.given)
            if said := [one for one in messages_of(facts.input, "") if one.role == "user"]:
                yield _last_of_user(said)
            if facts.input is not None:
                yield _inner(facts.input, _ASKED.split()) or question_among(mapping_or_empty(facts.input))
            if facts is root and model is not None:
                yield _last_of_user(model.given)
        if model is not None:
            yield _last_of_user(model.given)
        yield from (facts.query for facts in self._outermost("search", "rerank"))

    def _asked(self, text: str) -> str:
        """Return the question in a text, which may be a prompt with passages."""
        if not is_content(text):
            return ""
        last = text.strip().rpartition("\n")[2].strip()
        known = next((one.query for one in self._outermost("search") if one.query and last.endswith(one.query)), "")
        return parts_of(text).question or (known if last != text.strip() else "") or text

    # ----------------------------------------------------------------------- the passages

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The evidence, from where it is certain to where it has to be read out of a prompt."""
        found = self._retrieved() or self._of_tools()
        # A step of the agent that is no tool may have searched, too.
        found += [one for facts in self._all if facts.kind != "tool" for one in self._found_by_parts(facts)]
        if not found:
            found = self._of_outputs() or self._of_variables() or self._of_prompt()
        marked = mark_seen(found, self._prompt)
        # What tools return reaches the model, in whatever form.
        return unique_passages(new if new.in_prompt else old for old, new in zip(found, marked, strict=True))

    @property
    def _prompt(self) -> str | None:
        model = self._answering
        if model is None or not all(said.text or said.calls or said.results for said in model.given):
            return None
        return prompt_text(said.message for said in model.given) or None

    def _retrieved(self) -> list[Passage]:
        searches = [one for one in self._outermost("search", "rerank", "model") if one.kind != "model"]
        for facts in searches:
            self._found[facts.span.span_id] = self._evidence(facts, facts.documents, [facts.query])
        # A reranker receives what the retrievers found, and its output is what the prompt has.
        rerankers = [self._found[one.span.span_id] for one in searches if one.kind == "rerank"]
        for earlier, later in pairwise(rerankers[:]):
            if {passage_key(one) for one in later} <= {passage_key(one) for one in earlier}:
                rerankers.remove(earlier)
        lists = rerankers if any(rerankers) else [self._found[one.span.span_id] for one in searches]
        found = [passage for passages in lists for passage in passages]
        marked = mark_seen(found, self._prompt)
        # Tools format documents as they like: only where the prompt has some of them, the others were dropped.
        found = list(marked) if any(passage.in_prompt for passage in marked) else found
        return [*found, *self._of_tools()] if found else []

    def _of_tools(self) -> list[Passage]:
        found, seen = list[Passage](), set[str]()
        tools = [one for one in self._all if one.kind == "tool"]
        for tool in tools:
            inside = [one for one in tool.inside() if one is not tool]
            # A retriever has what was found, or a tool of an agent that is a tool itself.
            if any(one.kind in _SEARCHES and one.documents for one in inside) or any(
                result.value is not None for one in inside for result in one.tool_results()
            ):
                continue
            results = tool.tool_results()
            seen.update(result.call_id for result in results)
            if parts := [one for facts in tool.inside() for one in self._found_by_parts(facts)]:
                self._found[tool.span.span_id] = parts
                found += parts
                continue
            for result in results:
                found += self._results(result, tool)
        if not found and not any(self._left_out):
            model = self._answering or next(iter(reversed(self._models)), self._root)
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
        is_search, reason = classify_tool(self._search_tools, result.name, about, result.arguments, result.value)
        place = result.name if tool is None else tool.span.span_id
        if not is_search:
            self._left_out[place] = reason
            return []
        about_all = {"tool": result.name}
        ids = [about for one in (tool.inside() if tool is not None else ()) for about in one.document_ids]
        if ids and isinstance(result.value, str):  # the texts that a retriever inside found, joined by the tool
            found = [one.model_copy(update={"metadata": about_all}) for one in passages_in(result.value, len(ids))]
            found = _with_ids(found, ids)
        else:
            found = [_plain(passage) for passage in text_results(result.value, about_all) if is_content(passage.text)]
        arguments = mapping_or_empty(read_repr(result.arguments))
        kept = found if tool is None else self._evidence(tool, found, queries_among(arguments))
        self._found[place] = kept
        return kept

    @cached_property
    def _descriptions(self) -> dict[str, str]:
        """What tools say of themselves, by name."""
        found: dict[str, str] = {}
        for model in self._models:
            for item in mappings_in(read_repr(model.span.attributes.get("gen_ai.tool.definitions"))):
                found[string_of(item.get("name"))] = string_of(item.get("description") or "")
        return found

    def _of_outputs(self) -> list[Passage]:
        """Return the documents in the output of a pipeline: {"retriever": {"documents": […]}, "llm": {…}}."""
        outputs = [mapping_or_empty(facts.output) for facts in self._all if facts.kind == "chain"]
        fields = [part for output in outputs for part in (output, *map(mapping_or_empty, output.values()))]
        listed: Any = next((part["documents"] for part in fields if items_or_empty(part.get("documents"))), [])
        return documents_in(listed)

    def _of_variables(self) -> list[Passage]:
        values = [value for facts in self._all for value in facts.context]
        ids = [one for facts in self._outermost("search") for one in facts.document_ids]
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
        model = self._answering
        ids = [one for facts in self._outermost("search") for one in facts.document_ids]
        given = () if model is None else [*(one for one in model.given if one.role == "system"), *model.current]
        for said in reversed(given):
            if said.role in ("user", "system") and said.text:
                context = parts_of(said.text, self.query).context
                if context and is_content(context) and (found := passages_in(context, len(ids) or None)):
                    return _with_ids(found, ids)
        return []

    def _evidence(self, facts: Facts, found: Sequence[Passage], queries: Iterable[str]) -> list[Passage]:
        """Return the passages that no model of the turn wrote."""
        if not found:
            return []
        authors, runs = self._authorship
        at = authors.found_at(runs[facts.span.span_id])
        return [one for one in found if not authors.wrote(one.text, at, queries)]

    @cached_property
    def _authorship(self) -> tuple[Authors, dict[str, Run]]:
        runs: dict[str, Run] = {}
        for facts in self._all:
            kind = _STEPS.get(facts.kind or "", "chain")
            outer = next((runs[one.span.span_id] for one in facts.around() if one.span.span_id in runs), None)
            runs[facts.span.span_id] = Run(
                facts.span.span_id,
                outer,
                _FRAMEWORK,
                kind,
                facts.span.name,
                facts,
                facts.span.started_at,
                facts.span.ended_at,
            )
        return Authors(list(runs.values())), runs

    # ----------------------------------------------------------------------- the turn

    def turn(self) -> Turn | NoTurn:
        """Return the turn; why there is none, if nothing was answered or the spans have no texts."""
        inner = self._all
        place = self._place
        who, switch = instrumentor_of(inner)
        searched = any(facts.kind in _SEARCHES for facts in inner)
        if not self.response:
            has_call = bool(self._models) or (self._root is not None and _works(self._root))
            calls = any(model.written for model in self._models)
            failed = place.span.error is not None
            if not (TURN_ID in place.span.attributes or (failed and searched)):
                if has_call and not calls and not failed:
                    asked = any(model.given for model in self._models)
                    reason = f"the spans of {who} have no {'answer' if asked else 'texts'}: {switch}"
                    return NoTurn(reason, "no_content", who, place.span.span_id)
                cause = "search_only" if searched and not has_call else "no_answer"
                return NoTurn("the spans have no answer", cause, who, place.span.span_id)
        missing = {}
        if not self.passages and (searched or self._hides_results):
            missing["passages"] = f"the spans of {who} do not have them: {switch}"
        if not self.query:
            missing["query"] = f"the spans of {who} do not have it: {switch}"
        inner_parts = [part for facts in inner for part in self._parts.get(facts.span.span_id, ())]
        steps = list(self._steps())
        steps += [step for part in inner_parts for step in part.steps]
        span = place.span
        models = [
            facts for facts in (*inner, *(one for late in self.later for one in late.inside())) if facts.kind == "model"
        ]
        usages = [
            one.usage for one in models if not any(outer.kind == "model" and outer.usage for outer in one.around())
        ]
        known = bool(span.started_at and self._ended_at)
        times: dict[str, Any] = {"started_at": self.started_at, "ended_at": self._ended_at, **busy_times(steps)}
        times |= {name: span.attributes.get(f"rageval.timing.{name}") for name in ("time_to_first_token", "waiting")}
        timing = Timing(**times) if known else None
        answering = self._answering
        ours = TURN_ID in span.attributes
        return Turn(
            id=span.text(TURN_ID) or span.span_id,
            query=self.query,
            response=self.response,
            passages=self.passages,
            retrieval_queries=rewritten((one.query for one in self._outermost("search")), self.query),
            prompt=tuple(said.message for said in answering.given) if answering is not None else (),
            usage=Usage.sum([*usages, *(part.usage for part in inner_parts)]),
            model=next(filter(None, (one.first(names.MODELS) for one in reversed(self._models))), None),
            timing=timing,
            steps=() if ours else tuple(steps),
            span=SpanReference(
                trace_id=span.trace_id,
                span_id=span.span_id,
                flags=span.flags,
                parent_span_id=span.parent_id or None,
                external=not ours,
            ),
            name=span.name or "turn",
            framework=span.text("rageval.framework") or who.lower() or None,
            session_id=next(filter(None, (one.first(names.SESSIONS) for one in inner)), None),
            user_id=next(filter(None, (one.first(names.USERS) for one in inner)), None),
            metadata=dict(mapping_or_empty(read_repr(span.attributes.get("metadata")))),
            status="ok" if span.error is None else "error",
            error=span.error,
            missing=missing,
        )

    @property
    def _hides_results(self) -> bool:
        """True if a tool was called whose result is not on the spans."""
        called = [one for one in self._all if one.kind == "tool"]
        return any(result.value is None for tool in called for result in tool.tool_results())

    @property
    def _place(self) -> Facts:
        """The span that the scores belong to: the application's own around calls of models, else the outermost one."""
        last = self.units[-1]
        if last.kind in ("agent", "chain") or last.parent is None:
            return last
        around, others = last.parent, {id(unit) for unit in (*self.units, *self.later)}
        alone = all(id(one) in others or one.kind in (None, *_UNIMPORTANT) for one in around.children)
        return around if around.kind is None and alone else last

    def _steps(self) -> Iterator[Step]:
        kept = {facts.span.span_id for facts in self._all if facts.kind in _STEPS}
        for facts in self._all:
            kind = _STEPS.get(facts.kind or "")
            if kind is None:
                continue
            span, outer = facts.span, next((one for one in facts.around() if one.span.span_id in kept), None)
            yield Step(
                id=span.span_id,
                parent_id=outer.span.span_id if outer is not None else None,
                kind=kind,
                name=facts.first(names.TOOL_NAMES) or span.name,
                started_at=span.started_at,
                ended_at=max(span.started_at, span.ended_at),
                input=facts.query or None if facts.kind in _SEARCHES else None,
                output=facts.answer or None if facts.kind == "model" else None,
                left_out=self._left_out.get(span.span_id),
                passages=tuple(self._found.get(span.span_id, ())),
                model=facts.first(names.MODELS) if facts.kind == "model" else None,
                response_id=facts.first(names.RESPONSE_IDS) if facts.kind == "model" else None,
                usage=facts.usage if facts.kind == "model" else None,
                error=span.error,
                span_id=span.span_id,
                span_tracer=span.scope or None,
            )


_SEARCHES = ("search", "rerank")
_WORKERS = ("model", "agent", "tool", "search", "rerank")


def _works(facts: Facts) -> bool:
    """Return True if an agent or a chain asks a model, searches or calls tools."""
    return facts.kind == "agent" or any(one.kind in _WORKERS for one in facts.inside())


_UNIMPORTANT = ("embedding", "evaluation")


def instrumentor_of(facts: Iterable[Facts]) -> tuple[str, str]:
    """Return who made some spans, and how to record their texts."""
    spans = [one.span for one in facts]
    for part, who, switch in names.SCOPE_SWITCHES:
        if any(part in span.scope for span in spans):
            return who, switch
    for beginning, who, switch in names.SWITCHES:
        if any(name.startswith(beginning) for span in spans for name in span.attributes):
            return who, switch
    return "the tracer", "record the inputs and outputs of its spans"


def _given_text(run: Run) -> str:
    facts: Facts = run.input
    if facts.given:
        return prompt_text(said.message for said in facts.given)
    return "\n".join(_strings(facts.input))


def _returned_text(run: Run) -> str:
    facts: Facts = run.input
    if facts.kind == "model":
        return "\n".join((said.text or "") + "\n".join(call.arguments for call in said.calls) for said in facts.written)
    return "\n".join(passage.text for passage in facts.documents) or "\n".join(_strings(facts.output))


_FRAMEWORK = Framework(
    "opentelemetry",
    turn_of=lambda *_args, **_kwargs: Turn(),
    ambient=lambda: None,
    given_text=_given_text,
    returned_text=_returned_text,
)


def _last_of_user(given: Sequence[Said]) -> str:
    return next((said.text for said in reversed(given) if said.role == "user" and said.text), "")


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


def _plain_answer(text: str) -> str:
    """Return the answer in a text: under DSPy's marks, or under the key of an answer in JSON; else the text."""
    if not is_content(text):
        return ""
    marks = list(_FIELD.finditer(text))
    if marks:
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        fields = {mark[1]: text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
        key = next(iter(answer_keys_in(fields)), None)
        return fields[key] if key else next((item for name, item in fields.items() if item and name != "reasoning"), "")
    read = read_repr(text)
    if isinstance(read, dict):
        key = next(
            (one for one in answer_keys_in(read, _SAID) if isinstance(read[one], str) and read[one].strip()), None
        )
        return read[key] if key else text
    if items_or_empty(read) and all(isinstance(item, (list, dict)) for item in read):
        return _inner(read, _SAID) or text
    return text


def _inner(value: Any, keys: Sequence[str], depth: int = _MAX_DEPTH) -> str:
    """Return the text under one of the names, at any level of objects, lists, messages and LangChain's ``kwargs``."""
    value = read_repr(value)
    if isinstance(value, str):
        return value if is_content(value) else ""
    if not depth:
        return ""
    parts: list[Any] = []
    if isinstance(value, (list, tuple)):
        parts = list(value[::-1])  # the last message is the newest
    elif isinstance(value, Mapping):
        known = [value[name] for name in (*keys, *_WRAPPERS) if name in value]
        parts = known or [item for item in value.values() if isinstance(item, (Mapping, list))]
    return next(filter(None, (_inner(part, keys, depth - 1) for part in parts)), "")


def _strings(value: Any, depth: int = _MAX_DEPTH) -> Iterator[str]:
    value = read_repr(value)
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item, depth - 1)
    elif depth:
        for item in items_or_empty(value):
            yield from _strings(item, depth - 1)
