"""When to give up on a judge, and which records to keep for the next run.

A record whose judgements all failed because the judge could not be reached is held back: if the judge answers later,
the record itself was the problem and is written; if the judge never answers, the next run scores the record again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeGuard

from rageval_hooks.errors import (
    JudgeAnswerError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeRejectedError,
    JudgeTruncatedError,
    JudgeUnavailableError,
)
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Failed, Result, Score

__all__ = ["Outages", "is_answer", "is_outage"]

_OUTAGE_KINDS = frozenset(error.kind for error in (JudgeUnavailableError, JudgeRejectedError, JudgeRateLimitedError))
_ANSWER_KINDS = frozenset(error.kind for error in (JudgeAnswerError, JudgeRefusedError, JudgeTruncatedError))

# So many records in a row without an answer are no accident.
_MOST_HELD = 5

# HTTP statuses with which a provider refuses one request, for its text or its size; it may accept others.
_REQUEST_STATUSES = (400, 413, 422)


def is_outage(result: Result) -> TypeGuard[Failed]:
    """Return True if a result failed because the judge could not be used."""
    return isinstance(result, Failed) and result.error_type in _OUTAGE_KINDS


def is_answer(result: Result) -> bool:
    """Return True if the judge answered, even if the answer could not be used."""
    if isinstance(result, Score):
        return True
    return isinstance(result, Failed) and result.error_type in _ANSWER_KINDS


class Outages:
    """Records that wait until the judge has answered.

    Args:
        write: writes a record to the journal.
        has_answered: True if the judge answered in an earlier run.
    """

    def __init__(self, write: Callable[[int, Record], None], *, has_answered: bool) -> None:
        self._write = write
        self._has_answered = has_answered
        self._held: list[tuple[int, Record]] = []
        self._failures: list[Failed] = []

    @property
    def held(self) -> Iterable[Record]:
        """The records that wait."""
        return (record for _, record in self._held)

    def add(self, index: int, record: Record, judged: Collection[Result]) -> Failed | None:
        """Write a record or hold it back.

        Args:
            index: its position in the input.
            record: the record with its results.
            judged: the results for which the judge was asked now.

        Returns:
            The first failure if so many records in a row had nothing else that the run should stop.
        """
        outages = [result for result in judged if is_outage(result)]
        if any(map(is_answer, judged)):
            # The judge works, so the records that wait failed for reasons of their own.
            self._has_answered = True
            self.release()
        elif outages:
            self._held.append((index, record))
            self._failures += outages
            return outages[0] if self._is_full() else None
        self._write(index, record)
        return None

    def _is_full(self) -> bool:
        return len(self._held) >= _MOST_HELD

    def unanswered(self) -> Failed | None:
        """Return the first failure if the judge answered nothing, and not because of the requests themselves."""
        if not self._failures or self._has_answered:
            return None
        # A judge that refuses a request for its text has read it: it works.
        if any(map(_is_about_the_request, self._failures)):
            return None
        return self._failures[0]

    def release(self) -> None:
        """Write the records that wait."""
        self._failures.clear()
        while self._held:
            self._write(*self._held.pop())


def _is_about_the_request(outage: Failed) -> bool:
    details = outage.metadata.get("judge")
    return isinstance(details, Mapping) and details.get("status") in _REQUEST_STATUSES
