"""From finished spans to turns: pure functions for every source of spans.

Read :func:`turns_from_spans` first: it finds which spans make a turn. ``QuestionAndAnswer`` and ``TurnPassages`` find
among them what the turn has, and ``TurnBuilder`` puts it together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rageval_hooks.integrations.capture.authorship import carries
from rageval_hooks.integrations.capture.turns import busy_times, rewritten
from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.facts import Facts, tree_of
from rageval_hooks.integrations.opentelemetry.passages import STEPS, Parts, TurnPassages
from rageval_hooks.integrations.opentelemetry.question_and_answer import QuestionAndAnswer
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan
from rageval_hooks.integrations.opentelemetry.turn_spans import SEARCHES, TurnSpans, instrumentor_of, works
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.turn import SpanReference, Step, Timing, Turn, Usage

TURN_ID = "rageval.turn.id"
"""Attribute of a span that this package wrote for a turn."""


Make = Callable[[Sequence[Facts]], "TurnBuilder"]
_NO_PARTS: Parts = {}


@dataclass(frozen=True, kw_only=True)
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
        for builder in sorted((*done, *_split(rest, make)), key=lambda one: one.spans.started_at):
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
                inner[0], waiting = make([*waiting, *inner[0].spans.units]), []
            done += inner
            waiting += rest
        elif node.kind not in ("embedding", "evaluation"):
            waiting.append(node)
            segment = make(waiting)
            if done and segment.follows(done[-1]):
                # A check, a title or a follow-up question: the answer stays what it was.
                done[-1].spans.later += waiting
                waiting = []
            elif segment.answer and segment.passages.passages:
                done.append(segment)
                waiting = []
    return done, waiting


def _split(rest: Sequence[Facts], make: Make) -> Iterator[TurnBuilder]:
    """Yield what is left over, up to each answer: turns without passages, and searches without an answer."""
    waiting = list[Facts]()
    for facts in rest:
        waiting.append(facts)
        if make([facts]).answer:
            yield make(waiting)
            waiting = []
    if waiting:
        yield make(waiting)


class TurnBuilder:
    """Builds the turn of some spans.

    Args:
        units: the outermost spans of the turn, by start time.
        search_tools: the setting of this name.
        parts: turns that an integration has captured inside a span, by the id of the span.

    Attributes:
        spans: the spans of the turn.
    """

    def __init__(self, units: Sequence[Facts], search_tools: Collection[str] = (), parts: Parts = _NO_PARTS) -> None:
        self.spans = TurnSpans(list(units))
        self._said = QuestionAndAnswer(self.spans)
        self._search_tools = search_tools
        self._parts = parts

    @property
    def answer(self) -> str:
        """The answer; empty without one."""
        return self._said.answer

    @cached_property
    def passages(self) -> TurnPassages:
        """The passages, and what was left out."""
        return TurnPassages(
            spans=self.spans, question=self._said.question, search_tools=self._search_tools, parts=self._parts
        )

    def follows(self, other: TurnBuilder) -> bool:
        """Return True if this is one call of a model that was given the answer of another turn to work on."""
        last = self.spans.units[-1]
        return (
            last.kind == "model"
            and bool(other.answer)
            and last.parent is other.spans.units[-1].parent
            and any(carries(said.text, other.answer) for said in last.current if said.role != "assistant")
        )

    def repeats(self, other: TurnBuilder) -> bool:
        """Return True if another tracer has made the same turn of the same calls."""
        ours, theirs = self.spans, other.spans
        overlap = ours.started_at < theirs.ended_at and theirs.started_at < ours.ended_at
        return overlap and ours.tracer != theirs.tracer and bool(self.answer) and self.answer == other.answer

    def turn(self) -> Turn | NoTurn:
        """Return the turn; why there is none, if nothing was answered or the spans have no texts."""
        spans, span = self.spans, self.spans.place.span
        ours = TURN_ID in span.attributes
        searched = any(facts.kind in SEARCHES for facts in spans.all)
        if not (self.answer or ours or (span.error is not None and searched)):
            return self._no_turn(searched)
        who, switch = instrumentor_of(spans.all)
        missing = {}
        if not self.passages.passages and (searched or spans.hide_results):
            missing["passages"] = f"the spans of {who} do not have them: {switch}"
        if not self._said.question:
            missing["query"] = f"the spans of {who} do not have it: {switch}"
        parts = [part for facts in spans.all for part in self._parts.get(facts.span.span_id, ())]
        steps = [*self._steps(), *(step for part in parts for step in part.steps)]
        times: dict[str, Any] = {"started_at": spans.started_at, "ended_at": spans.ended_at, **busy_times(steps)}
        times |= {name: span.attributes.get(f"rageval.timing.{name}") for name in ("time_to_first_token", "waiting")}
        answering = spans.answering
        return Turn(
            id=span.text(TURN_ID) or span.span_id,
            query=self._said.question,
            response=self.answer,
            passages=self.passages.passages,
            retrieval_queries=rewritten((one.query for one in spans.of_kind("search")), self._said.question),
            prompt=tuple(said.message for said in answering.given) if answering is not None else (),
            usage=Usage.sum([*spans.usages(), *(part.usage for part in parts)]),
            model=next(filter(None, (one.first(names.MODELS) for one in reversed(spans.models))), None),
            timing=Timing(**times) if span.started_at and spans.ended_at else None,
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
            session_id=next(filter(None, (one.first(names.SESSIONS) for one in spans.all)), None),
            user_id=next(filter(None, (one.first(names.USERS) for one in spans.all)), None),
            metadata=dict(mapping_or_empty(read_repr(span.attributes.get("metadata")))),
            status="ok" if span.error is None else "error",
            error=span.error,
            missing=missing,
        )

    def _no_turn(self, searched: bool) -> NoTurn:
        spans, span = self.spans, self.spans.place.span
        who, switch = instrumentor_of(spans.all)
        has_call = bool(spans.models) or (spans.root is not None and works(spans.root))
        if has_call and span.error is None and not any(model.written for model in spans.models):
            what = "answer" if any(model.given for model in spans.models) else "texts"
            cause, reason = "no_content", f"the spans of {who} have no {what}: {switch}"
        else:
            cause = "search_only" if searched and not has_call else "no_answer"
            reason = "the spans have no answer"
        return NoTurn(reason=reason, cause=cause, instrumentor=who, span_id=span.span_id)

    def _steps(self) -> Iterator[Step]:
        kept = {facts.span.span_id for facts in self.spans.all if facts.kind in STEPS}
        for facts in self.spans.all:
            kind = STEPS.get(facts.kind or "")
            if kind is None:
                continue
            span, outer = facts.span, next((one for one in facts.around() if one.span.span_id in kept), None)
            fields: dict[str, Any] = {"input": facts.query or None} if facts.kind in SEARCHES else {}
            if facts.kind == "model":
                fields = {
                    "output": facts.answer or None,
                    "model": facts.first(names.MODELS),
                    "response_id": facts.first(names.RESPONSE_IDS),
                    "usage": facts.usage,
                }
            yield Step(
                id=span.span_id,
                parent_id=outer.span.span_id if outer is not None else None,
                kind=kind,
                name=facts.first(names.TOOL_NAMES) or span.name,
                started_at=span.started_at,
                ended_at=max(span.started_at, span.ended_at),
                left_out=self.passages.left_out.get(span.span_id),
                passages=tuple(self.passages.found.get(span.span_id, ())),
                error=span.error,
                span_id=span.span_id,
                span_tracer=span.scope or None,
                **fields,
            )
