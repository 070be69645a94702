"""How long parts of a turn took, from its steps: those inside a search are part of the search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rageval_hooks.turn import Step

__all__ = ["busy_seconds", "busy_times", "is_retrieval", "outside_retrieval"]

_RETRIEVAL_KINDS = ("retriever", "reranker")


def busy_seconds(intervals: Iterable[tuple[int, int]]) -> float | None:
    """Return the seconds covered by some intervals in nanoseconds; overlaps count once. None without intervals."""
    total = 0
    counted_until: int | None = None
    for start, end in sorted(intervals):
        # Retrievers that run in parallel overlap: only what goes beyond the latest end is added.
        begin = start if counted_until is None else max(start, counted_until)
        total += max(0, end - begin)
        counted_until = max(begin, end)
    return None if counted_until is None else total / 1e9


def busy_times(steps: Sequence[Step]) -> dict[str, float | None]:
    """Return the fields ``retrieval`` and ``generation`` of a turn's timing."""
    outermost = outside_retrieval(steps)
    searches = [step for step in outermost if is_retrieval(step)]
    calls = [step for step in outermost if step.kind == "llm"]
    return {"retrieval": _busy(searches), "generation": _busy(calls)}


def _busy(steps: Iterable[Step]) -> float | None:
    return busy_seconds((step.started_at, step.ended_at) for step in steps)


def is_retrieval(step: Step) -> bool:
    """Return True if a step searches: a retriever, a reranker, or a tool that found passages."""
    return step.kind in _RETRIEVAL_KINDS or bool(step.passages)


def outside_retrieval(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not part of a search, the searches themselves included.

    A retriever may call a model, for example to rewrite the query. That call is part of the search.
    """
    by_id = {step.id: step for step in steps}

    def is_inside(step: Step) -> bool:
        around = by_id.get(step.parent_id or "")
        if around is None:
            return False
        return is_retrieval(around) or is_inside(around)

    return [step for step in steps if not is_inside(step)]
