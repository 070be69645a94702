"""Which questions of a file were answered: the scores ``answered`` and ``declined``."""

from __future__ import annotations

from collections import Counter

from rageval_hooks.offline.answerability import is_refusal
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.report.derived import ANSWERED, DECLINED, NO_ANSWER
from rageval_hooks.offline.report.score_values import ScoreValues
from rageval_hooks.score import Score

__all__ = ["AnsweredScores"]

# What the scores state as their model: those of a judge are not comparable with them.
_RULES = "rules"


class AnsweredScores:
    """``answered`` and ``declined`` of one file.

    A question has ``answered``: 1 for an answer, 0 for a refusal. One that is marked as unanswerable has ``declined``
    instead: 1 for a refusal, 0 for an answer. A failed turn counts as 0 in both, whatever metrics were computed for it.
    If the metric ``no_answer`` ran on any turn of the file, only what the judge said counts. Otherwise rules decide.

    Attributes:
        unanswerable: number of turns whose question is marked as unanswerable.
    """

    def __init__(self) -> None:
        self.unanswerable = 0
        self._judged: dict[str, ScoreValues] = {}
        self._by_rules: dict[str, ScoreValues] = {}
        self._asked: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._has_responses = False
        self._has_judge = False

    def add(self, record: Record, row: int) -> None:
        """Add one record."""
        name = _name(record)
        self.unanswerable += not record.answerable
        self._asked[name] += 1
        self._has_responses |= bool(record.turn.response.strip())
        self._has_judge |= any(result.name == NO_ANSWER for result in record.results)
        judged = _judged(record)
        if record.turn.status != "ok":
            self._failed[name] += 1
            _add(self._judged, Score(name=name, value=0.0), row)
            _add(self._by_rules, Score(name=name, value=0.0), row)
        elif judged is not None:
            _add(self._judged, judged, row)
        elif not self._has_judge and (found := _found_by_rules(record)) is not None:
            _add(self._by_rules, found, row)

    @property
    def is_by_rules(self) -> bool:
        """True if rules tell answers from refusals; False if a judge does, or if every turn failed."""
        return not self._has_judge and self._failed.total() < self._asked.total()

    def values(self) -> dict[str, ScoreValues]:
        """Return the scores that are known, by name."""
        # Without any response it is a file of retrieval, and tells nothing about answers.
        if self.is_by_rules and not self._has_responses:
            return {}
        found = self._judged if self._has_judge else self._by_rules
        return {name: values for name, values in found.items() if not self._is_known_by_failures(name, values)}

    def of(self, record: Record) -> Score | None:
        """Return the score of a record; None if it is not known. For use after the last record was added."""
        if _name(record) not in self.values():
            return None
        if record.turn.status != "ok":
            return Score(name=_name(record), value=0.0)
        return _judged(record) if self._has_judge else _found_by_rules(record)

    def _is_known_by_failures(self, name: str, values: ScoreValues) -> bool:
        """Return True if nothing tells a refusal from an answer, as in a language without rules: it would be 0%."""
        return len(values) == self._failed[name] < self._asked[name]


def _name(record: Record) -> str:
    return ANSWERED if record.answerable else DECLINED


def _judged(record: Record) -> Score | None:
    """Return what the judge said."""
    for score in record.scores():
        if score.name == NO_ANSWER:
            value = score.value if record.answerable else 1 - score.value
            return score.model_copy(update={"name": _name(record), "value": value})
    return None


def _found_by_rules(record: Record) -> Score | None:
    """Return what the rules say; None for a response in a language whose refusals are not known."""
    refused = is_refusal(record.turn.response)
    if refused is None:
        return None
    return Score(name=_name(record), value=float(refused != record.answerable), model=_RULES)


def _add(table: dict[str, ScoreValues], score: Score, row: int) -> None:
    table.setdefault(score.name, ScoreValues(NO_ANSWER)).add(score, row)
