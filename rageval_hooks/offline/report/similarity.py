"""How similar the repeated answers to one question are, by ROUGE and BERTScore, over the questions of a file."""

from __future__ import annotations

from collections.abc import Iterator

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.report.bertscore import BertScore
from rageval_hooks.offline.report.consistency import BertScores, RougeScores, bertscore, rouge
from rageval_hooks.offline.report.statistics import Resampling, Spread, spread
from rageval_hooks.offline.report.tally import FileTally
from rageval_hooks.runtime.jsonable import Data

__all__ = ["MEASURES", "MOST_QUESTIONS", "Similarity", "compare_answers"]

# Of more questions, this many are drawn at random: comparing texts takes about a millisecond per pair.
MOST_QUESTIONS = 2_000

# Names of the measures in a report, and in the literature.
MEASURES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "bertscore": "BERTScore"}


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
    overlaps: list[RougeScores] = []
    closeness: list[float] = []
    for answers in _answers(file, rows):
        try:
            overlap = rouge(answers)
        except MissingDependencyError as error:
            return (Similarity(name="rouge", reason=str(error)),)
        if isinstance(overlap, RougeScores):
            overlaps.append(overlap)
        if scorer is None:
            continue
        close = bertscore(answers, scorer)
        if isinstance(close, BertScores):
            closeness.append(close.f1)
    values = {
        "rouge1": [overlap.rouge1.f1 for overlap in overlaps],
        "rouge2": [overlap.rouge2.f1 for overlap in overlaps],
        "rougeL": [overlap.rougeL.f1 for overlap in overlaps],
    }
    found = [_similarity(name, numbers, len(rows), how, drawn=drawn) for name, numbers in values.items()]
    if scorer is not None:
        row = _similarity("bertscore", closeness, len(rows), how, drawn=drawn)
        found.append(row.model_copy(update={"model": scorer.name}))
    return tuple(found)


def _similarity(name: str, values: list[float], questions: int, how: Resampling, *, drawn: bool) -> Similarity:
    return Similarity(
        name=name,
        spread=_spread(values, how),
        left_out=questions - len(values),
        reason="" if values else "no question has two answers with words",
        drawn=drawn,
    )


def _rows_to_compare(file: FileTally, seed: int) -> tuple[list[list[int]], bool]:
    """Return the rows of each question with several answers, and whether these are a random part."""
    import numpy as np

    questions = file.questions
    repeated = np.flatnonzero(np.bincount(questions) > 1)
    drawn = len(repeated) > MOST_QUESTIONS
    if drawn:
        # Sorted, because drawing leaves them in random order, and records are read from disk in the file's order.
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
    # Each question has one value of equal weight.
    return spread(np.array(values), np.ones(len(values)), np.arange(len(values)), how)
