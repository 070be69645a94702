"""The journal of ``score``: results by record."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rageval_hooks.offline.jobs.budget import Spent
from rageval_hooks.offline.jobs.journal import JournalFile
from rageval_hooks.offline.records.record import Record
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.score import Result

__all__ = ["ScoreJournal"]

_NOWHERE = 2**64 - 1
# What is before and after a record in its line: {"index":0,"record":{…},"spent":{…}}
_RECORD = b',"record":'
_SPENT = b',"spent":'
_RESULTS: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])


class ScoreJournal(JournalFile):
    """A line for each metric and each record that is done. Only the positions of records are held in memory.

    Args:
        path: see :class:`JournalFile`, also for the other arguments.
        work: what decides on the results.
        restart: discard an existing journal.
        privacy: what the records in the file may hold.

    Attributes:
        resumed: number of records it held at the start.
        spent: what the judge had used by then.
    """

    def __init__(
        self, path: Path, work: Mapping[str, Any], *, restart: bool = False, privacy: PrivacyPolicy = NO_PRIVACY
    ) -> None:
        self._privacy = privacy
        self.spent = Spent()
        self._places = array("Q")
        self._parts: dict[int, dict[str, tuple[Result, ...]]] = {}
        self._entries = 0
        super().__init__(path, work, restart=restart)
        self.resumed = len(self)

    @property
    def empty(self) -> bool:
        """Return True if there is no result yet."""
        return self._entries == 0

    def has(self, index: int) -> bool:
        """Return True if a record is done.

        Args:
            index: its position in the input, from 0.
        """
        return index < len(self._places) and self._places[index] != _NOWHERE

    def parts(self, index: int) -> dict[str, tuple[Result, ...]]:
        """Return the results, by metric, of a record that was not done when the process ended."""
        return self._parts.pop(index, {})

    def part(self, index: int, metric: str, results: Sequence[Result], spent: Spent) -> None:
        """Note the results of one metric."""
        # Judged results are noted one by one: each of them has cost money.
        found = _RESULTS.dump_json(tuple(results)).decode()
        self._note(f'"index":{index},"metric":{json.dumps(metric)},"results":{found}', spent)

    def done(self, index: int, record: Record, spent: Spent) -> None:
        """Note a record with all its results."""
        # The engine has made the texts of the results from the redacted turn.
        record = record.redacted(self._privacy).model_copy(update={"results": record.results})
        self._write(index, record.to_json(), spent)

    def done_as_json(self, index: int, record: str, spent: Spent) -> None:
        """Note a record that is a line of JSON already."""
        if self._privacy.active:
            self.done(index, Record.model_validate_json(record), spent)
        else:
            self._write(index, record, spent)

    def _write(self, index: int, record: str, spent: Spent) -> None:
        self._place(index, self._note(f'"index":{index},"record":{record}', spent))

    def records(self, order: Sequence[int] | None = None, /) -> Iterator[Record]:
        """Yield the records that are done, in the order of the input, or in another order of positions in it."""
        # Records are read again from the file, because they would fill the memory.
        for place in self._places if order is None else map(self._places.__getitem__, order):
            if place != _NOWHERE:
                yield Record.model_validate(self._line_at(place)["record"])

    def lines(self) -> Iterator[bytes]:
        """Yield the records that are done as lines of JSON, in the order of the input."""
        # The record is cut out of its line: reading the JSON and writing it again takes fifty times as long.
        for place in self._places:
            if place != _NOWHERE:
                line = self._bytes_at(place)
                yield line[line.index(_RECORD) + len(_RECORD) : line.rindex(_SPENT)]

    def __len__(self) -> int:
        """Return the number of records that are done."""
        return sum(place != _NOWHERE for place in self._places)

    def has_results(self, wanted: Callable[[Iterable[Result]], bool]) -> bool:
        """Return True if a predicate holds for the results of any record, or of any metric for one."""
        parts = (results for found in self._parts.values() for results in found.values())
        return any(map(wanted, parts)) or any(wanted(record.results) for record in self.records())

    def _note(self, entry: str, spent: Spent) -> int:
        self._entries += 1
        return self._append(f'{{{entry},"spent":{spent.model_dump_json()}}}')

    def _place(self, index: int, place: int) -> None:
        # Turns end in any order, so that there may be gaps.
        if index >= len(self._places):
            self._places.extend([_NOWHERE] * (index + 1 - len(self._places)))
        self._places[index] = place

    def _take(self, place: int, entry: dict[str, Any]) -> None:
        index, spent = int(entry["index"]), Spent.model_validate(entry["spent"])
        if "record" in entry:
            self._place(index, place)
            # The record has all its results, also those that had their own lines.
            self._parts.pop(index, None)
        else:
            self._parts.setdefault(index, {})[entry["metric"]] = _RESULTS.validate_python(entry["results"])
        self._entries += 1
        self.spent = spent
