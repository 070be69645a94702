"""What a report keeps of one file: numbers in memory, records in a temporary file. The file itself is read once."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.metrics.local.reference_overlap import overlap_scores
from rageval_hooks.offline.answerability import UNANSWERABLE, is_refusal
from rageval_hooks.offline.records.files import BadRow, read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import check_file
from rageval_hooks.offline.records.targets import TargetIds
from rageval_hooks.offline.report.definitions import (
    ANSWERED,
    DECLINED,
    NO_ANSWER,
    define_score,
    direction_of,
    metric_of,
    needs_answer,
    rank_scores,
    rank_status,
)
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.score import Failed, Result, Score, Skipped, is_about_turn
from rageval_hooks.text.formatting import flat, show_value
from rageval_hooks.text.words import fold

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FileTally", "Maker", "ScoreValues", "Watch", "check_names", "read_tallies"]

Watch = Callable[[Iterable[Record], Path], Iterable[Record]]
"""Wraps the records of a file, to show progress."""

Maker = tuple[str, str | None]
"""Version and model of a score. "" if the file does not say; the model is None for a formula alone."""

# Beyond these bounds, sums of squares and of weights overflow or lose all digits.
_LARGEST, _SMALLEST_PROBABILITY = 1e100, 1e-12

# Different reasons that are kept per score: a message of a judge may differ in every row.
_MOST_REASONS = 1000

_MOST_BAD_ROWS_SHOWN = 5

# What `answered` states as its model if rules decide: it is not comparable with a judge's.
_RULES = "rules"


class ScoreValues:
    """The values of one score, each with its weight and the row it is from.

    Numbers are kept in arrays: a file of 200,000 rows takes 6 MB per score, not 100.

    Attributes:
        metric: the metric that made it, as far as the records say.
        labelled: number of values with the label ``pass`` or ``fail``.
        makers: versions and models that made them, each with its number.
    """

    def __init__(self, metric: str | None) -> None:
        self.metric = metric
        self.labelled = 0
        self.makers: dict[Maker, int] = {}
        self._weight_of_label = {"pass": 0.0, "fail": 0.0}
        self._values = array("d")
        self._weights = array("d")
        self._rows = array("q")
        self._maker_numbers = array("q")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, score: Score, row: int) -> None:
        """Add one score."""
        weight = 1 / score.probability
        # A field that the record does not set is unstated, which differs from a stated None.
        version = score.version if "version" in score.model_fields_set else ""
        model = score.model if "model" in score.model_fields_set else ""
        self._values.append(score.value)
        self._weights.append(weight)
        self._rows.append(row)
        self._maker_numbers.append(self.makers.setdefault((version, model), len(self.makers)))
        if score.label in self._weight_of_label:
            self._weight_of_label[score.label] += weight
            self.labelled += 1

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, in the order of the file."""
        return _as_numpy(self._values)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Per value: 1 / the probability with which its turn was sampled."""
        return _as_numpy(self._weights)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Per value: the number of its record in the file, from 0."""
        return _as_numpy(self._rows)

    @property
    def maker_numbers(self) -> list[int]:
        """The number of each value's maker, in the order of :attr:`makers`."""
        return self._maker_numbers.tolist()

    @property
    def sampled(self) -> bool:
        """True if some values stand for more than one turn."""
        return bool((self.weights > 1).any())

    @property
    def passed(self) -> float | None:
        """Weighted share of the labelled values that pass; None without labels."""
        total = sum(self._weight_of_label.values())
        return self._weight_of_label["pass"] / total if total else None


class FileTally:
    """One file: its numbers, and a store of its records. Call :meth:`finish` after the last record.

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
        unranked: turns with a target whose rank is unknown.
        unanswerable: turns whose question is marked as unanswerable.
        documents: names of the source documents, each with its number.
        bad: number of rows that could not be used.
        bad_rows: the first few of them, with their lines.
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
        self.unranked = 0
        self.unanswerable = 0
        self.documents: dict[str, int] = {}
        self.bad = 0
        self.bad_rows: list[str] = []
        self._store = _RecordStore()
        self._query_hashes = array("q")
        self._questions = array("q")
        self._documents = array("q")
        self._failed_rows = array("q")
        self._rows_without: dict[str, array[int]] = {}
        self._rows_where_failed: dict[str, array[int]] = {}
        self._target_ids = TargetIds()
        self._ranked: dict[str, ScoreValues] = {}
        self._not_found = array("q")
        self._overlaps: dict[str, ScoreValues] = {}
        # Whether questions were answered: by the judge of the metric `no_answer`, and by rules.
        self._judged: dict[str, ScoreValues] = {}
        self._by_rules: dict[str, ScoreValues] = {}
        self._has_judge = False
        self._has_responses = False

    # ----------------------------------------------------------------- reading

    def add(self, record: Record) -> None:
        """Add one record."""
        row = self.records
        self._store.append(record)
        if record.id not in self.ids:
            self._query_hashes.append(_fingerprint(record.turn.query))
        self._questions.append(self.ids.setdefault(record.id, len(self.ids)))
        document = record.document
        self._documents.append(-1 if document is None else self.documents.setdefault(document, len(self.documents)))
        self.unanswerable += not record.answerable
        if record.turn.status != "ok":
            self.errors[record.turn.error.type if record.turn.error else record.turn.status] += 1
            self._failed_rows.append(row)
        for result in record.results:
            if is_about_turn(result):
                self._add_result(result, record, row)
        self._add_answered(record, row)
        self._add_rank_of(record, row)
        for score in overlap_scores(record.turn) if record.answerable else ():
            _add_value(self._overlaps, score, row)

    def _add_result(self, result: Result, record: Record, row: int) -> None:
        if result.name == NO_ANSWER and (record.turn.status != "ok" or not record.answerable):
            return  # `answered` and `declined` say whether a failed or an unanswerable turn was answered
        if isinstance(result, Skipped):
            self._add_missing(self.skipped, result.name, result.reason, row)
        elif isinstance(result, Failed):
            self._add_failed(result.name, result.reason, row)
        elif not record.answerable and needs_answer(result.metric or metric_of(result.name)):
            # The file may have been scored without the mark.
            self._add_missing(self.skipped, result.name, UNANSWERABLE, row)
        elif abs(result.value) > _LARGEST:
            reason = f"the value {show_value(result.value)} is out of range: beyond {_LARGEST:g}"
            self._add_failed(result.name, reason, row)
        elif result.probability < _SMALLEST_PROBABILITY:
            reason = f"the probability {result.probability:.2g} is out of range: below {_SMALLEST_PROBABILITY:g}"
            self._add_failed(result.name, reason, row)
        else:
            _add_value(self.values, result, row)

    def _add_failed(self, name: str, reason: str, row: int) -> None:
        self._add_missing(self.failed, name, reason, row)
        self._rows_where_failed.setdefault(name, array("q")).append(row)

    def _add_missing(self, table: dict[str, Counter[str]], name: str, reason: str, row: int) -> None:
        reasons = table.setdefault(name, Counter())
        is_listed = reason in reasons or len(reasons) < _MOST_REASONS
        reasons[reason if is_listed else "other reasons"] += 1
        self._rows_without.setdefault(name, array("q")).append(row)

    def _add_answered(self, record: Record, row: int) -> None:
        """Add ``answered`` or ``declined`` of a record: a failed turn counts as 0 in both."""
        self._has_responses |= bool(record.turn.response.strip())
        self._has_judge |= any(result.name == NO_ANSWER for result in record.results)
        if (judged := _judged(record)) is not None:
            _add_value(self._judged, judged, row)
        # Rules take a moment per turn, and are not needed once a judge is known.
        if not self._has_judge and (ruled := _by_rules(record)) is not None:
            _add_value(self._by_rules, ruled, row)

    def _add_rank_of(self, record: Record, row: int) -> None:
        is_known, rank = rank_status(record)
        self._target_ids.add(record.target, record.turn.passages)
        if is_known:
            self._add_rank(rank, row)
        elif record.has_target and record.turn.passages:
            self._not_found.append(row)
        elif record.has_target:
            self.unranked += 1

    def _add_rank(self, rank: int | None, row: int) -> None:
        self.ranks[rank] += 1
        for score in rank_scores(rank):
            _add_value(self._ranked, score, row)

    def add_bad(self, bad: BadRow) -> None:
        """Count a row that cannot be used."""
        self.bad += 1
        if len(self.bad_rows) < _MOST_BAD_ROWS_SHOWN:
            self.bad_rows.append(f"{self.path}, line {bad.line}: {bad.reason}")

    def finish(self) -> None:
        """Add the derived scores that the file itself lacks."""
        # Ids that match for no question at all are ids of another store, and show no misses.
        if self._target_ids.comparable:
            for row in self._not_found:
                self._add_rank(None, row)
        else:
            self.unranked += len(self._not_found)
        if ANSWERED not in self.values:
            # The same numbers without the failed turns, next to it, would only confuse.
            self.values.pop(NO_ANSWER, None)
        for name, values in (self._answered() | self._ranked).items():
            self.values.setdefault(name, values)
        # A file that has some of these scores was scored with them, perhaps with another reference.
        if self._overlaps.keys().isdisjoint(self.names()):
            self.values |= self._overlaps

    def _answered(self) -> dict[str, ScoreValues]:
        # Without any response it is a file of retrieval, and tells nothing about answers.
        if not self._has_judge and not self._has_responses:
            return self._by_rules if len(self._failed_rows) == self.records else {}
        found = self._judged if self._has_judge else self._by_rules
        failed = Counter(ANSWERED if self._store[row].answerable else DECLINED for row in self._failed_rows)
        asked = {ANSWERED: self.records - self.unanswerable, DECLINED: self.unanswerable}
        # If only failures are known, nothing tells a refusal from an answer, as in a language without rules.
        return {name: values for name, values in found.items() if not len(values) == failed[name] < asked[name]}

    # ----------------------------------------------------------------- what was found

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self._questions)

    def record(self, row: int) -> Record:
        """Return a record by its number, from 0."""
        return self._store[row]

    def derived_scores(self, record: Record) -> Iterator[Score]:
        """Yield the scores that the report derives from a record of the file."""
        is_known, rank = rank_status(record)
        if is_known:
            yield from rank_scores(rank)
        answered = _judged(record) if self._has_judge else _by_rules(record)
        if answered is not None and answered.name in self.values:
            yield answered
        if record.answerable:
            yield from (score for score in overlap_scores(record.turn) if score.name in self.values)

    @property
    def unscored(self) -> frozenset[str]:
        """The scores that a file of responses has although nobody scored it."""
        answered = () if self._has_judge or len(self._failed_rows) == self.records else (ANSWERED,)
        overlaps = (name for name in self._overlaps if self.values.get(name) is self._overlaps[name])
        return frozenset((*answered, *overlaps))

    @property
    def runs(self) -> int:
        """The most answers that one question has."""
        import numpy as np

        return int(np.bincount(self.questions).max()) if self.records else 0

    @property
    def questions(self) -> NDArray[np.int64]:
        """Per record: the number of its question."""
        return _as_numpy(self._questions)

    @property
    def document_numbers(self) -> NDArray[np.int64]:
        """Per record: the number of its source document; -1 if it has none."""
        return _as_numpy(self._documents)

    @property
    def failed_ids(self) -> set[str]:
        """The questions of which at least one turn failed."""
        return self._ids_of(self._failed_rows)

    def names(self) -> list[str]:
        """Return the scores and metrics that have results, in the order of the file.

        A metric that was only ever skipped or failed is listed once, under its own name.
        """
        metrics = {values.metric for values in self.values.values()}
        missing = [name for name in (*self.skipped, *self.failed) if name not in metrics]
        return list(dict.fromkeys((*self.values, *missing)))

    def missing(self, name: str) -> tuple[Counter[str], Counter[str]]:
        """Return why a score, or its whole metric, was skipped and failed."""
        skipped: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for one in self._result_names(name):
            skipped += self.skipped.get(one, Counter())
            failed += self.failed.get(one, Counter())
        return skipped, failed

    def ids_with(self, name: str) -> set[str]:
        """Return the questions that have a value of a score."""
        return self._ids_of(self.values[name].rows.tolist()) if name in self.values else set()

    def ids_without(self, name: str) -> set[str]:
        """Return the questions for which a score, or its whole metric, was skipped or failed."""
        rows = (self._rows_without.get(one, array("q")) for one in self._result_names(name))
        return self._ids_of(row for found in rows for row in found)

    def ids_where_failed(self, name: str) -> set[str]:
        """Return the questions for which a score, or its whole metric, failed, or whose turn failed."""
        rows = (self._rows_where_failed.get(one, array("q")) for one in self._result_names(name))
        return self._ids_of(row for found in rows for row in found) | self.failed_ids

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
        names = [name for name in self.values if name not in self.unscored] or list(self.values)
        if not names:
            return None
        # max() returns the first of equals: without any headline, the first score of the file.
        return max(names, key=lambda name: define_score(name, self.values[name].metric).headline)

    def _result_names(self, name: str) -> set[str]:
        """Return the names under which a missing score may be listed: its own, and that of its metric."""
        metric = self.values[name].metric if name in self.values else metric_of(name)
        return {name} if metric is None else {name, metric}

    def _ids_of(self, rows: Iterable[int]) -> set[str]:
        ids = list(self.ids)
        return {ids[self._questions[row]] for row in rows}


class _RecordStore:
    """Records by their number. Memory holds 8 bytes per record; the rest is in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="rageval-report-")  # noqa: SIM115 - lives as long as the store
        weakref.finalize(self, self._file.close)
        self._places = array("q")

    def append(self, record: Record) -> None:
        self._places.append(self._file.seek(0, os.SEEK_END))
        self._file.write(record.model_dump_json().encode() + b"\n")

    def __getitem__(self, number: int) -> Record:
        self._file.seek(self._places[number])
        return Record.model_validate_json(self._file.readline())


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
    for name, path in zip(_file_names(paths), map(Path, paths), strict=True):
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


def _file_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return short names for files: as many of the last parts of their paths as tell them apart."""
    parts = [Path(os.path.realpath(path)).with_suffix("").parts for path in paths]
    names = []
    for path, mine in zip(paths, parts, strict=True):
        name = str(path)  # if the same file was given twice
        for length in range(1, len(mine)):
            if [other[-length:] for other in parts].count(mine[-length:]) == 1:
                name = "/".join(mine[-length:])
                break
        names.append(flat(name))
    return names


def check_names(names: Iterable[str], tallies: Iterable[FileTally]) -> None:
    """Check that each score is in at least one file.

    Raises:
        UnknownNameError: a score is in none; the message lists those that there are.
    """
    valid = list(dict.fromkeys(name for tally in tallies for name in tally.names()))
    for name in names:
        if name not in valid:
            raise UnknownNameError("score", name, valid)


def _judged(record: Record) -> Score | None:
    """Return ``answered``, or ``declined`` for an unanswerable question, as the judge said."""
    name = ANSWERED if record.answerable else DECLINED
    if record.turn.status != "ok":
        return Score(name=name, value=0.0, metric=NO_ANSWER)
    for score in record.scores():
        if score.name == NO_ANSWER:
            value = score.value if record.answerable else 1 - score.value
            return score.model_copy(update={"name": name, "value": value, "metric": NO_ANSWER})
    return None


def _by_rules(record: Record) -> Score | None:
    """Return the same by rules; None for a response in a language whose refusals are not known."""
    name = ANSWERED if record.answerable else DECLINED
    if record.turn.status != "ok":
        return Score(name=name, value=0.0, metric=NO_ANSWER)
    refused = is_refusal(record.turn.response)
    if refused is None:
        return None
    return Score(name=name, value=float(refused != record.answerable), model=_RULES, metric=NO_ANSWER)


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


def _as_numpy(values: array[Any]) -> NDArray[Any]:
    import numpy as np

    # A copy, because an array cannot grow while numpy holds its buffer.
    return np.frombuffer(values, dtype=np.float64 if values.typecode == "d" else np.int64).copy()
