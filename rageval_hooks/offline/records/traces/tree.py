"""The spans of a trace as a tree, and which of them are turns."""

from __future__ import annotations

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
        seen = {span.span_id}
        waiting = list(self.children(span))
        while waiting:
            child = waiting.pop(0)
            if child.span_id not in seen:
                seen.add(child.span_id)
                yield child
                waiting += self.children(child)

    def outermost(self, span: ExportedSpan, kinds: Sequence[str]) -> Iterator[ExportedSpan]:
        """Yield the spans of some kinds inside a span that are not inside another span of these kinds."""
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
        """Return the spans that are turns: those of this package, or else the outermost chains that retrieve."""
        ours = [span for span in self.spans.values() if TURN_ID in span.attributes]
        if ours:
            return ours
        chains: list[ExportedSpan] = []
        for top in self.spans.values():
            if top.parent_id not in self.spans:
                chains += [top] if top.kind in _ROOTS else self.outermost(top, _ROOTS)
        return [chain for chain in chains if any(span.kind in RETRIEVAL for span in self.below(chain))]
