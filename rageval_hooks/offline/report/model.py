"""A report as plain data: per file its scores, ranks, documents, repeats and worst turns; comparisons; a verdict."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.comparison import Comparison
from rageval_hooks.offline.report.details import ShownTurn
from rageval_hooks.offline.report.similarity import Similarity
from rageval_hooks.offline.report.statistics import Resampling, Spread, Variation
from rageval_hooks.runtime.jsonable import Data

__all__ = [
    "DocumentRow",
    "FileReport",
    "Finding",
    "FindingKind",
    "Missing",
    "Ranks",
    "Report",
    "ScoreRow",
    "State",
    "Verdict",
]


class Missing(Data):
    """Results that are not numbers.

    Attributes:
        count: how many.
        reasons: why, with how often; the most frequent ones.
    """

    count: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)

    @property
    def main_reason(self) -> str:
        """The most frequent reason; empty without results."""
        return next(iter(self.reasons), "")


class ScoreRow(Data):
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


class FileReport(Data):
    """One file.

    Attributes:
        name: a short name.
        path: as given.
        records: number of answers.
        questions: number of distinct questions.
        runs: the most answers that a question has; more than 1 if questions were repeated.
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
    bad: int
    errors: dict[str, int]
    failed_questions: int = 0
    scores: tuple[ScoreRow, ...]
    ranks: Ranks | None
    unranked: int = 0
    unanswerable: int = 0
    documents: tuple[DocumentRow, ...]
    similarity: tuple[Similarity, ...] = ()
    worst_by: str | None
    worst: tuple[ShownTurn, ...]

    def score(self, name: str) -> ScoreRow | None:
        """Return the row of a score, or None."""
        return next((row for row in self.scores if row.name == name), None)


FindingKind = Literal["good", "bad", "note"]
State = Literal["ok", "warn", "fail"]


class Finding(Data):
    """One sentence of the verdict, and whether it is good or bad news."""

    kind: FindingKind
    text: str


class Verdict(Data):
    """The first lines of a report: what is good, what is bad, what changed.

    Attributes:
        state: ``fail`` if a question failed, a bound is missed or a score got worse; ``warn`` if there is other bad
            news; else ``ok``.
        headline: one sentence.
        quality: what is good and what is bad.
        changes: what changed from the first file to the others.
        certainty: how sure the numbers are.
    """

    state: State
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
        verdict: what a reader has to know first; None if it was not made.
    """

    files: tuple[FileReport, ...]
    comparisons: tuple[Comparison, ...] = ()
    resampling: Resampling = Resampling()
    verdict: Verdict | None = None
