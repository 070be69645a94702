"""What a report keeps of a file of records: the numbers, and the few turns that it shows. The rest streams through."""

from __future__ import annotations

import heapq
import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import check_file
from rageval_hooks.offline.report.directions import direction_of, metric_of
from rageval_hooks.offline.report.score_values import Values, numbers, out_of_range
from rageval_hooks.score import Failed, Score, Skipped, is_about_turn
from rageval_hooks.text.formatting import flat
from rageval_hooks.text.words import fold

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rageval_hooks.offline.records.files import BadRow

__all__ = ["NO_ANSWER", "Tally", "Watch", "check_names", "file_names", "read_tallies"]

NO_ANSWER = "no_answer"
"""The score that says whether a turn attempts an answer: 1 if it does."""

Watch = Callable[[Iterable[Record], Path], Iterable[Record]]
"""Sees the records of a file go by, to show progress."""

_FAVOURITES = ("groundedness", "trace.adherence", "trace.supported_share", "hhem", "reference.completeness")
_MOST_REASONS = 1000
_MOST_COMPLAINTS = 5


class Tally:
    """One file, as numbers.

    Args:
        name: how the report calls the file.
        path: where it is.
        worst: how many turns to keep whole, per score, the worst ones.
        lower: scores of which lower is better, beside those that are known to be so.

    Attributes:
        records: how many.
        ids: of the questions, each with its number.
        values: by the score's name, in the order of the file.
        skipped: reasons by name of the score or metric.
        failed: likewise.
        errors: of turns that failed, by type.
        ranks: how often the target passage had which rank; None for "not among the passages".
        unranked: turns with a target that failed before anything was retrieved.
        documents: names of the source documents, each with its number.
        bad: how many rows could not be used.
        complaints: the first few of them, with their lines.
    """

    def __init__(self, name: str, path: str, *, worst: int = 10, lower: Sequence[str] = ()) -> None:
        self.name = name
        self.path = path
        self.records = 0
        self.ids: dict[str, int] = {}
        self.values: dict[str, Values] = {}
        self.skipped: dict[str, Counter[str]] = {}
        self.failed: dict[str, Counter[str]] = {}
        self.errors: Counter[str] = Counter()
        self.ranks: Counter[int | None] = Counter()
        self.unranked = 0
        self.documents: dict[str, int] = {}
        self.bad = 0
        self.limited_log: list[str] = []
        self._lower = tuple(lower)
        self._queries = array("q")
        self._questions = array("q")
        self._without: dict[str, array[int]] = {}
        self._document_of = array("q")
        self._most_worst = worst
        self._worst: dict[str, list[tuple[float, int, Record]]] = {}

    def add(self, record: Record) -> None:
        """Take in one record."""
        row = self.records
        self.records += 1
        if record.id not in self.ids:
            self._queries.append(_fingerprint(record.turn.query))
        self._questions.append(self.ids.setdefault(record.id, len(self.ids)))
        document = record.document
        self._document_of.append(-1 if document is None else self.documents.setdefault(document, len(self.documents)))
        if record.turn.status != "ok":
            self.errors[record.turn.error.type if record.turn.error else record.turn.status] += 1
        self._add_rank(record)
        for result in record.results:
            if not is_about_turn(result):
                continue
            if isinstance(result, Score):
                self._add_score(result, row, record)
            elif isinstance(result, Skipped):
                self._add_missing(self.skipped, result.name, result.reason, row)
            else:
                self._add_missing(self.failed, result.name, _failure(result), row)

    def complain(self, bad: BadRow) -> None:
        """Take note of a row that cannot be used."""
        self.bad += 1
        if len(self.limited_log) < _MOST_COMPLAINTS:
            self.limited_log.append(f"{self.path}, line {bad.line}: {bad.reason}")

    def _add_rank(self, record: Record) -> None:
        if record.target is None and record.rank is None:
            return
        if record.rank is None and record.turn.status != "ok" and not record.turn.passages:
            self.unranked += 1
        else:
            self.ranks[record.rank] += 1

    def _add_missing(self, table: dict[str, Counter[str]], name: str, reason: str, row: int) -> None:
        _count(table, name, reason)
        self._without.setdefault(name, array("q")).append(row)

    def _add_score(self, score: Score, row: int, record: Record) -> None:
        wrong = out_of_range(score)
        if wrong is not None:
            self._add_missing(self.failed, score.name, wrong, row)
            return
        values = self.values.get(score.name)
        if values is None:
            values = self.values[score.name] = Values(score.metric or metric_of(score.name))
        values.add(score, row)
        if not self._most_worst:
            return
        badness = -score.value if direction_of(score.name, score.metric, self._lower) == "higher" else score.value
        worst = self._worst.setdefault(score.name, [])
        if len(worst) < self._most_worst:
            heapq.heappush(worst, (badness, -row, record))
        elif badness > worst[0][0]:
            heapq.heapreplace(worst, (badness, -row, record))

    @property
    def runs(self) -> int:
        """The most answers that a question has."""
        import numpy as np

        return int(np.bincount(self.questions).max()) if self.records else 0

    @property
    def questions(self) -> NDArray[np.int64]:
        """Of each record: the number of its question."""
        return numbers(self._questions)

    @property
    def document_of(self) -> NDArray[np.int64]:
        """Of each record: the number of its source document; -1 where it has none."""
        return numbers(self._document_of)

    def worst(self, score: str) -> list[Record]:
        """Return the turns with the worst values of a score, the worst first."""
        return [record for _, _, record in sorted(self._worst.get(score, ()), key=lambda item: item[:2], reverse=True)]

    def names(self) -> list[str]:
        """Return the scores and the metrics that have results, in the order of the file.

        A metric that was only ever skipped or failed is there under its own name, once.
        """
        metrics = {values.metric for values in self.values.values()}
        missing = (name for name in (*self.skipped, *self.failed) if name not in metrics)
        return list(dict.fromkeys((*self.values, *missing)))

    def missing(self, name: str) -> tuple[Counter[str], Counter[str]]:
        """Return why a score was skipped and failed; what befell its whole metric counts too."""
        names = self._befalls(name)
        skipped, failed = (
            sum((table.get(one, Counter()) for one in names), Counter()) for table in (self.skipped, self.failed)
        )
        return skipped, failed

    def without(self, name: str) -> set[str]:
        """Return the ids of the questions for which a score, or its whole metric, was skipped or failed."""
        ids, questions = list(self.ids), self._questions
        return {ids[questions[row]] for one in self._befalls(name) for row in self._without.get(one, ())}

    def _befalls(self, name: str) -> list[str]:
        metric = self.values[name].metric if name in self.values else metric_of(name)
        return [name] if metric is None else sorted({name, metric})

    def asks_the_same(self, other: Tally, id: str) -> bool:
        """Whether an id that both files have stands for the same question in both, as far as they say."""
        mine, others = self._queries[self.ids[id]], other._queries[other.ids[id]]
        return mine == others or not mine or not others

    def favourite(self) -> str | None:
        """Return the score that says most about a turn, of those that are there."""
        for name in _FAVOURITES:
            if name in self.values:
                return name
        return next(iter(self.values), None)


def read_tallies(
    paths: Sequence[str | os.PathLike[str]],
    *,
    worst: int = 10,
    lower: Sequence[str] = (),
    watch: Watch | None = None,
    scores: Collection[str] = (),
) -> list[Tally]:
    """Read files of records.

    Args:
        paths: of the files.
        worst: how many turns to keep whole, per score and file, the worst ones.
        lower: scores of which lower is better, beside those that are known to be so.
        watch: sees the records go by.
        scores: columns of a table that are scores, if they hold numbers alone.

    Raises:
        ConfigurationError: there is no such file, or it is empty.
    """
    from rageval_hooks.offline.records.files import read_records

    found = []
    for name, path in zip(file_names(paths), map(Path, paths), strict=True):
        check_file(path)
        tally = Tally(name, str(path), worst=worst, lower=lower)
        records = read_records(path, scores=scores, on_bad=tally.complain)
        for record in watch(records, path) if watch else records:
            tally.add(record)
        if not tally.records:
            why = "; ".join(tally.limited_log) or "it is empty"
            raise ConfigurationError(f"{path} has no records: {why}")
        found.append(tally)
    return found


def file_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return short names for files: as much of the ends of their paths as tells them apart."""
    parts = [Path(os.path.realpath(path)).with_suffix("").parts for path in paths]
    names = []
    for index, mine in enumerate(parts):
        others = [other for place, other in enumerate(parts) if place != index]
        length = next((n for n in range(1, len(mine)) if all(mine[-n:] != other[-n:] for other in others)), None)
        names.append(flat("/".join(mine[-length:]) if length else str(paths[index])))
    return names


def check_names(names: Iterable[str], tallies: Iterable[Tally]) -> None:
    """Check that scores exist in at least one file.

    Raises:
        UnknownNameError: one does not; the message lists those that are there.
    """
    valid = list(dict.fromkeys(name for tally in tallies for name in tally.names()))
    for name in names:
        if name not in valid:
            raise UnknownNameError("score", name, valid)


def _fingerprint(query: str) -> int:
    """What equal questions have in common, white space and case aside; 0 for an empty one."""
    words = fold(query).split()
    return hash(" ".join(words)) if words else 0


def _count(table: dict[str, Counter[str]], name: str, reason: str) -> None:
    reasons = table.setdefault(name, Counter())
    reasons[reason if reason in reasons or len(reasons) < _MOST_REASONS else "other reasons"] += 1


def _failure(result: Failed) -> str:
    return f"{result.error_type}: {result.message}" if result.message else result.error_type
