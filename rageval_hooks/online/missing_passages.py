"""Answers without passages: why, how many, and one log line that says what to do."""

from __future__ import annotations

import logging
from collections import deque

from rageval_hooks.online.counters import Counters
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

_PAGE = 'docs/troubleshooting.md, "Answers without passages"'

_MOST_SESSIONS = 1000
"""Conversations with passages that are remembered. Beyond that number all are forgotten."""

_BEGINNING, _LEAST_BEGINNING = 100, 24
"""So many characters of a passage are looked for in prompts. Shorter passages are found there by chance."""

_MOST_PASSAGES, _MOST_BEGINNINGS = 5, 200
"""Passages of a search, and of all searches, that are looked for."""

_REASONS = {
    "no_retriever": "no retriever was called that a captured framework reports",
    "text_only_tool": "a tool returned its results as text only",
    "nothing_found": "the retriever returned nothing",
    "not_in_prompt": "the retrieved documents are not in the model's prompt",
    "separate_calls": "retriever and model are called one after the other: put both into `with start_turn(question):`",
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
        self._sessions: set[str] = set()
        self._beginnings: deque[str] = deque(maxlen=_MOST_BEGINNINGS)

    def note(self, turn: Turn) -> None:
        """Count the turn if it is an answer without passages."""
        if turn.retrieved and not turn.is_rag:
            self._note_search(turn)
            return
        if turn.retrieved and turn.session_id:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.clear()
            self._sessions.add(turn.session_id)
        reason = "separate_calls" if self._was_searched_for(turn) else reason_without_passages(turn)
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

    def _note_search(self, turn: Turn) -> None:
        """Keep the beginnings of what a search of its own found: a model may be called with it next."""
        self._beginnings.extend(
            beginning
            for passage in turn.retrieved[:_MOST_PASSAGES]
            if len(beginning := passage.text.strip()[:_BEGINNING]) >= _LEAST_BEGINNING
        )

    def _was_searched_for(self, turn: Turn) -> bool:
        """Return True if the prompt of an answer without passages has what a separate search found."""
        if turn.passages or not turn.response or not self._beginnings:
            return False
        prompt = "\n".join(message.content for message in turn.prompt)
        return any(beginning in prompt for beginning in list(self._beginnings))

    def by_reason(self) -> dict[str, int]:
        """Return how many answers had no passages, by reason."""
        return {reason: self._counters[f"without_passages.{reason}"] for reason in _REASONS}
