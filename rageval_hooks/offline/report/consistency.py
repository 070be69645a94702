"""Consistency: how similar repeated answers to one question are, and how much their scores vary."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from pydantic import Field

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.report.bertscore import BertScore
from rageval_hooks.offline.report.model import Similarity
from rageval_hooks.offline.report.scored_file import ScoredFile
from rageval_hooks.offline.report.statistics import Resampling, spread
from rageval_hooks.offline.rouge import ROUGE, rouge_pairs
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.score import Skipped

# Of more questions, this many are drawn at random: comparing texts takes about a millisecond per pair.
_MOST_QUESTIONS: Final = 2_000


class PairMean(Data):
    """Means over pairs of answers.

    Attributes:
        precision: share of the later answer that is in the earlier one, 0..1.
        recall: share of the earlier answer that is in the later one, 0..1.
        f1: their harmonic mean, which does not depend on the order of the answers.
    """

    precision: float
    recall: float
    f1: float


class RougeScores(Data):
    """ROUGE between the answers.

    Attributes:
        rouge1: overlap of single words.
        rouge2: overlap of pairs of words.
        rougeL: longest common subsequence.
        pairs: number of pairs of answers that the means are over.
        left_out: runs that failed, or whose answer has no words.
    """

    rouge1: PairMean
    rouge2: PairMean
    rougeL: PairMean  # noqa: N815 - as the literature prints it
    pairs: int
    left_out: int = 0


class BertScores(Data):
    """BERTScore between the answers.

    Attributes:
        f1: mean over pairs.
        values: F1 of each pair: (1, 2), (1, 3) … (2, 3) …, of the runs that have an answer.
        model: the encoder, its layer, and whether the values are rescaled.
        rescaled: False if the model has no baseline, or if rescaling is off.
        truncated: answers that were truncated to the length that the encoder can read.
        left_out: runs that failed, or whose answer has no words.
    """

    f1: float
    values: tuple[float, ...]
    model: Text
    rescaled: bool
    truncated: int = 0
    left_out: int = 0


class ScoreVariation(Data):
    """The variation of one score over the runs.

    Attributes:
        name: the score.
        mean: mean over the runs that have the score.
        variance: sample variance (divided by n - 1); None with one run.
        coefficient: coefficient of variation, standard deviation / |mean|; lower is more consistent. None if the mean
            is 0 or the variance is undefined.
        runs: number of runs that have the score.
        left_out: number of runs without it: skipped, failed, or not computed.
    """

    name: Text
    mean: float
    variance: float | None = Field(default=None, ge=0)
    coefficient: float | None = Field(default=None, ge=0)
    runs: int = Field(ge=1)
    left_out: int = Field(default=0, ge=0)


class Consistency(Data):
    """The consistency of repeated runs of one question.

    Attributes:
        id: the question.
        runs: number of runs.
        rouge: ROUGE between the answers, or the reason why it was skipped.
        bertscore: BERTScore between the answers, or the reason why it was skipped.
        variations: one per score that any run has, in the order of the first run.
    """

    id: Text
    runs: int
    rouge: RougeScores | Skipped
    bertscore: BertScores | Skipped
    variations: tuple[ScoreVariation, ...] = ()


def consistency(records: Iterable[Record], *, scorer: BertScore | None = None) -> list[Consistency]:
    """Compare the runs of each question. Two runs suffice.

    Args:
        records: records of any questions, in any order. Records with the same id and different ``run`` are repetitions.
        scorer: computes BERTScore, see :func:`rageval_hooks.offline.report.bertscore.load_bertscore`; None skips it.

    Returns:
        One item per question, in the order of first occurrence.

    Raises:
        ConfigurationError: one question has the same run twice.
        MissingDependencyError: rouge-score is not installed.
    """
    questions: dict[str, dict[int, Record]] = {}
    for record in records:
        runs = questions.setdefault(record.id, {})
        if record.run in runs:
            raise ConfigurationError(
                f"run {record.run} of {record.id!r} occurs twice: give each repetition its own run number"
            )
        runs[record.run] = record
    found = []
    for name, runs in questions.items():
        repeats = [runs[number] for number in sorted(runs)]
        answers = list(map(_answer, repeats))
        close = bertscore(answers, scorer) if scorer else Skipped(name="bertscore", reason="no encoder was given")
        varied = tuple(_variations(repeats))
        found.append(Consistency(id=name, runs=len(runs), rouge=rouge(answers), bertscore=close, variations=varied))
    return found


def _answer(record: Record) -> str:
    # A failed turn may have half an answer, which would look like an inconsistent one.
    return record.turn.response if record.turn.status == "ok" else ""


def rouge(answers: Sequence[str]) -> RougeScores | Skipped:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L over all pairs of answers.

    Args:
        answers: one per run; answers without words are excluded and counted.

    Raises:
        MissingDependencyError: rouge-score is not installed.
    """
    pairs, usable = rouge_pairs(answers)
    if not pairs:
        return _too_few("rouge", usable, "an answer with words of a to z or digits")
    means: dict[str, PairMean] = {}
    for name in ROUGE:
        precision, recall, f1 = (statistics.fmean(part) for part in zip(*(pair[name] for pair in pairs), strict=True))
        means[name] = PairMean(precision=precision, recall=recall, f1=f1)
    return RougeScores(**means, pairs=len(pairs), left_out=len(answers) - usable)


def bertscore(answers: Sequence[str], scorer: BertScore) -> BertScores | Skipped:
    """Return the F1 of BERTScore over all pairs of answers.

    Args:
        answers: one per run; answers without words are excluded and counted.
        scorer: the encoder.
    """
    usable = [encoded for encoded in map(scorer.encode, answers) if encoded is not None]
    if len(usable) < 2:
        return _too_few("bertscore", len(usable), "an answer with words")
    values = tuple(scorer.f1(earlier, later) for earlier, later in combinations(usable, 2))
    return BertScores(
        f1=statistics.fmean(values),
        values=values,
        model=scorer.name,
        rescaled=scorer.baseline is not None,
        truncated=sum(encoded.truncated for encoded in usable),
        left_out=len(answers) - len(usable),
    )


def _too_few(name: str, runs: int, what: str) -> Skipped:
    have = "run has" if runs == 1 else "runs have"
    return Skipped(name=name, reason=f"{runs or 'no'} {have} {what}; two are needed")


def _variations(runs: Sequence[Record]) -> Iterator[ScoreVariation]:
    """Yield the variation of every score of the whole turn over the runs of a question.

    Skipped and failed results are excluded and counted.

    Args:
        runs: the records of one question.
    """
    values: dict[str, list[float]] = {}
    for record in runs:
        # A record that has a score twice counts once, with the last value.
        for name, value in {score.name: score.value for score in record.scores()}.items():
            values.setdefault(name, []).append(value)
    for name, found in values.items():
        mean = statistics.fmean(found)
        variance = statistics.variance(found) if len(found) > 1 else None
        yield ScoreVariation(
            name=name,
            mean=mean,
            variance=variance,
            coefficient=math.sqrt(variance) / abs(mean) if variance is not None and mean != 0 else None,
            runs=len(found),
            left_out=len(runs) - len(found),
        )


# --------------------------------------------------------------------------- over the questions of a file


def compare_answers(file: ScoredFile, how: Resampling, scorer: BertScore | None = None) -> tuple[Similarity, ...]:
    """Compare the answers to each question of a file that has several.

    Args:
        file: the file.
        how: seed, resamples, level.
        scorer: for BERTScore; None omits it.
    """
    import numpy as np

    rows: dict[int, list[int]] = {}
    for row, question in enumerate(file.questions.tolist()):
        rows.setdefault(question, []).append(row)
    repeated = [numbers for numbers in rows.values() if len(numbers) > 1]
    drawn = len(repeated) > _MOST_QUESTIONS
    if drawn:
        # In their order, because records are read from disk.
        chosen = np.random.default_rng(how.seed).choice(len(repeated), _MOST_QUESTIONS, replace=False)
        repeated = [repeated[place] for place in sorted(chosen)]
    values: dict[str, list[float]] = {name: [] for name in (*ROUGE, *(["bertscore"] if scorer else []))}
    for numbers in repeated:
        answers = [_answer(record) for record in sorted(map(file.record, numbers), key=lambda record: record.run)]
        overlap, close = rouge(answers), bertscore(answers, scorer) if scorer else None
        if isinstance(overlap, RougeScores):
            for name in ROUGE:
                values[name].append(getattr(overlap, name).f1)
        if isinstance(close, BertScores):
            values["bertscore"].append(close.f1)
    return tuple(
        Similarity(
            name=name,
            # Each question has one value of equal weight.
            spread=spread(np.array(found), np.ones(len(found)), np.arange(len(found)), how) if found else None,
            left_out=len(repeated) - len(found),
            reason="" if found else "no question has two answers with words",
            drawn=drawn,
            model=scorer.name if scorer and name == "bertscore" else None,
        )
        for name, found in values.items()
    )
