"""How similar the repeated answers to one question are, by ROUGE and BERTScore, over the questions of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.report.consistency import ROUGE, bertscore, rouge
from rageval_hooks.offline.report.statistics import Resampling, Spread, spread
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Skipped

if TYPE_CHECKING:
    from rageval_hooks.offline.report.bertscore import BertScore
    from rageval_hooks.offline.report.tally import FileTally

__all__ = ["MEASURES", "MOST_QUESTIONS", "Similarity", "compare_answers"]

MOST_QUESTIONS = 2_000
"""Of more questions, this many are drawn at random: comparing texts takes time."""

MEASURES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "bertscore": "BERTScore"}
"""The measures, with their names in the literature."""


class Similarity(Data):
    """How similar answers are by one measure: the mean over all pairs of a question's answers, then over questions.

    Attributes:
        name: the measure: ``rouge1``, ``rouge2``, ``rougeL`` (F1), ``bertscore``.
        spread: over the questions; None if no question has two answers that can be compared.
        left_out: questions that do not have two such answers.
        reason: why there is no number.
        drawn: True if the questions are a random part of all.
        model: the encoder of BERTScore.
    """

    name: str
    spread: Spread | None = None
    left_out: int = 0
    reason: str = ""
    drawn: bool = False
    model: str | None = None


def compare_answers(file: FileTally, how: Resampling, scorer: BertScore | None = None) -> tuple[Similarity, ...]:
    """Compare the answers to each question that has several.

    Args:
        file: the file.
        how: seed, resamples, level.
        scorer: for BERTScore; None omits it.
    """
    rows, drawn = _rows_to_compare(file, how.seed)
    if not rows:
        return ()
    values: dict[str, list[float]] = {name: [] for name in MEASURES if name in ROUGE or scorer is not None}
    for answers in _answers(file, rows):
        try:
            overlap = rouge(answers)
        except MissingDependencyError as error:
            return (Similarity(name="rouge", reason=str(error)),)
        if not isinstance(overlap, Skipped):
            for name in ROUGE:
                values[name].append(getattr(overlap, name).f1)
        if scorer is not None:
            close = bertscore(answers, scorer)
            if not isinstance(close, Skipped):
                values["bertscore"].append(close.f1)
    return tuple(
        Similarity(
            name=name,
            spread=_spread(found, how),
            left_out=len(rows) - len(found),
            reason="" if found else "no question has two answers with words",
            drawn=drawn,
            model=scorer.name if scorer is not None and name == "bertscore" else None,
        )
        for name, found in values.items()
    )


def _rows_to_compare(file: FileTally, seed: int) -> tuple[list[list[int]], bool]:
    """Return the rows of each question with several answers, and whether these are a random part."""
    import numpy as np

    questions = file.questions
    repeated = np.flatnonzero(np.bincount(questions) > 1)
    drawn = len(repeated) > MOST_QUESTIONS
    if drawn:
        repeated = np.sort(np.random.default_rng(seed).choice(repeated, MOST_QUESTIONS, replace=False))
    rows: dict[int, list[int]] = {question: [] for question in repeated.tolist()}
    for row in np.flatnonzero(np.isin(questions, repeated)).tolist():
        rows[int(questions[row])].append(row)
    return list(rows.values()), drawn


def _answers(file: FileTally, rows: list[list[int]]) -> Iterator[list[str]]:
    """Yield the answers to each question, in the order of their runs; a failed turn has an empty answer."""
    for numbers in rows:
        records = sorted((file.store[number] for number in numbers), key=lambda record: record.run)
        yield [record.turn.response if record.turn.status == "ok" else "" for record in records]


def _spread(values: list[float], how: Resampling) -> Spread | None:
    import numpy as np

    if not values:
        return None
    return spread(np.array(values), np.ones(len(values)), np.arange(len(values)), how)
