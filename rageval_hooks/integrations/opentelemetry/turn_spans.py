"""The spans of one turn: which there are of a kind, which model call answered, and which span has the scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.facts import Facts
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.turn import Usage

SEARCHES = ("search", "rerank")
_WORKERS = ("model", "agent", "tool", "search", "rerank")
_UNIMPORTANT = ("embedding", "evaluation")


@dataclass(eq=False)
class TurnSpans:
    """The spans of one turn.

    Attributes:
        units: the outermost spans, by start time.
        later: spans after the answer that belong to the turn.
    """

    units: list[Facts]
    later: list[Facts] = field(default_factory=list)

    def __contains__(self, span_id: str) -> bool:
        """Return True if a span is part of the turn."""
        return any(facts.span.span_id == span_id for facts in self.all)

    @property
    def tracer(self) -> str | tuple[str, str]:
        """Who made the last of the outermost spans: the tracer's name, or how its attributes look."""
        return self.units[-1].span.scope or instrumentor_of(self.units)

    @property
    def started_at(self) -> int:
        """When the first span began."""
        return min(unit.span.started_at for unit in self.units)

    @property
    def ended_at(self) -> int:
        """When the last span of the turn itself ended."""
        return max(unit.span.ended_at for unit in self.units)

    @cached_property
    def all(self) -> list[Facts]:
        """The spans and all inside them, by start time."""
        found = [facts for unit in self.units for facts in unit.inside()]
        return sorted(found, key=lambda facts: (facts.span.started_at, -facts.span.ended_at))

    def of_kind(self, *kinds: str) -> list[Facts]:
        """Return the spans of some kinds that are in no other one of these kinds."""
        return [
            facts
            for facts in self.all
            if facts.kind in kinds and not any(outer.kind in kinds for outer in facts.around())
        ]

    @cached_property
    def models(self) -> list[Facts]:
        """The model calls outside of searches, the outermost of nested ones that has the texts."""
        found = [one for one in self.of_kind("model") if not any(outer.kind in SEARCHES for outer in one.around())]
        return list(map(_with_texts, found))

    @cached_property
    def answering(self) -> Facts | None:
        """The model call that wrote the answer: the last one that asked for no tools."""
        return next((model for model in reversed(self.models) if model.answer), None)

    @property
    def root(self) -> Facts | None:
        """The agent, chain or workflow around everything."""
        last = self.units[-1]
        return last if last.kind in ("agent", "chain") else None

    @property
    def hide_results(self) -> bool:
        """True if a tool was called whose result is not on the spans."""
        return any(result.value is None for facts in self.all for result in facts.tool_results())

    def usages(self) -> Iterator[Usage | None]:
        """Yield the tokens of the model calls, those after the answer too. A call inside of one is part of it."""
        for facts in (*self.all, *(one for late in self.later for one in late.inside())):
            if facts.kind == "model" and not any(outer.kind == "model" and outer.usage for outer in facts.around()):
                yield facts.usage

    @property
    def place(self) -> Facts:
        """The span that the scores belong to: the application's own around calls of models, else the outermost one."""
        last = self.units[-1]
        if last.kind in ("agent", "chain") or last.parent is None:
            return last
        around, others = last.parent, {id(unit) for unit in (*self.units, *self.later)}
        alone = all(id(one) in others or one.kind in (None, *_UNIMPORTANT) for one in around.children)
        return around if around.kind is None and alone else last


def _with_texts(model: Facts) -> Facts:
    inner = [one for one in model.inside() if one.kind == "model" and (one.given or one.written)]
    return next((one for one in inner if one.given and one.written), next(iter(inner), model))


def works(facts: Facts) -> bool:
    """Return True if an agent or a chain asks a model, searches or calls tools."""
    return facts.kind == "agent" or any(one.kind in _WORKERS for one in facts.inside())


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
