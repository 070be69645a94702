"""How long parts of a turn took, from its runs or its steps: steps inside a search are part of the search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rageval_hooks.integrations.capture.run_facts import end_of, of_kind
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.turn import Step

__all__ = ["busy_seconds_of", "busy_times", "is_retrieval", "outside_retrieval"]

_RETRIEVAL_KINDS = ("retriever", "reranker")


def _busy_seconds(intervals: Iterable[tuple[int, int]]) -> float | None:
    """Return the seconds covered by some intervals in nanoseconds; overlaps count once. None without intervals."""
    total = 0
    counted_until: int | None = None
    for start, end in sorted(intervals):
        # Retrievers that run in parallel overlap: only what goes beyond the latest end is added.
        begin = start if counted_until is None else max(start, counted_until)
        total += max(0, end - begin)
        counted_until = max(begin, end)
    return None if counted_until is None else total / 1e9


def busy_seconds_of(runs: Iterable[Run], turn_end: int) -> float | None:
    """Return the seconds during which at least one of some runs was in progress; None without runs.

    Args:
        runs: the runs.
        turn_end: the end of the turn, for a run that has not ended.
    """
    return _busy_seconds((run.started_at, end_of(run, turn_end)) for run in runs)


def busy_times(steps: Sequence[Step]) -> dict[str, float | None]:
    """Return the fields ``retrieval`` and ``generation`` of a turn's timing."""
    outermost = outside_retrieval(steps)
    searches = filter(is_retrieval, outermost)
    calls = of_kind(outermost, "llm")
    return {"retrieval": _busy(searches), "generation": _busy(calls)}


def _busy(steps: Iterable[Step]) -> float | None:
    return _busy_seconds((step.started_at, step.ended_at) for step in steps)


def is_retrieval(step: Step) -> bool:
    """Return True if a step searches: a retriever, a reranker, or a tool that found passages."""
    return step.kind in _RETRIEVAL_KINDS or bool(step.passages)


def outside_retrieval(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not part of a search, the searches themselves included.

    A retriever may call a model, for example to rewrite the query. That call is part of the search.
    """
    by_id = {step.id: step for step in steps}
    return [step for step in steps if not any(map(is_retrieval, _around(step, by_id)))]


def _around(step: Step, by_id: Mapping[str, Step]) -> Iterator[Step]:
    """Yield the steps around a step, the nearest first."""
    parent = by_id.get(step.parent_id or "")
    while parent is not None:
        yield parent
        parent = by_id.get(parent.parent_id or "")
