"""Facts that all integrations read from runs: details, times, enclosing runs, and the fields that all steps share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rageval_hooks.integrations.capture.host_values import first_string
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.turn import ErrorInfo, Step, TurnStatus

T = TypeVar("T", Run, Step)

CANCELS = frozenset({"CancelledError", "Cancelled", "GeneratorExit", "KeyboardInterrupt"})
"""What asyncio, trio, a closed generator and Ctrl-C raise."""


def end_of(run: Run, otherwise: int) -> int:
    """Return when a run ended, in nanoseconds since the epoch.

    Args:
        run: the run.
        otherwise: the end of a run that has not ended, for example the end of its turn.
    """
    # A run may start while another thread ends the turn. No interval is negative.
    return max(run.started_at, otherwise) if run.ended_at is None else run.ended_at


def is_inside(run: Run, *kinds: str) -> bool:
    """Return True if a run of one of these kinds is around a run."""
    return any(ancestor.kind in kinds for ancestor in run.ancestors())


def of_kind(items: Iterable[T], *kinds: str) -> list[T]:
    """Return the runs, or the steps, of some kinds."""
    return [item for item in items if item.kind in kinds]


def outside(runs: Iterable[Run], *kinds: str) -> list[Run]:
    """Return the runs that are not inside a run of one of these kinds."""
    return [run for run in runs if not is_inside(run, *kinds)]


def parent_id_among(run: Run, kept: Collection[int]) -> str | None:
    """Return the id of the nearest enclosing run that becomes a step; None if there is no such run.

    Args:
        run: the run.
        kept: the identities of the runs that become steps.
    """
    # Chains and prompts are no steps, unless the application asks for them with spans="all".
    for ancestor in run.ancestors():
        if id(ancestor) in kept:
            return ancestor.text_id
    return None


def outcome_of_error(
    error: BaseException | None, cancels: Collection[str] = CANCELS
) -> tuple[TurnStatus, ErrorInfo | None]:
    """Return how a turn ended, from the exception that left it, and the error to report.

    Args:
        error: the exception; None without one.
        cancels: the names of the exceptions that are no failure.
    """
    if error is None:
        return "ok", None
    if type(error).__name__ in cancels:
        return "cancelled", None
    return "error", ErrorInfo.of(error)


def seconds_to_first_token(run: Run | None, since: int) -> float | None:
    """Return the seconds from a time in nanoseconds to a call's first token; None if it was not streamed."""
    if run is None or run.first_token_at is None:
        return None
    return (run.first_token_at - since) / 1e9


def rewritten(queries: Iterable[str], question: str) -> tuple[str, ...]:
    """Return the queries that are neither empty nor the user's question, each once: the application rewrote it."""
    known = ("", question.strip())
    return tuple(query for query in dict.fromkeys(queries) if query.strip() not in known)


def step_frame(run: Run, kept: Collection[int], turn_end: int, stopped: bool) -> dict[str, Any]:
    """Return the fields that a step of any kind has.

    Args:
        run: the run.
        kept: the identities of the runs that become steps.
        turn_end: the end of the turn, for a run that has not ended.
        stopped: the run ended with an exception that is not a failure, for example a cancellation.
    """
    return {
        "id": run.text_id,
        "parent_id": parent_id_among(run, kept),
        "name": run.name,
        "started_at": run.started_at,
        "ended_at": end_of(run, turn_end),
        "error": None if stopped or run.error is None else ErrorInfo.of(run.error),
        "complete": run.ended_at is not None and not stopped,
    }


def application_fields(
    session_id: str | None,
    user_id: str | None,
    metadata: Mapping[str, Any],
    attributes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the fields of a turn that say what it belongs to in the application.

    Args:
        session_id: the session, as the framework knows it.
        user_id: the user, as the framework knows it.
        metadata: what the framework, or the application through it, attached.
        attributes: what the application put into its OpenTelemetry context, for example {"session.id": "42",
            "metadata": {"tenant": "acme"}}. What the framework knows wins.
    """
    context = attributes or {}
    # Metadata of the framework is closer to the call than metadata of the whole request.
    shared = context.get("metadata") or {}
    return {
        "session_id": session_id or first_string(context, ("session.id",)),
        "user_id": user_id or first_string(context, ("user.id",)),
        "metadata": {**shared, **metadata},
    }


# --------------------------------------------------------------------------- times


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


def busy_times(steps: Sequence[Step]) -> dict[str, float | None]:
    """Return the fields ``retrieval`` and ``generation`` of a turn's timing."""
    outermost = outside_retrieval(steps)
    searches = filter(is_retrieval, outermost)
    calls = of_kind(outermost, "llm")
    return {
        "retrieval": _busy_seconds((step.started_at, step.ended_at) for step in searches),
        "generation": _busy_seconds((step.started_at, step.ended_at) for step in calls),
    }


def is_retrieval(step: Step) -> bool:
    """Return True if a step searches: a retriever, a reranker, or a tool that found passages."""
    return step.kind in ("retriever", "reranker") or bool(step.passages)


def outside_retrieval(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not part of a search, the searches themselves included.

    A retriever may call a model, for example to rewrite the query. That call is part of the search.
    """
    by_id = {step.id: step for step in steps}
    kept = []
    for step in steps:
        around = by_id.get(step.parent_id or "")
        while around is not None and not is_retrieval(around):
            around = by_id.get(around.parent_id or "")
        if around is None:
            kept.append(step)
    return kept
