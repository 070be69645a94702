"""Answers without passages: why, how many, and one log line that says what to do."""

from __future__ import annotations

import logging

from rageval_hooks.online.counters import Counters
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.turn import Turn

__all__ = ["MissingPassages", "reason_without_passages"]

_logger = logging.getLogger(__name__)

_PAGE = 'docs/troubleshooting.md, "Answers without passages"'

_REASONS = {
    "no_retriever": "no retriever was called that a captured framework reports",
    "text_only_tool": "a tool returned its results as text only",
    "nothing_found": "the retriever returned nothing",
    "not_in_prompt": "the retrieved documents are not in the model's prompt",
}
"""Name of a reason in ``stats()`` → the reason as text."""


def reason_without_passages(turn: Turn) -> str | None:
    """Return the likely reason why an answer has no passages; None if it has some, or if there is no answer."""
    # Without an answer, or with passages, nothing is missing.
    if not turn.response or turn.prompt_passages or _is_bare_model_call(turn):
        return None
    if turn.passages:
        return "not_in_prompt"
    kinds = {step.kind for step in turn.steps}
    if not kinds.isdisjoint({"retriever", "reranker"}):
        return "nothing_found"
    tools = [step for step in turn.steps if step.kind == "tool"]
    # A tool that returned an empty text has found nothing that a model could have read.
    if any(step.output for step in tools):
        return "text_only_tool"
    return "no_retriever"


def _is_bare_model_call(turn: Turn) -> bool:
    """Return True if the application called a model directly: then nothing is missing.

    The model call is then the root run itself, so both have the same times. In a chain, the root begins earlier.
    """
    if len(turn.steps) != 1 or turn.timing is None:
        return False
    [step] = turn.steps
    times = (turn.timing.started_at, turn.timing.ended_at)
    return step.kind == "llm" and (step.started_at, step.ended_at) == times


class MissingPassages:
    """Counts answers without passages, and warns about them.

    Args:
        counters: keep the counts, so that they start from zero in a child process.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._log = RateLimitedLogger(_logger)

    def note(self, turn: Turn) -> None:
        """Count the turn if it is an answer without passages."""
        reason = reason_without_passages(turn)
        if reason is None:
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
