"""Counters of a pipeline, for ``stats()``; among them answers without passages, with the reason and what to do."""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.queues import PROCESS_TOTALS
from rageval_hooks.score import VERDICT, Evaluation, Failed, Result, Score, is_about_turn, is_judged_verdict, metric_of
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

_OF_TURNS = ("turns", "evaluated", "in_progress", "without_retrieval", "sampled_out", "unsampled_traces", "dropped")
_OF_RESULTS = ("deferred_metrics", "undone", "scored", "skipped", "failed")
_OF_ERRORS = ("export_errors", "callback_errors", "internal_errors")

DROPPED = ("queue_full", "not_ended", "not_built", "failed", "interrupted", "same_run_id")
"""Why a turn was dropped: a queue had no room for it; it did not end, for example because its stream was neither read
nor closed; it could not be built from what was recorded; its evaluation failed with an error
of ours or of the application's code; a signal handler of the application raised while it was submitted; or
calls at the same time had one run id."""

_BY_CAUSE = "dropped."

_MAX_SCORES = 200


@dataclass(slots=True)
class ScoreTotals:
    """What became of one score over all turns.

    Attributes:
        count: turns with a value.
        total: the sum of the values.
        last: the latest value; None before the first.
        labels: turns by label: ``pass`` and ``fail``, of the verdict ``good``, ``doubtful``, ``bad``, ``declined`` …
        causes: turns by cause, of the verdict.
        skipped: turns for which it was skipped.
        failed: turns for which it failed.
    """

    count: int = 0
    total: float = 0.0
    last: float | None = None
    labels: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    failed: int = 0

    def add(self, result: Result) -> None:
        """Add one result."""
        if not isinstance(result, Failed) and result.label:
            self.labels[result.label] += 1
        if result.cause:
            self.causes[result.cause] += 1
        if isinstance(result, Score):
            self.count += 1
            self.total += result.value
            self.last = result.value
        elif result.status == "skipped":
            self.skipped += 1
        else:
            self.failed += 1

    def as_data(self) -> dict[str, Any]:
        """Return the totals with the mean of the values, for ``stats()``."""
        return {
            "count": self.count,
            "mean": self.total / self.count if self.count else None,
            "last": self.last,
            "labels": dict(self.labels),
            **({"causes": dict(self.causes)} if self.causes else {}),
            "skipped": self.skipped,
            "failed": self.failed,
        }


class Counters:
    """Counts events by name. Safe to use from any thread.

    A turn is counted under ``turns`` and under exactly one other name, at any moment: ``in_progress``, ``evaluated``,
    ``without_retrieval``, ``sampled_out``, ``unsampled_traces`` or ``dropped``.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero: a child counts its own turns."""
        self._counts: Counter[str] = Counter()
        self._in_progress: set[CountedTurn] = set()
        self._scores: dict[str, ScoreTotals] = {}
        self._unnoted: deque[str] = deque()

    def add(self, name: str, amount: int = 1) -> None:
        """Count events, here and for the process."""
        with self._lock.lock:
            self._counts[name] += amount
        PROCESS_TOTALS.add(name, amount)

    def new_turn(self) -> CountedTurn:
        """Return a turn that is to be evaluated."""
        return CountedTurn(self._counts, self._in_progress, self._lock)

    def exclude_turn(self, reason: str) -> None:
        """Count a turn that is not evaluated, as ``sampled_out`` or ``unsampled_traces``."""
        with self._lock.lock:
            self._counts.update(("turns", reason))
        PROCESS_TOTALS.add(reason)

    def drop_unbegun(self, cause: str) -> None:
        """Count a turn that was dropped before it was submitted. Takes no lock: a finalizer may call this."""
        self._unnoted.append(cause)

    def failed_turns(self) -> int:
        """Return how many turns were dropped because of an exception."""
        return sum(self._counts[_BY_CAUSE + cause] for cause in ("not_built", "failed"))

    def counted(self, evaluation: Evaluation) -> Evaluation:
        """Count the results of an evaluation by status and by score, and return it."""
        for result in evaluation.results:
            self.add(result.status)
        with self._lock.lock:
            for result in filter(is_about_turn, evaluation.results):
                # A turn may have two verdicts. Counted as one, their sum would be more than the turns.
                name = f"{VERDICT}.{metric_of(result)}" if is_judged_verdict(result) else result.name
                # A metric of the user's might make up names without end.
                if name in self._scores or len(self._scores) < _MAX_SCORES:
                    self._scores.setdefault(name, ScoreTotals()).add(result)
        return evaluation

    def __getitem__(self, name: str) -> int:
        """Return how many events of a name were counted."""
        return self._counts[name]

    def snapshot(self) -> dict[str, Any]:
        """Return all counts of one moment, zeros included."""
        with self._lock.lock:
            while self._unnoted:
                self._counts.update(("turns", "dropped", _BY_CAUSE + self._unnoted.popleft()))
            counts = {name: self._counts[name] for name in _OF_TURNS + _OF_RESULTS + _OF_ERRORS}
            counts["in_progress"] = in_progress = len(self._in_progress)
            counts["turns"] += in_progress
            causes = {cause: self._counts[_BY_CAUSE + cause] for cause in DROPPED}
            scores = {name: totals.as_data() for name, totals in self._scores.items()}
        return {**counts, "dropped_by_cause": causes, "scores": scores}


class CountedTurn:
    """A turn that is counted once: whoever ends it first decides how.

    Args:
        counts: the counts of the process that it began in. A child that is forked meanwhile has others.
        in_progress: the turns in progress of that process.
        lock: their lock.
    """

    def __init__(self, counts: Counter[str], in_progress: set[CountedTurn], lock: ForkSafeLock) -> None:
        self._counts = counts
        self._in_progress = in_progress
        self._lock = lock
        self._has_ended = False

    def begin(self) -> None:
        """Count the turn as in progress."""
        self._in_progress.add(self)

    def end(self, *outcome: str) -> None:
        """Count the turn as ``evaluated`` or ``without_retrieval``."""
        with self._lock.lock:
            if not self._has_ended:
                self._has_ended = True
                self._in_progress.discard(self)
                self._counts.update(("turns", *outcome))

    def drop(self, cause: str) -> None:
        """Count the turn as dropped, by one of the causes in :data:`DROPPED`."""
        self.end("dropped", _BY_CAUSE + cause)


# --------------------------------------------------------------------------- answers without passages

_PAGE = 'docs/troubleshooting.md, "Answers without passages"'

_MAX_SESSIONS = 1000
"""Conversations with passages that are remembered. Beyond that number all are forgotten."""

_MAX_LEFT_OUT = 100
"""Tools with reasons that are counted."""

_REASONS = {
    "no_retriever": "no retriever was called that a captured framework reports",
    "text_only_tool": "tool results do not look like search: name the tools in search_tools",
    "nothing_found": "the retriever returned nothing",
    "not_in_prompt": "the retrieved documents are not in the model's prompt",
}
"""Name of a reason in ``stats()`` → the reason as text."""


def reason_without_passages(turn: Turn) -> str | None:
    """Return the likely reason why an answer has no passages; None if it has some, or if there is no answer."""
    if not turn.response or turn.prompt_passages:
        return None
    # An application that calls a model directly misses nothing. The call is then the root run itself, with the same
    # times; in a chain, the root begins earlier.
    if len(turn.steps) == 1 and turn.timing is not None and turn.steps[0].kind == "llm":
        [call] = turn.steps
        if (call.started_at, call.ended_at) == (turn.timing.started_at, turn.timing.ended_at):
            return None
    if turn.passages:
        return "not_in_prompt"
    if any(step.kind in ("retriever", "reranker") or step.found_nothing for step in turn.steps):
        return "nothing_found"
    # Tools that the application calls without a framework have messages, but no steps.
    has_result = any(step.left_out for step in turn.steps) or any(message.role == "tool" for message in turn.prompt)
    return "text_only_tool" if has_result else "no_retriever"


class MissingPassages:
    """Counts answers without passages, and warns about them.

    Args:
        counters: keep the counts, so that they start from zero in a child process.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._log = RateLimitedLogger(_logger)
        self._sessions: set[str] = set()
        self._left_out: set[str] = set()

    def note(self, turn: Turn) -> None:
        """Count the turn if it is an answer without passages, and why results of tools are no passages."""
        for left_out in {f"{step.name}: {step.left_out}" for step in turn.steps if step.left_out}:
            if left_out in self._left_out or len(self._left_out) < _MAX_LEFT_OUT:
                self._left_out.add(left_out)
                self._counters.add(f"left_out.{left_out}")
        if turn.retrieved and turn.session_id:
            if len(self._sessions) >= _MAX_SESSIONS:
                self._sessions.clear()
            self._sessions.add(turn.session_id)
        reason = reason_without_passages(turn)
        # In a conversation in which searches are captured, "Thank you" needs none.
        if reason is None or (reason == "no_retriever" and turn.session_id in self._sessions):
            return
        self._counters.add(f"without_passages.{reason}")
        counts = self.by_reason()
        total = sum(counts.values())
        likely = max(counts, key=counts.__getitem__)
        self._log.warn(
            "answers without passages",
            "%s no passages to evaluate with (most often because %s): see %s [RAGEVAL-209]",
            "1 answer has" if total == 1 else f"{total} answers have",
            _REASONS[likely],
            _PAGE,
        )

    def by_reason(self) -> dict[str, int]:
        """Return how many answers had no passages, by reason."""
        return {reason: self._counters[f"without_passages.{reason}"] for reason in _REASONS}

    def left_out(self) -> dict[str, int]:
        """Return in how many turns the result of a tool was no passage, by tool and reason."""
        counts = {left_out: self._counters[f"left_out.{left_out}"] for left_out in tuple(self._left_out)}
        return {left_out: turns for left_out, turns in counts.items() if turns}  # a child process counts its own
