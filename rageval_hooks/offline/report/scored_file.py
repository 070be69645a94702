"""What a report keeps of one file: numbers in memory, records in a temporary file. The file itself is read once."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.metrics.local.reference_overlap import overlap_scores
from rageval_hooks.offline.answerability import UNANSWERABLE, is_refusal
from rageval_hooks.offline.records import BadRow, check_file, read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.targets import TargetIds, have_texts, rank_of_all
from rageval_hooks.offline.report.definitions import (
    ANSWERED,
    BAD_ANSWERS,
    DECLINED,
    HITS,
    NO_ANSWER,
    RANK,
    TARGET_RANK,
    define_score,
    direction_of,
    metric_of,
    needs_answer,
)
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.score import VERDICT, Failed, Result, Score, Skipped, is_about_turn, verdict_first
from rageval_hooks.text.formatting import flat, show_value
from rageval_hooks.text.words import fold

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rageval_hooks.offline.report.statistics import Floats, Ints


Watch = Callable[[Iterable[Record], Path], Iterable[Record]]
"""Wraps the records of a file, to show progress."""

Maker = tuple[str, str | None]
"""Version and model of a score. "" if the file does not say; the model is None for a formula alone."""

# Beyond these bounds, sums of squares and of weights overflow or lose all digits.
_LARGEST, _SMALLEST_PROBABILITY = 1e100, 1e-12

_MOST_BAD_ROWS_SHOWN = 5

# Where a derived score comes from. `answered` and `declined` have two sources, of which a file uses one.
_JUDGE, _RULES, _OVERLAP = "judge", "rules", "overlap"


def verdict_of(record: Record) -> tuple[str, str] | None:
    """Return the verdict of a record and its reason; None for a record without one."""
    for result in verdict_first(record.results)[:1]:
        if result.name == VERDICT and not isinstance(result, Failed) and result.label:
            reason = result.explanation if isinstance(result, Score) else result.reason
            return result.label, reason or ""
    return None


class ScoreValues:
    """The values of one score. Numbers are in an array: a file of 200,000 rows takes 6 MB per score, not 100.

    Attributes:
        metric: the metric that made it, as far as the records say.
        makers: versions and models that made its values, each with its number.
        labelled: number of values with the label ``pass`` or ``fail``.
        values: the values, in the order of the file. This and what follows is there after :meth:`finish`.
        weights: per value, 1 / the probability with which its turn was sampled.
        rows: per value, the number of its record in the file, from 0.
        questions: per value, the number of its question.
        maker_numbers: per value, the number of its maker, in the order of ``makers``.
        sampled: True if some values stand for more than one turn.
        passed: weighted share of the labelled values that pass; None without labels.
    """

    values: Floats
    weights: Floats
    rows: Ints
    questions: Ints
    maker_numbers: Ints
    sampled: bool
    passed: float | None

    def __init__(self, metric: str | None) -> None:
        self.metric = metric
        self.makers: dict[Maker, int] = {}
        self.labelled = 0
        self._weight_of_label = {"pass": 0.0, "fail": 0.0}
        self._numbers = array("d")

    def __len__(self) -> int:
        return len(self._numbers) // 4

    def add(self, score: Score, row: int) -> None:
        """Add one score."""
        weight = 1 / score.probability
        # A field that the record does not set is unstated, which differs from a stated None.
        version = score.version if "version" in score.model_fields_set else ""
        model = score.model if "model" in score.model_fields_set else ""
        maker = self.makers.setdefault((version, model), len(self.makers))
        self._numbers.extend((score.value, weight, row, maker))
        if score.label in self._weight_of_label:
            self._weight_of_label[score.label] += weight
            self.labelled += 1

    def finish(self, questions: Ints) -> None:
        """Make the arrays.

        Args:
            questions: per record of the file, the number of its question.
        """
        import numpy as np

        self.values, self.weights, rows, makers = np.array(self._numbers).reshape(-1, 4).T
        self.rows, self.maker_numbers = rows.astype(int), makers.astype(int)
        self.questions = questions[self.rows]
        self.sampled = bool((self.weights > 1).any())
        total = sum(self._weight_of_label.values())
        self.passed = self._weight_of_label["pass"] / total if total else None


class ScoredFile:
    """The numbers of one file, and a store of its records.

    Args:
        name: how the report calls the file.
        path: where it is.

    Attributes:
        ids: ids of the questions, each with its number.
        values: the values of each score: the share of bad answers, then the order of the file, then derived scores.
        verdicts: number of records by verdict.
        errors: turns that failed, by type of error.
        ranks: how many target passages have which rank; None for a target that was missed.
        unranked: turns with a target whose rank is unknown.
        unanswerable: turns whose question is marked as unanswerable.
        documents: names of the source documents, each with its number.
        unscored: scores in a file of responses that `rageval-hooks score` has not scored.
        bad: number of rows that could not be used.
        bad_rows: the first few of them, with their lines.
        questions: per record, the number of its question. This and what follows is there after :meth:`finish`.
        document_numbers: per record, the number of its source document; -1 if it has none.
        query_hashes: per question, a hash of its text, which ignores white space and case; 0 for an empty text.
    """

    questions: Ints
    document_numbers: Ints
    query_hashes: Ints

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.ids: dict[str, int] = {}
        self.values: dict[str, ScoreValues] = {}
        self.verdicts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.ranks: Counter[int | None] = Counter()
        self.unranked = 0
        self.unanswerable = 0
        self.documents: dict[str, int] = {}
        self.unscored: frozenset[str] = frozenset()
        self.bad = 0
        self.bad_rows: list[str] = []
        # Records, one per line of JSON, and where each begins.
        self._store = tempfile.TemporaryFile(prefix="rageval-report-")  # noqa: SIM115 - lives as long as the file
        weakref.finalize(self, self._store.close)
        self._places = array("q")
        # Per record: the numbers of its question and of its document, -1 if it has none.
        self._questions = array("q")
        self._documents = array("q")
        self._query_hashes = array("q")
        self._failed_rows = array("q")
        # Per name of a score or a metric: rows and reasons of results that are not numbers. A reason is stored once.
        self._missing: dict[str, array[int]] = {}
        self._reasons: dict[tuple[str, str], int] = {}
        # Per source: the scores that are derived from the records.
        self._derived: dict[str, dict[str, ScoreValues]] = {TARGET_RANK: {}, _JUDGE: {}, _RULES: {}, _OVERLAP: {}}
        self._target_ids = TargetIds()
        self._not_found = array("q")
        self._failed = Counter[str]()
        self._has_judge = False
        self._has_responses = False

    # ----------------------------------------------------------------- reading

    def add(self, record: Record) -> None:
        """Add one record. Call :meth:`finish` after the last one."""
        row = self.records
        self._places.append(self._store.seek(0, os.SEEK_END))
        self._store.write(record.model_dump_json().encode() + b"\n")
        if record.id not in self.ids:
            self._query_hashes.append(_fingerprint(record.turn.query))
        self._questions.append(self.ids.setdefault(record.id, len(self.ids)))
        document = record.document
        self._documents.append(-1 if document is None else self.documents.setdefault(document, len(self.documents)))
        self.unanswerable += not record.answerable
        self._has_responses |= bool(record.turn.response.strip())
        self._has_judge |= any(result.name == NO_ANSWER for result in record.results)
        if record.turn.status != "ok":
            self.errors[record.turn.error.type if record.turn.error else record.turn.status] += 1
            self._failed_rows.append(row)
            self._failed[ANSWERED if record.answerable else DECLINED] += 1
        if (verdict := verdict_of(record)) is not None:
            self.verdicts[verdict[0]] += 1
        # A result that was made twice counts once, the judge's verdict instead of the local one.
        for result in {
            result.name: result for result in verdict_first(record.results) if is_about_turn(result)
        }.values():
            self._add_result(result, record, row)
        for source, score in _derived_scores(record, rules=not self._has_judge):
            self._add_value(self._derived.get(source, self.values), score, row)
        self._add_rank(record, row)

    def _add_result(self, result: Result, record: Record, row: int) -> None:
        if result.name == NO_ANSWER and (record.turn.status != "ok" or not record.answerable):
            return  # `answered` and `declined` say whether a failed or an unanswerable turn was answered
        kind, reason = "failed", ""
        if isinstance(result, Skipped):
            kind, reason = "skipped", result.reason
        elif isinstance(result, Failed):
            reason = result.reason
        elif not record.answerable and needs_answer(result.metric or metric_of(result.name)):
            # The file may have been scored without the mark.
            kind, reason = "skipped", UNANSWERABLE
        elif abs(result.value) > _LARGEST:
            reason = f"the value {show_value(result.value)} is out of range: beyond {_LARGEST:g}"
        elif result.probability < _SMALLEST_PROBABILITY:
            reason = f"the probability {result.probability:.2g} is out of range: below {_SMALLEST_PROBABILITY:g}"
        else:
            self._add_value(self.values, result, row)
            return
        number = self._reasons.setdefault((kind, reason), len(self._reasons))
        self._missing.setdefault(result.name, array("q")).extend((row, number))

    def _add_value(self, table: dict[str, ScoreValues], score: Score, row: int) -> None:
        if score.name not in table:
            table[score.name] = ScoreValues(score.metric or metric_of(score.name))
        table[score.name].add(score, row)

    def _add_rank(self, record: Record, row: int) -> None:
        """Count the rank of the target, or leave the record for the end: ids may turn out not to be comparable."""
        self._target_ids.add(record.target, record.turn.passages)
        is_known, rank = _rank_of(record)
        if is_known:
            self.ranks[rank] += 1
        elif record.has_target and record.turn.passages:
            self._not_found.append(row)
        elif record.has_target:
            self.unranked += 1

    def add_bad(self, bad: BadRow) -> None:
        """Count a row that cannot be used."""
        self.bad += 1
        if len(self.bad_rows) < _MOST_BAD_ROWS_SHOWN:
            self.bad_rows.append(f"{self.path}, line {bad.line}: {bad.reason}")

    def finish(self) -> None:
        """Add the derived scores that the file itself lacks, and make the arrays."""
        import numpy as np

        # Ids that match for no question at all are ids of another store, and show no misses.
        if self._target_ids.comparable:
            for row in self._not_found:
                self.ranks[None] += 1
                for score in _rank_scores(None):
                    self._add_value(self._derived[TARGET_RANK], score, row)
        else:
            self.unranked += len(self._not_found)
        if ANSWERED not in self.values:
            # The same numbers without the failed turns, next to it, would only confuse.
            self.values.pop(NO_ANSWER, None)
        answered = self._derived[_JUDGE if self._has_judge else _RULES]
        all_failed = len(self._failed_rows) == self.records
        if not self._has_judge and not self._has_responses and not all_failed:
            answered = {}  # a file of retrieval tells nothing about answers
        asked = {ANSWERED: self.records - self.unanswerable, DECLINED: self.unanswerable}
        for name, values in answered.items():
            # If only failures are known, nothing tells a refusal from an answer, as in a language without rules.
            if not len(values) == self._failed[name] < asked[name]:
                self.values.setdefault(name, values)
        for name, values in self._derived[TARGET_RANK].items():
            self.values.setdefault(name, values)
        unscored = set() if self._has_judge or all_failed else {ANSWERED}
        # A file that has some of these scores was scored with them, perhaps with another reference.
        overlaps = self._derived[_OVERLAP]
        if overlaps.keys().isdisjoint(self.names()):
            self.values |= overlaps
            unscored |= overlaps.keys()
        self.unscored = frozenset(unscored)
        first = [name for name in (BAD_ANSWERS, VERDICT) if name in self.values]
        self.values = {name: self.values[name] for name in dict.fromkeys((*first, *self.values))}
        self.questions, self.document_numbers = np.array(self._questions), np.array(self._documents)
        self.query_hashes = np.array(self._query_hashes)
        for values in self.values.values():
            values.finish(self.questions)

    # ----------------------------------------------------------------- what was found

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self._questions)

    def record(self, row: int) -> Record:
        """Return a record by its number, from 0."""
        self._store.seek(self._places[row])
        return Record.model_validate_json(self._store.readline())

    def derived_scores(self, record: Record) -> Iterator[Score]:
        """Yield the scores that the report derives from a record of the file."""
        for _, score in _derived_scores(record, rules=not self._has_judge):
            if score.name in self.values:
                yield score

    @property
    def runs(self) -> int:
        """The most answers that one question has."""
        return max(Counter(self._questions).values())

    def names(self) -> list[str]:
        """Return the scores and metrics that have results, in the order of the file.

        A metric that was only ever skipped or failed is listed once, under its own name.
        """
        metrics = {values.metric for values in self.values.values()}
        missing = [name for name in self._missing if name not in metrics]
        return list(dict.fromkeys((*self.values, *missing)))

    def missing(self, name: str) -> tuple[Counter[str], Counter[str]]:
        """Return why a score, or its whole metric, was skipped and failed."""
        found: dict[str, Counter[str]] = {"skipped": Counter(), "failed": Counter()}
        for _, (kind, reason) in self._missing_results(name):
            found[kind][reason] += 1
        return found["skipped"], found["failed"]

    def with_value(self, name: str) -> NDArray[np.bool_]:
        """Return for each question whether it has a value of a score."""
        return self._questions_of(self.values[name].rows if name in self.values else ())

    def without_value(self, name: str) -> NDArray[np.bool_]:
        """Return for each question whether a score, or its whole metric, was skipped or failed."""
        return self._questions_of(row for row, _ in self._missing_results(name))

    def where_failed(self, name: str | None = None) -> NDArray[np.bool_]:
        """Return for each question whether a turn failed, or a score or its whole metric."""
        missing = self._missing_results(name) if name else ()
        return self._questions_of([*self._failed_rows, *(row for row, (kind, _) in missing if kind == "failed")])

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

    def headline(self) -> str | None:
        """Return the score that sums up a turn best: the verdict, else by the scores' own definitions."""
        names = [name for name in self.values if name not in self.unscored] or list(self.values)
        if VERDICT in names or not names:
            return VERDICT if names else None
        # max() returns the first of equals: without any headline, the first score of the file.
        return max(names, key=lambda name: define_score(name, self.values[name].metric).headline)

    def _missing_results(self, name: str) -> Iterator[tuple[int, tuple[str, str]]]:
        # A missing score is listed under its own name or that of its metric.
        metric = self.values[name].metric if name in self.values else metric_of(name)
        reasons = list(self._reasons)
        for one in {name, metric or name}:
            found = self._missing.get(one, array("q"))
            yield from zip(found[::2], (reasons[number] for number in found[1::2]), strict=True)

    def _questions_of(self, rows: Iterable[int]) -> NDArray[np.bool_]:
        import numpy as np

        found = np.zeros(len(self.ids), dtype=bool)
        found[self.questions[np.fromiter(rows, dtype=int)]] = True
        return found


def read_files(
    paths: Sequence[str | os.PathLike[str]],
    *,
    watch: Watch | None = None,
    scores: Collection[str] = (),
    privacy: PrivacyPolicy = NO_PRIVACY,
) -> list[ScoredFile]:
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
        file = ScoredFile(name, str(path))
        records: Iterable[Record] = read_records(path, scores=scores, on_bad=file.add_bad)
        for record in watch(records, path) if watch else records:
            file.add(record.redacted(privacy))
        if not file.records:
            raise ConfigurationError(f"{path} has no records: {'; '.join(file.bad_rows) or 'it is empty'}")
        file.finish()
        found.append(file)
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


def check_names(names: Iterable[str], files: Iterable[ScoredFile]) -> None:
    """Check that each score is in at least one file.

    Raises:
        UnknownNameError: a score is in none; the message lists those that there are.
    """
    valid = list(dict.fromkeys(name for file in files for name in file.names()))
    for name in names:
        if name not in valid:
            raise UnknownNameError("score", name, valid)


def _fingerprint(query: str) -> int:
    # A hash of eight bytes per question, because the texts of 200,000 questions would not fit into memory twice.
    words = fold(query).split()
    return hash(" ".join(words)) if words else 0


# --------------------------------------------------------------------------- derived scores


def _derived_scores(record: Record, *, rules: bool) -> Iterator[tuple[str, Score]]:
    """Yield the scores that follow from a record, each with its source.

    Args:
        record: the record.
        rules: also tell by rules whether the question was answered. They take a moment per turn.
    """
    is_known, rank = _rank_of(record)
    for score in _rank_scores(rank) if is_known else ():
        yield TARGET_RANK, score
    yield from _answered(record, rules)
    if record.answerable:
        for score in overlap_scores(record.turn):
            yield _OVERLAP, score
    verdict = verdict_of(record)
    if verdict is not None and verdict[0] != "not_evaluable":
        bad = Score(name=BAD_ANSWERS, value=float(verdict[0] == "bad"))
        result = verdict_first(record.results)[0]
        if isinstance(result, Score):
            # With the version and the model of the verdict.
            bad = result.model_copy(update={"name": BAD_ANSWERS, "value": bad.value, "label": None, "metric": None})
        yield VERDICT, bad


def _answered(record: Record, rules: bool) -> Iterator[tuple[str, Score]]:
    """Yield ``answered``, or ``declined`` for an unanswerable question, as the judge said and by rules."""
    name = ANSWERED if record.answerable else DECLINED
    if record.turn.status != "ok":
        failed = Score(name=name, value=0.0, metric=NO_ANSWER)
        yield from ((_JUDGE, failed), (_RULES, failed))
        return
    for score in record.scores():
        if score.name == NO_ANSWER:
            value = score.value if record.answerable else 1 - score.value
            yield _JUDGE, score.model_copy(update={"name": name, "value": value, "metric": NO_ANSWER})
            break
    refused = is_refusal(record.turn.response) if rules else None
    # None for a response in a language whose refusals are not known. The model says that it is not a judge's.
    if refused is not None:
        value = float(refused != record.answerable)
        yield _RULES, Score(name=name, value=value, model=_RULES, metric=NO_ANSWER)


def _rank_of(record: Record) -> tuple[bool, int | None]:
    """Return whether the rank of a record's target is known, and the rank; None for a target that was missed.

    What the record states counts. Otherwise the target is looked up among the passages. A target that is not found
    there is unknown: whether its id could have been found depends on the whole file.
    """
    if record.rank is not None or record.missed:
        return True, record.rank
    rank = rank_of_all(record)
    if rank is not None:
        return True, rank
    # A text that no passage contains was not retrieved.
    return have_texts(record) and bool(record.turn.passages), None


def _rank_scores(rank: int | None) -> Iterator[Score]:
    """Yield the scores of a known rank; None stands for a target that was missed, and has no score ``rank``."""
    if rank is not None:
        yield Score(name=RANK, value=float(rank), metric=TARGET_RANK)
    yield Score(name="mrr", value=0.0 if rank is None else 1 / rank, metric=TARGET_RANK)
    for k in HITS:
        yield Score(name=f"hit@{k}", value=float(rank is not None and rank <= k), metric=TARGET_RANK)
