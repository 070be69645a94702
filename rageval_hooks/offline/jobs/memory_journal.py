"""The results of a run in memory, for callers that get them as a value and not as a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rageval_hooks.offline.jobs.budget import Spent
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Result

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Has the methods of :class:`ScoreJournal` that a run needs, and keeps everything in memory."""

    path = None

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}

    @property
    def empty(self) -> bool:
        """Return True if there is no result yet."""
        return not self._records

    def has(self, index: int) -> bool:
        """Return True if a record is done."""
        return index in self._records

    def parts(self, index: int) -> dict[str, tuple[Result, ...]]:
        """Return nothing: there is no earlier run."""
        return {}

    def part(self, index: int, metric: str, results: Sequence[Result], spent: Spent) -> None:
        """Do nothing: a part is needed only to resume a run."""

    def done(self, index: int, record: Record, spent: Spent) -> None:
        """Keep a record with all its results."""
        self._records[index] = record

    def done_as_json(self, index: int, record: str, spent: Spent) -> None:
        """Keep a record that is a line of JSON."""
        self._records[index] = Record.model_validate_json(record)

    def records(self) -> Iterator[Record]:
        """Yield the records in their order."""
        return (self._records[index] for index in sorted(self._records))

    def has_results(self, wanted: Callable[[Iterable[Result]], bool]) -> bool:
        """Return True if a predicate holds for the results of any record."""
        return any(wanted(record.results) for record in self._records.values())
