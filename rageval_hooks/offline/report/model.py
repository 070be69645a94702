"""A report as plain data: per file its scores, ranks, documents, repeats and worst turns; comparisons; a conclusion.

``rageval-hooks report --format json`` writes this data. Its fields are a file format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pydantic import Field

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.statistics import Paired, Resampling, Spread, Variation
from rageval_hooks.offline.report.turns import ShownTurn
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.text.formatting import flat


class Missing(Data):
    """Results that are not numbers.

    Attributes:
        count: how many.
        reasons: why, with how often; the most frequent ones first.
    """

    count: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)

    @property
    def main_reason(self) -> str:
        """The most frequent reason; empty without results."""
        return next(iter(self.reasons), "")


class ScoreSummary(Data):
    """One score of one file.

    Attributes:
        name: the score, or the metric if it never made one.
        direction: whether higher or lower is better.
        unit: ``""`` for a share.
        low: the smallest possible value.
        high: the largest possible value; None if there is no bound.
        binary: True if the score is a yes or no.
        group: the family of its metric.
        headline: how well it sums up a turn; see :class:`ScoreDefinition`.
        spread: of its values; None without values.
        skipped: results without an input.
        failed: results that failed.
        labelled: values with the label ``pass`` or ``fail``.
        passed: share of these that pass; None without labels.
        threshold: the value from which the score passes by default, if it has a default.
        sampled: True if some values stand for more than one turn.
        makers: the versions and models that made it, in words, if there are several.
        repeats: how much it varies between answers to one question; None without repeats.
    """

    name: str
    direction: Direction
    unit: str = ""
    low: float = 0.0
    high: float | None = None
    binary: bool = False
    group: str = ""
    headline: int = 0
    spread: Spread | None = None
    skipped: Missing = Missing()
    failed: Missing = Missing()
    labelled: int = 0
    passed: float | None = None
    threshold: float | None = None
    sampled: bool = False
    makers: tuple[str, ...] = ()
    repeats: Variation | None = None

    @property
    def count(self) -> int:
        """Number of values."""
        return self.spread.count if self.spread else 0

    @property
    def shown_name(self) -> str:
        """The name on one line, with an arrow if lower is better."""
        return f"{flat(self.name)} ↓" if self.direction == "lower" else flat(self.name)


MOST_RANKS: Final = 10
"""Retrievers rarely return more passages; later ranks share a row."""


class Ranks(Data):
    """Where the target passages were found.

    Attributes:
        count: turns whose rank is known.
        counts: rank → number of turns.
        missed: turns whose target was not retrieved.
        match: share of turns whose target was retrieved.
        misses: share of turns whose target was not.
        mrr: mean of 1 / rank, 0 for a miss.
        hits: k → share of turns with a rank of at most k.
        unknown: turns with a target whose rank is unknown, because they failed or have no passages with ids.
    """

    count: int
    counts: dict[int, int]
    missed: int
    match: float
    misses: float
    mrr: float
    hits: dict[int, float]
    unknown: int = 0

    def rows(self, last: int) -> dict[str, int]:
        """Return the number of turns by rank from 1 to ``last``, of later ranks together, and of misses."""
        rows = {f"{rank}": self.counts.get(rank, 0) for rank in range(1, last + 1)}
        if beyond := self.count - self.missed - sum(rows.values()):
            rows[f"beyond {last}"] = beyond
        return {**rows, "missed": self.missed}


class DocumentRow(Data):
    """The turns about one source document.

    Attributes:
        document: its name.
        records: number of turns.
        means: weighted mean by score; scores that none of its turns has are missing.
    """

    document: str
    records: int
    means: dict[str, float]


class Similarity(Data):
    """How similar answers are by one measure: the mean over all pairs of a question's answers, then over questions.

    Attributes:
        name: the measure: ``rouge1``, ``rouge2``, ``rougeL`` (F1), ``bertscore``.
        spread: over the questions; None if no question has two answers that can be compared.
        left_out: questions that do not have two such answers.
        reason: why there is no number.
        model: the encoder of BERTScore.
    """

    name: str
    spread: Spread | None = None
    left_out: int = 0
    reason: str = ""
    model: str | None = None


class FileReport(Data):
    """One file.

    Attributes:
        name: a short name.
        path: as given.
        records: number of answers.
        questions: number of distinct questions.
        runs: the most answers that a question has; more than 1 if questions were repeated.
        verdicts: number of answers by verdict, from good to not_evaluable; empty without verdicts.
        bad: rows that could not be used.
        errors: answers that failed, by type of error.
        failed_questions: questions of which at least one answer failed.
        scores: in the order of the file, then derived ones.
        ranks: of the target passages; None if none is known.
        unranked: turns with a target whose rank is unknown.
        unanswerable: answers to questions that are marked as unanswerable.
        documents: per source document.
        similarity: how similar the answers to one question are; empty without repeats.
        worst_by: the score by which turns are the worst.
        worst: these turns, the worst first.
    """

    name: str
    path: str
    records: int
    questions: int
    runs: int
    verdicts: dict[str, int] = Field(default_factory=dict)
    bad: int
    errors: dict[str, int]
    failed_questions: int = 0
    scores: tuple[ScoreSummary, ...]
    ranks: Ranks | None
    unranked: int = 0
    unanswerable: int = 0
    documents: tuple[DocumentRow, ...]
    similarity: tuple[Similarity, ...] = ()
    worst_by: str | None
    worst: tuple[ShownTurn, ...]

    def score(self, name: str) -> ScoreSummary | None:
        """Return a score, or None."""
        return next((row for row in self.scores if row.name == name), None)


# --------------------------------------------------------------------------- comparisons


class OtherMakers(Data):
    """Versions and models that made a score in two files, where they differ: the two means are not comparable."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class ScoreChange(Data):
    """How one score differs between two files, over the questions with a value in both.

    Attributes:
        name: the score.
        direction: whether higher or lower is better.
        quality: True if the score is about the answers; False for latency, tokens and cost.
        binary: True if the score is a yes or no, so that its mean is a share.
        scale: length of the score's range; None if it has no bounds.
        test: the paired test; None if no question has a value in both files.
        p_worse: probability of a change at least as bad if nothing had changed, adjusted (Holm) for the number of
            scores that were compared; None without a test.
        p_better: likewise of a change at least as good.
        makers: who made the score in each file, if they differ.
    """

    name: str
    direction: Direction
    quality: bool = True
    binary: bool = False
    scale: float | None = None
    test: Paired | None = None
    p_worse: float | None = None
    p_better: float | None = None
    makers: OtherMakers | None = None

    @property
    def count(self) -> int:
        """Number of questions that were compared."""
        return self.test.count if self.test else 0

    @property
    def effect(self) -> float:
        """Size of the change from 0 to 1: of the score's range, or of both means together if it has no range."""
        if self.test is None:
            return 0.0
        whole = self.scale or abs(self.test.before) + abs(self.test.after)
        return min(1.0, abs(self.test.difference) / whole) if whole else 0.0

    @property
    def worsening(self) -> float:
        """By how much the mean changed for the worse; negative if it changed for the better."""
        if self.test is None:
            return 0.0
        return self.test.difference if self.direction == "lower" else -self.test.difference

    def is_significant(self, alpha: float, *, worse: bool) -> bool:
        """Return True if the mean changed significantly in one direction.

        Args:
            alpha: probability of a false alarm.
            worse: for a change for the worse, else for the better.
        """
        if self.test is None or self.makers is not None:
            return False
        p = self.p_worse if worse else self.p_better
        # With a large alpha, a mean that did not change could be called significant.
        changed = self.worsening > 0 if worse else self.worsening < 0
        return changed and p is not None and p < alpha


class Loss(Data):
    """A score that questions have in the first file, but not in the second.

    Attributes:
        name: the score.
        had: questions in both files that have a value in the first.
        lost: how many of them have none in the second. For a sampled score, those that were sampled out do not count.
        lost_to_failures: how many of the lost ones are lost because the turn or the metric failed.
        values: number of values in the second file.
        skipped: results of the second file that were skipped.
        failed: results of the second file that failed.
        reason: the most frequent reason.
        quality: True if the score is about the answers; False for latency, tokens and cost.
    """

    name: str
    had: int
    lost: int
    lost_to_failures: int
    values: int
    skipped: int
    failed: int
    reason: str = ""
    quality: bool = True

    @property
    def is_too_much(self) -> bool:
        """True if the rest cannot stand for the whole: there are no values, or fewer than half of them are left."""
        return not self.values or self.lost > self.had / 2


class ChangedTurn(Data):
    """A question whose score changed much.

    Attributes:
        id: the question's id.
        before: mean of its values in the first file.
        after: mean of its values in the second.
        query: the question.
        response_before: its first answer in the first file.
        response_after: its first answer in the second.
    """

    id: str
    before: float
    after: float
    query: str = ""
    response_before: str = ""
    response_after: str = ""


class FileComparison(Data):
    """Two files.

    Attributes:
        before: name of the first.
        after: name of the second.
        before_path: path of the first.
        after_path: path of the second.
        common: questions that both have.
        different: ids that stand for different questions in the two files; they are not compared.
        only_before: questions that only the first has.
        only_after: questions that only the second has.
        scores: scores that both have, in the order of the first.
        only_in_one: scores that only one of them has.
        losses: scores that some questions of the first have, but not in the second.
        changed_by: the score by which turns changed most.
        changed: these turns, the largest change for the worse first.
    """

    before: str
    after: str
    before_path: str
    after_path: str
    common: int
    only_before: int
    only_after: int
    scores: tuple[ScoreChange, ...]
    only_in_one: tuple[str, ...] = ()
    different: int = 0
    losses: tuple[Loss, ...] = ()
    changed_by: str | None = None
    changed: tuple[ChangedTurn, ...] = ()

    def describe_losses(self, losses: Iterable[Loss]) -> list[str]:
        """Return in words what the second file lacks: one sentence per cause, with the names of its scores.

        Scores that are missing for the same reason share a sentence. For example, a file without target passages lacks
        all scores that follow from the rank.
        """
        names: dict[str, list[str]] = {}
        for loss in losses:
            numbers = {"failed": loss.failed, "skipped": loss.skipped}
            why = " and ".join(f"{number} {word}" for word, number in numbers.items() if number) or "not computed"
            if loss.reason:
                why += f": {loss.reason}"
            where = f"no value in {self.after}"
            if loss.values:
                where += f" for {loss.lost} of the {loss.had} questions that have one in {self.before}"
            names.setdefault(f"{where} ({why})", []).append(loss.name)
        return [f"{', '.join(found)} {'has' if len(found) == 1 else 'have'} {lack}" for lack, found in names.items()]

    def describe_makers(self, makers: OtherMakers) -> str:
        """Return in words who made a score in each file."""
        return (
            f"in {self.before} it was made by {' and '.join(makers.before)}, in {self.after} by"
            f" {' and '.join(makers.after)}, so the means are not comparable"
        )


# --------------------------------------------------------------------------- conclusion


FindingKind = Literal["good", "bad", "note"]


class Finding(Data):
    """One sentence of the conclusion, and whether it is good or bad news."""

    kind: FindingKind
    text: str


class Conclusion(Data):
    """The first lines of a report: what is good, what is bad, what changed.

    Attributes:
        state: ``fail`` if a check fails; ``warn`` if there is other bad news; else ``ok``.
        headline: how many answers are good, doubtful, bad, declined and not evaluable; then whether checks fail.
        quality: what is good and what is bad.
        changes: what changed from the first file to the others.
        certainty: how sure the numbers are.
    """

    state: Literal["ok", "warn", "fail"]
    headline: str
    quality: tuple[Finding, ...] = ()
    changes: tuple[Finding, ...] = ()
    certainty: tuple[str, ...] = ()


class Report(Data):
    """Everything a report says.

    Attributes:
        files: in the order in which they were given.
        comparisons: of the first file with each other one.
        resampling: how intervals and tests were made.
        verdict: the conclusion, which a reader has to know first; None if it was not made.
    """

    files: tuple[FileReport, ...]
    comparisons: tuple[FileComparison, ...] = ()
    resampling: Resampling = Resampling()
    verdict: Conclusion | None = None
