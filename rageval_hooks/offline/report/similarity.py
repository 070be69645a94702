"""How alike the repeated answers to one question are: ROUGE and BERTScore, over the questions of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.report.consistency import bertscore, rouge
from rageval_hooks.offline.report.statistics import Resampling, Spread, spread
from rageval_hooks.offline.report.summary import Tally
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Skipped

if TYPE_CHECKING:
    from rageval_hooks.offline.report.bertscore import BertScore

__all__ = ["MOST_QUESTIONS", "Likeness", "likeness"]

MOST_QUESTIONS = 2_000
"""Of more questions, so many are drawn at random: comparing texts takes a while."""


class Likeness(Data):
    """How alike answers are by one measure: the mean over all pairs of a question's answers, then over questions.

    Attributes:
        name: of the measure: ``rouge1``, ``rouge2``, ``rougeL`` (F1), ``bertscore``.
        spread: over the questions; None if no question has two answers that can be compared.
        left_out: questions that do not have two such answers.
        reason: why there is nothing.
        drawn: whether the questions are a random part of all.
        model: the encoder of BERTScore.
    """

    name: str
    spread: Spread | None = None
    left_out: int = 0
    reason: str = ""
    drawn: bool = False
    model: str | None = None


def likeness(file: Tally, how: Resampling, scorer: BertScore | None = None) -> tuple[Likeness, ...]:
    """Compare the answers to each question that has several; reads the file a second time.

    Args:
        file: what the first reading found.
        how: seed, resamples, level.
        scorer: for BERTScore; None leaves that out.
    """
    wanted, drawn = _chosen(file, how.seed)
    if not wanted:
        return ()
    values: dict[str, list[float]] = {name: [] for name in ("rouge1", "rouge2", "rougeL", "bertscore")}
    for answers in _answers(file, wanted):
        try:
            overlap = rouge(answers)
        except MissingDependencyError as error:
            return (Likeness(name="rouge", reason=str(error)),)
        if not isinstance(overlap, Skipped):
            for name in ("rouge1", "rouge2", "rougeL"):
                values[name].append(getattr(overlap, name).f1)
        if scorer is not None:
            near = bertscore(answers, scorer)
            if not isinstance(near, Skipped):
                values["bertscore"].append(near.f1)
    if scorer is None:
        del values["bertscore"]
    return tuple(
        Likeness(
            name=name,
            spread=_spread(found, how),
            left_out=len(wanted) - len(found),
            reason="" if found else "no question has two answers with words",
            drawn=drawn,
            model=scorer.name if scorer is not None and name == "bertscore" else None,
        )
        for name, found in values.items()
    )


def _chosen(file: Tally, seed: int) -> tuple[dict[str, int], bool]:
    """Return how many answers each question with several has; of very many questions, a random part."""
    import numpy as np

    counts = np.bincount(file.questions)
    several = np.flatnonzero(counts > 1)
    drawn = len(several) > MOST_QUESTIONS
    if drawn:
        several = np.sort(np.random.default_rng(seed).choice(several, MOST_QUESTIONS, replace=False))
    ids = list(file.ids)
    return {ids[index]: int(counts[index]) for index in several.tolist()}, drawn


def _answers(file: Tally, wanted: dict[str, int]) -> Iterator[list[str]]:
    """Yield the answers to each question as soon as they are complete, so that few are kept at a time."""
    from rageval_hooks.offline.records.files import read_records

    waiting: dict[str, dict[int, str]] = {}
    for record in read_records(Path(file.path), on_bad=_ignore):
        if record.id not in wanted:
            continue
        answers = waiting.setdefault(record.id, {})
        answers[record.run] = record.turn.response if record.turn.status == "ok" else ""
        if len(answers) == wanted[record.id]:
            yield [answer for _, answer in sorted(waiting.pop(record.id).items())]


def _ignore(row: object) -> None:
    """The first reading has complained of it."""


def _spread(values: list[float], how: Resampling) -> Spread | None:
    import numpy as np

    if not values:
        return None
    return spread(np.array(values), np.ones(len(values)), np.arange(len(values)), how)
