"""What a report keeps of one file: numbers in memory, records in a temporary file."""

from __future__ import annotations

import math
import os
import pickle
import sys
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.metrics.local.reference_overlap import overlap_scores
from rageval_hooks.offline.answerability import UNANSWERABLE, is_refusal
from rageval_hooks.offline.conversations import ConversationSummary
from rageval_hooks.offline.records.formats import BadRow, check_file
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import PROBABILITY
from rageval_hooks.offline.report.corrected import JudgedSample
from rageval_hooks.offline.report.statistics import Flags, Floats, Ints
from rageval_hooks.offline.score_definitions import (
    ANSWERED,
    BAD_ANSWERS,
    DECLINED,
    HITS,
    NO_ANSWER,
    RANK,
    TARGET_RANK,
    builtin_metric_of,
    define_score,
    needs_answer,
)
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.score import VERDICT, Result, Score, is_about_turn, is_judged_verdict, verdict_first, verdict_of
from rageval_hooks.text.formatting import flat
from rageval_hooks.text.words import fold

Watch = Callable[[Iterable[Record], Path], Iterable[Record]]
"""Wraps the records of a file, to show progress."""

Maker = tuple[str, str | None]
"""Version and model of a score. "" if the file does not say; the model is None for a formula alone."""

# Beyond these bounds, sums of squares and of weights overflow or lose all digits.
_LARGEST, _MIN_PROBABILITY = 1e100, 1e-12

_MAX_BAD_ROWS_SHOWN = 5

_LABELS = {"pass": 1.0, "fail": 0.0}

_OVERLAP = "reference_overlap."

_TIMES = {"day": "%Y-%m-%d", "week": "%G-W%V"}
"""What ``--group-by`` knows of every turn with a time; a week is that of ISO 8601."""

_RULES = "rules"
"""The model of ``answered`` where no judge was asked: it says that the value is not a judge's."""


def _probability(record: Record, column: str) -> float:
    """Return the probability in a column; 1 if the file has none."""
    given = record.turn.metadata.get(column, 1)
    try:
        value = float(str(given))
    except ValueError:
        value = 0.0
    if 0 < value <= 1:
        return value
    raise ConfigurationError(f"id {record.id}: {column} is {str(given)[:40]!r}, not a number above 0 and at most 1")


@dataclass(slots=True)
class CauseRows:
    """The records with one cause: the first of them, how many there are, and how many of them are bad."""

    first: int
    count: int = 0
    bad: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreValues:
    """The values of one score.

    Attributes:
        metric: the metric that made it, as far as the records say.
        makers: versions and models that made its values, in the order of the file.
        values: the values, in the order of the file.
        weights: per value, 1 / the probability with which its turn was sampled.
        rows: per value, the number of its record in the file, from 0.
        labels: per value, 1 for the label ``pass``, 0 for ``fail``, NaN without one of them.
        questions: per value, the number of its question.
    """

    metric: str | None
    makers: Mapping[Maker, None]
    values: Floats
    weights: Floats
    rows: Ints
    labels: Floats
    questions: Ints

    @property
    def sampled(self) -> bool:
        """True if some values stand for more than one turn."""
        return bool((self.weights > 1).any())

    def described_makers(self) -> tuple[str, ...]:
        """Return its makers in words: ``version 2, gpt-5-mini``."""
        found = []
        for version, model in self.makers:
            parts = [f"version {version}"] if version else []
            if model != "":
                parts.append("no model" if model is None else model)
            found.append(", ".join(parts) or "not stated")
        return tuple(found)


class _ValueCollector:
    """Collects the values of one score, in an array: a file of 200,000 rows takes 6 MB per score, not 100.

    Args:
        metric: the metric that made it, as far as the records say.
    """

    def __init__(self, metric: str | None) -> None:
        self._metric = metric
        self._makers: dict[Maker, None] = {}
        self._numbers = array("d")

    def __len__(self) -> int:
        return len(self._numbers) // 4

    def add(self, score: Score, row: int) -> None:
        """Add one score."""
        # A field that the record does not set is unstated, which differs from a stated None.
        version = score.version if "version" in score.model_fields_set else ""
        model = score.model if "model" in score.model_fields_set else ""
        self._makers.setdefault((version, model))
        self._numbers.extend((score.value, 1 / score.probability, row, _LABELS.get(score.label or "", math.nan)))

    def collected(self, questions: Ints) -> ScoreValues:
        """Return the values.

        Args:
            questions: per record of the file, the number of its question.
        """
        values, weights, in_rows, labels = np.array(self._numbers).reshape(-1, 4).T
        rows = in_rows.astype(int)
        return ScoreValues(
            metric=self._metric,
            makers=self._makers,
            values=values,
            weights=weights,
            rows=rows,
            labels=labels,
            questions=questions[rows],
        )


class ScoredFile:
    """The numbers of one file, and a store of its records.

    Reading takes two passes, since some scores depend on the whole file, such as on whether a judge was asked.
    :meth:`add` takes in each record, and :meth:`finish` collects the scores.

    Args:
        name: how the report calls the file.
        path: where it is.
        lower: scores for which the user says that lower is better.
        people: the annotation or column with labels of people; None for the verdicts of the judge.

    Attributes:
        ids: ids of the questions, each with its number.
        values: the values of each score: the share of bad answers, then the order of the file, then derived scores.
        verdicts: number of records by verdict.
        causes: the records with each cause of a verdict.
        errors: turns that failed, by type of error.
        ranks: how many target passages have which rank; None for a target that was missed.
        unranked: turns with a target whose rank is unknown.
        unanswerable: turns whose question is marked as unanswerable.
        documents: names of the source documents, each with its number.
        bad: number of rows that could not be used.
        bad_rows: the first few of them, with their lines.
        notes: choices of the reader that the user should know.
        judged_sample: the local verdicts of all answers, and what the judge or people say of some.
    """

    def __init__(self, name: str, path: str, lower: Collection[str], people: str | None = None) -> None:
        self.name = name
        self.path = path
        self._lower = lower
        self.ids: dict[str, int] = {}
        self.values: dict[str, ScoreValues] = {}
        self.verdicts: Counter[str | None] = Counter()
        self.causes: dict[str, CauseRows] = {}
        self.errors: Counter[str] = Counter()
        self.ranks: Counter[int | None] = Counter()
        self.unranked = 0
        self.unanswerable = 0
        self.documents: dict[str, int] = {}
        self.bad = 0
        self.bad_rows: list[str] = []
        self.notes: list[str] = []
        # Records, and where each begins.
        self._store = tempfile.TemporaryFile(prefix="rageval-report-")  # noqa: SIM115 - lives as long as the file
        weakref.finalize(self, self._store.close)
        self._places = array("q")
        self._questions, self._documents, self._query_hashes = array("q"), array("q"), array("q")
        # Per name of a score or a metric: row, kind and reason of each result that is not a number.
        self._missing: dict[str, list[tuple[int, str, str]]] = {}
        self._failed_rows: list[int] = []
        # Names of the scores that the records themselves have.
        self._own: set[str] = set()
        self._has_judge = self._has_responses = False
        self._people = people
        self.judged_sample = JudgedSample(by_people=people is not None)

    # ----------------------------------------------------------------- reading

    def add(self, record: Record) -> None:
        """Add one record. Call :meth:`finish` after the last one."""
        turn = record.turn
        if turn.status != "ok":
            self.errors[turn.error.type if turn.error else turn.status] += 1
            self._failed_rows.append(self.records)
        if record.id not in self.ids:
            # A hash of eight bytes per question, since the texts of 200,000 would not fit into memory twice.
            words = fold(turn.query).split()
            self._query_hashes.append(hash(" ".join(words)) if words else 0)
        self._questions.append(self.ids.setdefault(record.id, len(self.ids)))
        document = record.document
        self._documents.append(-1 if document is None else self.documents.setdefault(document, len(self.documents)))
        self._places.append(self._store.seek(0, os.SEEK_END))
        # Not as JSON, which would not tell fields that the file does not state.
        pickle.dump(record, self._store)
        self.unanswerable += not record.answerable
        self._has_responses |= bool(turn.response.strip())
        self._has_judge |= any(result.name == NO_ANSWER for result in record.results)
        self._own.update(score.name for score in record.scores())
        if record.rank is not None or record.missed:
            self.ranks[record.rank] += 1
        else:
            self.unranked += record.has_target
        self._add_verdicts(record)

    def _add_verdicts(self, record: Record) -> None:
        opinions = [] if self._people is None else record.opinions(self._people)
        good, bad = opinions.count(True), opinions.count(False)
        verdicts = [result for result in record.results if result.name == VERDICT and result.label]
        local = next((result for result in verdicts if not is_judged_verdict(result)), None)
        judged = next((result for result in verdicts if is_judged_verdict(result) and isinstance(result, Score)), None)
        # Without a score that tells, every turn is evaluated.
        turn = max((score.probability for score in record.scores()), default=1.0)
        if self._people is None:
            is_bad = judged.label == "bad" if judged else None
            probability = judged.probability if judged else turn
        else:
            # People who disagree evenly have not decided. Without a column that says with which probability an answer
            # was drawn, those with one verdict count alike.
            is_bad = None if good == bad else bad > good
            probability = turn * _probability(record, f"{self._people}{PROBABILITY}")
        self.judged_sample.add(
            str(local.label) if local else "",
            is_bad,
            turn=max(turn, _MIN_PROBABILITY),
            judge=max(probability, _MIN_PROBABILITY),
        )

    def add_bad(self, bad: BadRow) -> None:
        """Count a row that cannot be used."""
        self.bad += 1
        if len(self.bad_rows) < _MAX_BAD_ROWS_SHOWN:
            self.bad_rows.append(f"{self.path}, line {bad.line}: {bad.reason}")

    def finish(self) -> None:
        """Collect the scores of all records."""
        found: dict[str, _ValueCollector] = {}
        derived: dict[str, _ValueCollector] = {}
        asked: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for row in range(self.records):
            record = self.record(row)
            if (verdict := verdict_of(self._results(record))) and verdict.label:
                self.verdicts[verdict.label] += 1
                if verdict.cause is not None:
                    rows = self.causes.setdefault(verdict.cause, CauseRows(row))
                    rows.count += 1
                    rows.bad += verdict.label == "bad"
            name = ANSWERED if record.answerable else DECLINED
            asked[name] += 1
            failed[name] += record.turn.status != "ok"
            # A result that was made twice counts once, the judge's verdict instead of the local one.
            results = {result.name: result for result in verdict_first(self._results(record)) if is_about_turn(result)}
            for result in results.values():
                self._add_result(found, result, record, row)
            for score in self._derive(record):
                _add_value(derived, score, row)
        if ANSWERED not in self._own:
            # The same numbers without the failed turns, next to it, would only confuse.
            found.pop(NO_ANSWER, None)
        for name in (ANSWERED, DECLINED):
            # If only failures are known, nothing tells a refusal from an answer, as in a language without rules or a
            # file of retrieval.
            if name in derived and len(derived[name]) == failed[name] < asked[name]:
                del derived[name]
        found |= derived
        order = dict.fromkeys((BAD_ANSWERS, VERDICT, *found))
        self.values = {name: found[name].collected(self.questions) for name in order if name in found}

    def _results(self, record: Record) -> tuple[Result, ...]:
        """Return the results of a record, of one kind of verdict: a sample of another kind is corrected for apart."""
        if not self.judged_sample.is_sample:
            return record.results
        return tuple(result for result in record.results if not is_judged_verdict(result))

    def _add_result(self, found: dict[str, _ValueCollector], result: Result, record: Record, row: int) -> None:
        if result.name == NO_ANSWER and (record.turn.status != "ok" or not record.answerable):
            return  # `answered` and `declined` say whether a failed or an unanswerable turn was answered
        if not isinstance(result, Score):
            kind, reason = str(result.status), result.reason
        elif not record.answerable and needs_answer(result.metric or builtin_metric_of(result.name)):
            # The file may have been scored without the mark.
            kind, reason = "skipped", UNANSWERABLE
        elif abs(result.value) > _LARGEST or result.probability < _MIN_PROBABILITY:
            kind = "failed"
            reason = f"out of range: the value is {result.value:g}, the probability {result.probability:g}"
        else:
            _add_value(found, result, row)
            return
        self._missing.setdefault(result.name, []).append((row, kind, sys.intern(reason)))

    def _derive(self, record: Record) -> Iterator[Score]:
        """Yield the scores that follow from a record, without those that the file has itself."""
        found: list[Score] = []
        verdict = verdict_of(self._results(record))
        if verdict is not None and verdict.label not in (None, "", "not_evaluable"):
            bad = {"name": BAD_ANSWERS, "value": float(verdict.label == "bad"), "label": None, "metric": None}
            # With the version and the model of the verdict.
            found.append(verdict.model_copy(update=bad) if isinstance(verdict, Score) else Score.model_validate(bad))
        if record.rank is not None:
            found.append(Score(name=RANK, value=float(record.rank), metric=TARGET_RANK))
        if record.rank is not None or record.missed:
            # A missed target has no rank.
            rank = record.rank or math.inf
            found.append(Score(name="mrr", value=1 / rank, metric=TARGET_RANK))
            found += [Score(name=f"hit@{k}", value=float(rank <= k), metric=TARGET_RANK) for k in HITS]
        if (answered := self._answered(record)) is not None:
            found.append(answered)
        # A file that has one of them was scored with its own references.
        if record.answerable and not any(name.startswith(_OVERLAP) for name in self._own):
            found += overlap_scores(record.turn)
        return (score for score in found if score.name not in self._own)

    def _answered(self, record: Record) -> Score | None:
        """Return ``answered``, or ``declined`` for an unanswerable question: as the judge said, or else by rules."""
        name = ANSWERED if record.answerable else DECLINED
        if record.turn.status != "ok":
            return Score(name=name, value=0.0, metric=NO_ANSWER)
        if self._has_judge:
            for score in record.scores():
                if score.name == NO_ANSWER:
                    value = score.value if record.answerable else 1 - score.value
                    return score.model_copy(update={"name": name, "value": value, "metric": NO_ANSWER})
            # Rules do not fill the gaps of a judge: that would be another measurement.
            return None
        # An empty response is a refusal, but not in a file of retrieval, which has no others.
        refused = is_refusal(record.turn.response) if self._has_responses else None
        if refused is None:
            return None
        return Score(name=name, value=float(refused != record.answerable), model=_RULES, metric=NO_ANSWER)

    # ----------------------------------------------------------------- what was found

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self._places)

    def conversation(self) -> ConversationSummary:
        """Return the summary of the conversation that the records are, in the order of their times."""
        records = map(self.record, range(self.records))
        return ConversationSummary.of((record.turn, record.results) for record in records)

    def record(self, row: int) -> Record:
        """Return a record by its number, from 0."""
        self._store.seek(self._places[row])
        record: Record = pickle.load(self._store)  # noqa: S301 - written by this object
        return record

    @property
    def is_scored(self) -> bool:
        """True if its records have results or ranks: something was measured."""
        return bool(self._own or self._missing or self.ranks)

    def derived_scores(self, record: Record) -> Iterator[Score]:
        """Yield the scores that the report derives from a record of the file."""
        return (score for score in self._derive(record) if score.name in self.values)

    @cached_property
    def questions(self) -> Ints:
        """Per record, the number of its question."""
        return np.array(self._questions)

    @cached_property
    def document_numbers(self) -> Ints:
        """Per record, the number of its source document; -1 if it has none."""
        return np.array(self._documents)

    @cached_property
    def query_hashes(self) -> Ints:
        """Per question, a hash of its text, which ignores white space and case; 0 for an empty text."""
        return np.array(self._query_hashes)

    @property
    def runs(self) -> int:
        """The most answers that one question has."""
        return int(np.bincount(self.questions).max())

    def define(self, name: str) -> ScoreDefinition:
        """Return the definition of a score, with the direction that the user says."""
        values = self.values.get(name)
        found = define_score(name, values.metric if values else None)
        if name in self._lower:
            found = found.model_copy(update={"direction": "lower"})
        # The values of an undefined score say whether it is a share.
        if values and found.high is None and not found.unit and 0 <= values.values.min() <= values.values.max() <= 1:
            found = found.model_copy(update={"high": 1.0})
        return found

    def names(self) -> list[str]:
        """Return the scores and metrics that have results, in the order of the file.

        A metric that was only ever skipped or failed is listed once, under its own name.
        """
        metrics = {values.metric for values in self.values.values()}
        missing = [name for name in self._missing if name not in metrics]
        return list(dict.fromkeys((*self.values, *missing)))

    def missing(self, name: str) -> tuple[Counter[str], Counter[str]]:
        """Return why a score, or its whole metric, was skipped and failed."""
        found = self._missing_results(name)
        skipped, failed = (Counter(reason for _, one, reason in found if one == kind) for kind in ("skipped", "failed"))
        return skipped, failed

    def failed_questions(self) -> int:
        """Return the number of questions of which at least one answer failed."""
        return int(self._questions_of(self._failed_rows).sum())

    def outcomes(self, name: str) -> tuple[Flags, Flags, Flags]:
        """Return for each question whether it has a value of a score, whether one is missing, and whether one failed.

        A value is missing if the score, or its whole metric, was skipped or failed. It failed if these or the turn did.
        """
        missing = self._missing_results(name)
        failed = [*self._failed_rows, *(row for row, kind, _ in missing if kind == "failed")]
        valued = self.values[name].rows.tolist() if name in self.values else []
        rows = (valued, [row for row, _, _ in missing], failed)
        has_value, is_missing, has_failed = map(self._questions_of, rows)
        return has_value, is_missing, has_failed

    def worst_rows(self, name: str | None, most: int) -> list[int]:
        """Return the rows with the worst values of a score, the worst first."""
        if name not in self.values:
            return []
        found = self.values[name]
        # A stable sort keeps the order of the file among equal values.
        sign = 1 if self.define(name).direction == "higher" else -1
        rows: list[int] = found.rows[np.argsort(sign * found.values, kind="stable")[:most]].tolist()
        return rows

    def headline(self) -> str | None:
        """Return the score that sums up a turn best: the verdict, else by the scores' own definitions."""
        if VERDICT in self.values:
            return VERDICT
        # max() returns the first of equals: without any headline, the first score of the file.
        return max(self.values, key=lambda name: self.define(name).headline, default=None)

    def _missing_results(self, name: str) -> list[tuple[int, str, str]]:
        # A missing score is listed under its own name or that of its metric.
        metric = self.values[name].metric if name in self.values else builtin_metric_of(name)
        return [result for one in {name, metric or name} for result in self._missing.get(one, ())]

    def _questions_of(self, rows: Sequence[int]) -> Flags:
        found = np.zeros(len(self.ids), dtype=bool)
        found[self.questions[np.array(rows, dtype=int)]] = True
        return found


def _add_value(table: dict[str, _ValueCollector], score: Score, row: int) -> None:
    if score.name not in table:
        table[score.name] = _ValueCollector(score.metric or builtin_metric_of(score.name))
    table[score.name].add(score, row)


def read_files(
    paths: Sequence[str | os.PathLike[str]],
    *,
    watch: Watch | None,
    scores: Collection[str],
    lower: Collection[str],
    privacy: PrivacyPolicy,
    group_by: str | None = None,
    people: str | None = None,
) -> list[ScoredFile]:
    """Read files of records, each once.

    Args:
        paths: the files.
        watch: wraps the records, to show progress.
        scores: columns of a table that are scores if they hold numbers only.
        lower: scores for which the user says that lower is better.
        privacy: which texts may be shown.
        group_by: the column whose values are systems: each becomes a file of its own. The first is the baseline. Also
            ``day``, ``week`` (both in UTC) or ``session``.
        people: see :func:`rageval_hooks.offline.report.analyze`.

    Raises:
        ConfigurationError: a file does not exist, has no records, or lacks the column; or people labelled no answer.
    """
    # Short names that tell the files apart: without their folders, with one, or whole paths, which are the same only
    # if one file was given twice.
    resolved = [Path(os.path.realpath(path)) for path in paths]
    stems = [path.stem for path in resolved]
    with_folders = [f"{path.parent.name}/{path.stem}" for path in resolved]
    names = next((names for names in (stems, with_folders) if len({*names}) == len(names)), [*map(str, paths)])
    found = []
    for name, path in zip(names, map(Path, paths), strict=True):
        check_file(path)
        file = ScoredFile(flat(name), clean_text(str(path)), lower, people)
        groups: dict[str, ScoredFile] = {}
        ids: dict[str, str] = {}
        records = _records_of(path, scores, file)
        for record in watch(records, path) if watch else records:
            group = file
            if group_by is not None:
                value = _group_of(record, group_by)
                if value is None:
                    raise ConfigurationError(f"{path}, id {record.id}: there is no {group_by!r} (--group-by)")
                title = flat(str(value)) if len(paths) == 1 else f"{flat(name)}: {flat(str(value))}"
                group = groups.setdefault(title, ScoredFile(title, file.path, lower, people))
                # Without ids, a row has its number: the question tells which answers belong together.
                record = record.model_copy(update={"id": ids.setdefault(record.turn.query.strip(), record.id)})
            group.add(record.redacted(privacy))
        if not file.records and not groups:
            raise ConfigurationError(f"{path} has no records: {'; '.join(file.bad_rows) or 'it is empty'}")
        for group in groups.values() or [file]:
            group.finish()
            found.append(group)
    if people is not None and not any(file.judged_sample.judged for file in found):
        raise ConfigurationError(f"no answer has a label of people in {people!r} (--people) that says good or bad")
    return found


def _group_of(record: Record, group_by: str) -> object:
    """Return a record's value of a column, or the day, the week or the session of its turn."""
    turn = record.turn
    if group_by in turn.metadata:
        return turn.metadata[group_by]
    if group_by == "session":
        return turn.session_id
    if turn.timing is None or group_by not in _TIMES:
        return None
    return f"{datetime.fromtimestamp(turn.timing.started_at / 1e9, UTC):{_TIMES[group_by]}}"


def _records_of(path: Path, scores: Collection[str], file: ScoredFile) -> Iterator[Record]:
    """Yield the records of a file; what else is to be known of it is kept."""
    for _, item in read_items(path, scores=scores, note=file.notes.append):
        if isinstance(item, Record):
            yield item
        else:
            file.add_bad(item)
