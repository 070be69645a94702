"""The spans of a trace as a tree, and which of them are turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from rageval_hooks.offline.records.traces.spans import ExportedSpan

__all__ = ["RETRIEVAL", "TURN_ID", "SpanTree"]

TURN_ID = "rageval.turn.id"
"""Attribute of a span that this package wrote for a turn."""

RETRIEVAL = ("RETRIEVER", "RERANKER")
_ROOTS = ("CHAIN", "AGENT")


class SpanTree:
    """The spans of a trace as a tree.

    Args:
        spans: the spans. Parents may be missing from an export.
    """

    def __init__(self, spans: Iterable[ExportedSpan]) -> None:
        self.spans = {span.span_id: span for span in spans}
        self._children: dict[str, list[ExportedSpan]] = {}
        for span in sorted(self.spans.values(), key=lambda span: span.started_at):
            self._children.setdefault(span.parent_id, []).append(span)

    def children(self, span: ExportedSpan) -> list[ExportedSpan]:
        """Return the spans directly inside a span."""
        return self._children.get(span.span_id, []) if span.span_id else []

    def below(self, span: ExportedSpan) -> Iterator[ExportedSpan]:
        """Yield the spans inside a span, outer ones first."""
        # An export may name a span as its own ancestor.
        seen = {span.span_id}
        waiting = deque(self.children(span))
        while waiting:
            child = waiting.popleft()
            if child.span_id in seen:
                continue
            seen.add(child.span_id)
            yield child
            waiting.extend(self.children(child))

    def outermost(self, span: ExportedSpan, kinds: Sequence[str]) -> Iterator[ExportedSpan]:
        """Yield the spans of some kinds inside a span that are not inside another span of these kinds."""
        seen = {span.span_id}
        # Reversed, because the last item is taken first: spans are yielded in the order of their start.
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
        """Return the spans that are turns: those of this package, or else the outermost chains that retrieve."""
        ours = [span for span in self.spans.values() if TURN_ID in span.attributes]
        if ours:
            return ours
        return [chain for chain in self._outermost_chains() if self._retrieves(chain)]

    def _outermost_chains(self) -> Iterator[ExportedSpan]:
        tops = [span for span in self.spans.values() if span.parent_id not in self.spans]
        for top in tops:
            if top.kind in _ROOTS:
                yield top
            else:
                # The request of a web server, for example, is around the chain.
                yield from self.outermost(top, _ROOTS)

    def _retrieves(self, chain: ExportedSpan) -> bool:
        return any(span.kind in RETRIEVAL for span in self.below(chain))
