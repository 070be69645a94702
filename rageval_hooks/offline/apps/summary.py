"""The summary of a run of an application, in numbers and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rageval_hooks.offline.answerability import is_refusal
from rageval_hooks.offline.records.record import Record

__all__ = ["RunSummary", "summarize"]

_LONGEST_ERROR = 500


@dataclass
class RunSummary:
    """Counts over the records of a run.

    Attributes:
        records: number of records.
        failed: number of records that are errors, by the type of the error.
        first_error: one of these, in a line.
        found: answered questions whose target passage was retrieved.
        missed: answered questions whose target passage was not retrieved.
        unknown: answered questions with a target that cannot be looked for.
        declined: answered questions marked as unanswerable whose answer is a refusal, by rules.
        not_declined: those whose answer claims something.
        without_passages: answers for which no passage was seen.
        resumed: records that existed when the run began.
    """

    records: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    first_error: str | None = None
    found: int = 0
    missed: int = 0
    unknown: int = 0
    declined: int = 0
    not_declined: int = 0
    without_passages: int = 0
    resumed: int = 0

    @property
    def errors(self) -> int:
        """Number of records that are errors."""
        return sum(self.failed.values())

    def add(self, record: Record) -> None:
        """Count a record."""
        self.records += 1
        error = record.turn.error
        if record.turn.status == "error" and error is not None:
            self.failed[error.type] += 1
            # One message is enough to see what is wrong; the records have all of them.
            if self.first_error is None:
                self.first_error = f"{error.type}: {error.message}"[:_LONGEST_ERROR]
            return
        if not record.turn.passages:
            self.without_passages += 1
        if not record.answerable:
            self._add_unanswerable(record)
        elif record.has_target:
            self._add_target(record)

    def _add_unanswerable(self, record: Record) -> None:
        refused = is_refusal(record.turn.response)
        self.declined += refused is True
        self.not_declined += refused is False

    def _add_target(self, record: Record) -> None:
        if record.rank is not None:
            self.found += 1
        elif record.missed:
            self.missed += 1
        else:
            self.unknown += 1

    def lines(self) -> Iterator[str]:
        """Yield the summary for the user, line by line."""
        yield f"{self.records - self.errors} of {self.records} questions answered"
        # A rank that is unknown counts neither as found nor as missed.
        if known := self.found + self.missed:
            yield f"the chunk with the answer was retrieved for {self.found} of {known}"
        if self.unknown:
            yield (
                f"for {self.unknown} of them the rank of the chunk is unknown: no retrieved passage has an id of the "
                "test set, and the test set has no text of the chunk in a column 'chunk'"
            )
        if unanswerable := self.declined + self.not_declined:
            yield f"the application declined {self.declined} of {unanswerable} questions marked as unanswerable"
        for kind, number in self.failed.most_common():
            yield f"  {number} failed: {kind}"
        if self.first_error is not None:
            yield f"  the first: {self.first_error}"
        if self.without_passages:
            yield (
                f"  {self.without_passages} answers without passages: if some were retrieved, have the application "
                "return (answer, passages)"
            )


def summarize(records: Iterable[Record], resumed: int = 0) -> RunSummary:
    """Return the summary of the records of a run.

    Args:
        records: the records.
        resumed: how many of them existed when the run began.
    """
    summary = RunSummary(resumed=resumed)
    for record in records:
        summary.add(record)
    return summary
