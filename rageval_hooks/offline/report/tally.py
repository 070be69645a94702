"""The data that a report keeps of one file: numbers in memory, records on disk. The file itself is read once."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.records.files import BadRow, read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import check_file
from rageval_hooks.offline.records.targets import TargetIds
from rageval_hooks.offline.report.answered import AnsweredScores
from rageval_hooks.offline.report.definitions import define_score, direction_of, metric_of, needs_answer
from rageval_hooks.offline.report.derived import ANSWERED, NO_ANSWER, rank_scores, rank_status
from rageval_hooks.offline.report.record_store import RecordStore
from rageval_hooks.offline.report.score_values import ScoreValues, as_numpy, out_of_range
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.selecting import without
from rageval_hooks.score import Failed, Result, Score, Skipped, is_about_turn
from rageval_hooks.text.formatting import flat
from rageval_hooks.text.words import fold
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FileTally", "Watch", "check_names", "file_names", "read_tallies"]

Watch = Callable[[Iterable[Record], Path], Iterable[Record]]
"""Wraps the records of a file, to show progress."""

# Different reasons that are kept per score: a message with an id in it may differ in every row.
_MOST_REASONS = 1000

_MOST_BAD_ROWS_SHOWN = 5

# An array of numbers has no None.
_NO_DOCUMENT = -1


class FileTally:
    """One file: its numbers, and a store of its records.

    Args:
        name: how the report calls the file.
        path: where it is.

    Attributes:
        ids: ids of the questions, each with its number.
        values: the values of each score, in the order of the file, derived scores last.
        skipped: reasons, by name of the score or metric.
        failed: likewise.
        errors: turns that failed, by type of error.
        ranks: how many target passages have which rank; None for a target that was missed.
        answered: which questions were answered.
        unranked: turns with a target whose rank is unknown.
        documents: names of the source documents, each with its number.
        bad: number of rows that could not be used.
        bad_rows: the first few of them, with their lines.
        store: all records.
    """

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.ids: dict[str, int] = {}
        self.values: dict[str, ScoreValues] = {}
        self.skipped: dict[str, Counter[str]] = {}
        self.failed: dict[str, Counter[str]] = {}
        self.errors: Counter[str] = Counter()
        self.ranks: Counter[int | None] = Counter()
        self.answered = AnsweredScores()
        self.unranked = 0
        self.documents: dict[str, int] = {}
        self.bad = 0
        self.bad_rows: list[str] = []
        self.store = RecordStore()
        self._query_hashes = array("q")
        self._questions = array("q")
        self._document_numbers = array("q")
        self._failed_rows = array("q")
        self._rows_without: dict[str, array[int]] = {}
        self._rows_failed: dict[str, array[int]] = {}
        self._derived: dict[str, ScoreValues] = {}
        self._target_ids = TargetIds()
        self._not_found = array("q")
        self._without_passages = array("q")

    # ----------------------------------------------------------------- reading

    def add(self, record: Record) -> None:
        """Add one record."""
        row = len(self.store)
        self.store.add(record)
        self._add_question(record)
        self.answered.add(record, row)
        if record.turn.status != "ok":
            self._add_failure(record.turn, row)
        for result in record.results:
            if _counts(result, record):
                self._add_result(_as_counted(result, record), row)
        self._add_derived(record, row)

    def add_bad(self, bad: BadRow) -> None:
        """Count a row that cannot be used."""
        self.bad += 1
        if len(self.bad_rows) < _MOST_BAD_ROWS_SHOWN:
            self.bad_rows.append(f"{self.path}, line {bad.line}: {bad.reason}")

    def finish(self) -> None:
        """Add the derived scores that the file itself lacks. Call it once, after the last record."""
        # Ids that match for no question at all are ids of another store, and show no misses.
        if self._target_ids.comparable:
            for row in self._not_found:
                self._add_rank(None, row)
        else:
            self._without_passages.extend(self._not_found)
        self.unranked = len(self._without_passages)
        if ANSWERED not in self.values:
            # The same numbers without the failed turns, next to it, would only confuse.
            self.values.pop(NO_ANSWER, None)
        for name, values in (self.answered.values() | self._derived).items():
            self.values.setdefault(name, values)

    def _add_failure(self, turn: Turn, row: int) -> None:
        kind = turn.error.type if turn.error else turn.status
        self.errors[kind] += 1
        self._failed_rows.append(row)

    def _add_question(self, record: Record) -> None:
        if record.id not in self.ids:
            self._query_hashes.append(_fingerprint(record.turn.query))
        self._questions.append(self.ids.setdefault(record.id, len(self.ids)))
        number = _NO_DOCUMENT
        if record.document is not None:
            number = self.documents.setdefault(record.document, len(self.documents))
        self._document_numbers.append(number)

    def _add_result(self, result: Result, row: int) -> None:
        if isinstance(result, Skipped):
            self._add_missing(self.skipped, result.name, result.reason, row)
        elif isinstance(result, Failed):
            self._add_failed(result.name, result.reason, row)
        elif problem := out_of_range(result):
            self._add_failed(result.name, problem, row)
        else:
            _add_value(self.values, result, row)

    def _add_derived(self, record: Record, row: int) -> None:
        is_known, rank = rank_status(record)
        self._target_ids.add(record.target, record.turn.passages)
        if is_known:
            self._add_rank(rank, row)
        elif record.has_target:
            pending = self._not_found if record.turn.passages else self._without_passages
            pending.append(row)

    def _add_rank(self, rank: int | None, row: int) -> None:
        self.ranks[rank] += 1
        for score in rank_scores(rank):
            _add_value(self._derived, score, row)

    def _add_failed(self, name: str, reason: str, row: int) -> None:
        self._add_missing(self.failed, name, reason, row)
        self._rows_failed.setdefault(name, array("q")).append(row)

    def _add_missing(self, table: dict[str, Counter[str]], name: str, reason: str, row: int) -> None:
        reasons = table.setdefault(name, Counter())
        # A judge's messages may differ in every row: beyond a limit they are counted together.
        is_listed = reason in reasons or len(reasons) < _MOST_REASONS
        reasons[reason if is_listed else "other reasons"] += 1
        self._rows_without.setdefault(name, array("q")).append(row)

    # ----------------------------------------------------------------- what was found

    def derived_scores(self, record: Record) -> Iterator[Score]:
        """Yield the scores that the report derives from a record of the file."""
        is_known, rank = rank_status(record)
        if is_known:
            yield from rank_scores(rank)
        answered = self.answered.of(record)
        if answered is not None:
            yield answered

    @property
    def by_rules(self) -> frozenset[str]:
        """The scores that every file of responses has, whether it was scored or not."""
        return frozenset({ANSWERED}) if self.answered.is_by_rules else frozenset()

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.store)

    @property
    def runs(self) -> int:
        """The most answers that one question has."""
        import numpy as np

        return int(np.bincount(self.questions).max()) if self.records else 0

    @property
    def questions(self) -> NDArray[np.int64]:
        """Per record: the number of its question."""
        return as_numpy(self._questions)

    @property
    def document_numbers(self) -> NDArray[np.int64]:
        """Per record: the number of its source document; -1 if it has none."""
        return as_numpy(self._document_numbers)

    @property
    def failed_ids(self) -> set[str]:
        """The questions of which at least one turn failed."""
        return self._ids_of(self._failed_rows)

    def names(self) -> list[str]:
        """Return the scores and metrics that have results, in the order of the file.

        A metric that was only ever skipped or failed is listed once, under its own name.
        """
        metrics = {values.metric for values in self.values.values()}
        missing = without((*self.skipped, *self.failed), metrics)
        return list(dict.fromkeys((*self.values, *missing)))

    def missing(self, name: str) -> tuple[Counter[str], Counter[str]]:
        """Return why a score, or its whole metric, was skipped and failed."""
        skipped: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for one in self._result_names(name):
            skipped += self.skipped.get(one, Counter())
            failed += self.failed.get(one, Counter())
        return skipped, failed

    def ids_without(self, name: str) -> set[str]:
        """Return the questions for which a score, or its whole metric, was skipped or failed."""
        return self._ids_in(self._rows_without, name)

    def ids_where_failed(self, name: str) -> set[str]:
        """Return the questions for which a score, or its whole metric, failed, or whose turn failed."""
        return self._ids_in(self._rows_failed, name) | self.failed_ids

    def worst_rows(self, name: str, most: int, lower: Collection[str] = ()) -> list[int]:
        """Return the rows with the worst values of a score, the worst first."""
        import numpy as np

        found = self.values.get(name)
        if found is None:
            return []
        # A stable sort keeps the order of the file among equal values.
        sign = 1 if direction_of(name, found.metric, lower) == "higher" else -1
        order = np.argsort(sign * found.values, kind="stable")[:most]
        return [int(row) for row in found.rows[order]]

    def asks_the_same(self, other: FileTally, id: str) -> bool:
        """Return True if an id stands for the same question in both files, as far as they have the questions."""
        mine, theirs = self._query_hashes[self.ids[id]], other._query_hashes[other.ids[id]]
        return mine == theirs or not mine or not theirs

    def headline(self) -> str | None:
        """Return the score that sums up a turn best, by the scores' own definitions."""
        names = without(self.values, self.by_rules) or list(self.values)
        if not names:
            return None
        # max() returns the first of equals: without any headline, the first score of the file.
        return max(names, key=lambda name: define_score(name, self.values[name].metric).headline)

    def _result_names(self, name: str) -> list[str]:
        """Return the names under which a missing score may be listed: its own, and that of its metric."""
        metric = self.values[name].metric if name in self.values else metric_of(name)
        return [name] if metric is None else sorted({name, metric})

    def _ids_in(self, table: Mapping[str, array[int]], name: str) -> set[str]:
        rows = array("q")
        for one in self._result_names(name):
            rows.extend(table.get(one, array("q")))
        return self._ids_of(rows)

    def _ids_of(self, rows: Iterable[int]) -> set[str]:
        ids = list(self.ids)
        return {ids[self._questions[row]] for row in rows}


def read_tallies(
    paths: Sequence[str | os.PathLike[str]],
    *,
    watch: Watch | None = None,
    scores: Collection[str] = (),
    privacy: PrivacyPolicy = NO_PRIVACY,
) -> list[FileTally]:
    """Read files of records, each once.

    Args:
        paths: the files.
        watch: wraps the records, to show progress.
        scores: columns of a table that are scores if they hold numbers only.
        privacy: which texts may be shown; all by default.

    Raises:
        ConfigurationError: a file does not exist, or has no records.
    """
    found = []
    for name, path in zip(file_names(paths), map(Path, paths), strict=True):
        check_file(path)
        tally = FileTally(name, str(path))
        records: Iterable[Record] = read_records(path, scores=scores, on_bad=tally.add_bad)
        for record in watch(records, path) if watch else records:
            tally.add(record.redacted(privacy))
        if not tally.records:
            raise ConfigurationError(f"{path} has no records: {'; '.join(tally.bad_rows) or 'it is empty'}")
        tally.finish()
        found.append(tally)
    return found


def file_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return short names for files: as many of the last parts of their paths as tell them apart."""
    parts = [Path(os.path.realpath(path)).with_suffix("").parts for path in paths]
    return [flat(_short_name(index, parts) or str(paths[index])) for index in range(len(parts))]


def check_names(names: Iterable[str], tallies: Iterable[FileTally]) -> None:
    """Check that each score is in at least one file.

    Raises:
        UnknownNameError: a score is in none; the message lists those that there are.
    """
    valid = list(dict.fromkeys(name for tally in tallies for name in tally.names()))
    for name in names:
        if name not in valid:
            raise UnknownNameError("score", name, valid)


def _short_name(index: int, parts: Sequence[tuple[str, ...]]) -> str | None:
    mine = parts[index]
    for length in range(1, len(mine)):
        ends = [path[-length:] for path in parts]
        if ends.count(mine[-length:]) == 1:
            return "/".join(mine[-length:])
    # The same file was given twice: nothing tells them apart.
    return None


def _counts(result: Result, record: Record) -> bool:
    """Return True if a result of a record enters its scores."""
    # The derived scores say whether a failed or unanswerable turn was answered, and whether that was right.
    is_derived = record.turn.status != "ok" or not record.answerable
    if result.name == NO_ANSWER and is_derived:
        return False
    return is_about_turn(result)


def _as_counted(result: Result, record: Record) -> Result:
    """Return a result, or that it is skipped where no answer is right: a file may have been scored without the mark."""
    if record.answerable or not isinstance(result, Score) or not needs_answer(result.metric or metric_of(result.name)):
        return result
    return Skipped(name=result.name, reason=UNANSWERABLE)


def _add_value(table: dict[str, ScoreValues], score: Score, row: int) -> None:
    values = table.get(score.name)
    if values is None:
        values = table[score.name] = ScoreValues(score.metric or metric_of(score.name))
    values.add(score, row)


def _fingerprint(query: str) -> int:
    """Return a hash that equal questions share, ignoring white space and case; 0 for an empty question."""
    # A hash of eight bytes per question, because the texts of 200,000 questions would not fit into memory twice.
    words = fold(query).split()
    return hash(" ".join(words)) if words else 0
