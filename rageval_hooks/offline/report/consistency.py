"""How alike the answers of repeated runs of one question are, and how much their scores vary (seed 004)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Union

from pydantic import Field

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.offline.records.record import Record
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.score import Skipped

if TYPE_CHECKING:
    from rageval_hooks.offline.report.bertscore import BertScore

__all__ = [
    "BertScores",
    "Consistency",
    "PairMean",
    "RougeScores",
    "ScoreVariation",
    "bertscore",
    "consistency",
    "rouge",
    "variations",
]

ROUGE = ("rouge1", "rouge2", "rougeL")


class PairMean(Data):
    """Means over pairs of answers.

    Attributes:
        precision: share of the later answer that the earlier one has, 0..1.
        recall: share of the earlier answer that the later one has, 0..1.
        f1: their harmonic mean, which does not depend on the order.
    """

    precision: float
    recall: float
    f1: float


class RougeScores(Data):
    """Overlap of words between the answers.

    Attributes:
        rouge1: of single words.
        rouge2: of pairs of words.
        rougeL: of the longest common subsequence.
        pairs: of how many pairs these are the means.
        left_out: runs that did not end well, or whose answer has no words.
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
        rescaled: whether they are; if not, there is no baseline for the model, or none was wanted.
        truncated: answers that are longer than the encoder reads, and were cut.
        left_out: runs that did not end well, or whose answer has no words.
    """

    f1: float
    values: tuple[float, ...]
    model: Text
    rescaled: bool
    truncated: int = 0
    left_out: int = 0


class ScoreVariation(Data):
    """How much one score varies over the runs.

    Attributes:
        name: the score.
        mean: over the runs that have it.
        variance: sample variance (divided by n - 1); None with one run.
        coefficient: of variation: standard deviation / |mean|, lower is steadier; None where the mean is 0 or the
            variance is not defined.
        runs: how many runs have the score.
        left_out: how many have not: skipped, failed, or not computed.
    """

    name: Text
    mean: float
    variance: float | None = Field(default=None, ge=0)
    coefficient: float | None = Field(default=None, ge=0)
    runs: int = Field(ge=1)
    left_out: int = Field(default=0, ge=0)


class Consistency(Data):
    """What repeated runs of one question have in common.

    Attributes:
        id: the question.
        runs: how many there are.
        rouge: or why there is none.
        bertscore: or why there is none.
        variations: of every score that some run has, in the order of the first run.
    """

    id: Text
    runs: int
    rouge: Union[RougeScores, Skipped]
    bertscore: Union[BertScores, Skipped]
    variations: tuple[ScoreVariation, ...] = ()


def consistency(records: Iterable[Record], *, scorer: BertScore | None = None, stem: bool = False) -> list[Consistency]:
    """Compare the runs of each question. Two runs suffice.

    Args:
        records: of any number of questions, in any order; those of one id with different ``run`` belong together.
        scorer: for BERTScore, see :func:`rageval_hooks.offline.report.bertscore.load_bertscore`; None leaves that out.
        stem: compare the stems of English words for ROUGE.

    Returns:
        One comparison per question, in the order in which they first come.

    Raises:
        ConfigurationError: one question has the same run twice.
        MissingDependencyError: rouge-score is not installed.
    """
    found = []
    for name, runs in _by_question(records).items():
        answers = [record.turn.response if record.turn.status == "ok" else "" for record in runs]
        found.append(
            Consistency(
                id=name,
                runs=len(runs),
                rouge=rouge(answers, stem=stem),
                bertscore=_no_scorer() if scorer is None else bertscore(answers, scorer),
                variations=tuple(variations(runs)),
            )
        )
    return found


def _by_question(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        runs = found.setdefault(record.id, {})
        if record.run in runs:
            raise ConfigurationError(
                f"run {record.run} of {record.id!r} is there twice: give each repetition its number"
            )
        runs[record.run] = record
    return {name: [runs[number] for number in sorted(runs)] for name, runs in found.items()}


def _no_scorer() -> Skipped:
    return Skipped(name="bertscore", reason="no encoder was given")


def rouge(answers: Sequence[str], *, stem: bool = False) -> RougeScores | Skipped:
    """ROUGE-1, ROUGE-2 and ROUGE-L over all pairs of answers, by the package rouge-score.

    It reads letters a to z and digits, in any case: an answer in another script has no words for it.

    Args:
        answers: one per run; those without words are left out and counted.
        stem: compare the stems of English words.

    Raises:
        MissingDependencyError: rouge-score is not installed.
    """
    try:
        from rouge_score import rouge_scorer, tokenizers  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError("rouge-score", "offline", "ROUGE") from error
    tokenizer = tokenizers.DefaultTokenizer(stem)
    usable = [answer for answer in answers if tokenizer.tokenize(answer)]
    if len(usable) < 2:
        return _too_few("rouge", len(usable), "an answer with words of a to z or digits")
    scorer = rouge_scorer.RougeScorer(list(ROUGE), tokenizer=tokenizer)
    pairs = [scorer.score(earlier, later) for earlier, later in combinations(usable, 2)]
    means = {name: _pair_mean([pair[name] for pair in pairs]) for name in ROUGE}
    return RougeScores(**means, pairs=len(pairs), left_out=len(answers) - len(usable))


def _pair_mean(scores: Sequence[Any]) -> PairMean:
    return PairMean(
        precision=statistics.fmean(score.precision for score in scores),
        recall=statistics.fmean(score.recall for score in scores),
        f1=statistics.fmean(score.fmeasure for score in scores),
    )


def bertscore(answers: Sequence[str], scorer: BertScore) -> BertScores | Skipped:
    """BERTScore's F1 over all pairs of answers.

    Args:
        answers: one per run; those without words are left out and counted.
        scorer: the encoder.
    """
    usable = [encoded for encoded in scorer.encode(answers) if encoded is not None]
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


def variations(runs: Sequence[Record]) -> Iterator[ScoreVariation]:
    """Yield mean, variance and coefficient of variation of every score of the whole turn, over the runs of a question.

    What was skipped or failed in a run does not enter: it is counted.

    Args:
        runs: the records of one question.
    """
    values: dict[str, list[float]] = {}
    for record in runs:
        for name, value in {score.name: score.value for score in record.scores()}.items():
            values.setdefault(name, []).append(value)
    for name, found in values.items():
        mean = statistics.fmean(found)
        variance = statistics.variance(found) if len(found) > 1 else None
        yield ScoreVariation(
            name=name,
            mean=mean,
            variance=variance,
            coefficient=None if variance is None or mean == 0 else math.sqrt(variance) / abs(mean),
            runs=len(found),
            left_out=len(runs) - len(found),
        )
