"""A report as plain data, and how it is made from files of records.

``rageval-hooks report --format json`` writes this data. Its fields are a file format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.conversations import ConversationSummary
from rageval_hooks.offline.report.compare import FileComparison, compare_files
from rageval_hooks.offline.report.corrected import CorrectedShare
from rageval_hooks.offline.report.scored_file import ScoredFile, Watch, read_files
from rageval_hooks.offline.report.similarity import BertScore, Similarity, compare_answers
from rageval_hooks.offline.report.statistics import Resampling, Spread, Variation, spread, variation
from rageval_hooks.offline.report.turns import ShownTurn, show_turn
from rageval_hooks.offline.score_definitions import HITS, VERDICTS
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import shown_name
from rageval_hooks.text.formatting import flat
from rageval_hooks.text.wording import counted

# The most frequent reasons explain nearly all skips and failures.
_MAX_REASONS = 5


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
        """The name on one line, with an arrow if lower is better; ``no_answer`` says what a 1 means."""
        name = flat(shown_name(self.name))
        return f"{name} ↓" if self.direction == "lower" else name


MAX_RANKS: Final = 10
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


class CauseReport(Data):
    """A cause of verdicts that are not good.

    Attributes:
        cause: one of :data:`rageval_hooks.score.CAUSES`.
        answers: number of answers with it.
        bad: how many of them are bad.
        example: the first of them.
    """

    cause: str
    answers: int
    bad: int
    example: ShownTurn


class FileReport(Data):
    """One file.

    Attributes:
        name: a short name.
        path: as given.
        records: number of answers.
        questions: number of distinct questions.
        runs: the most answers that a question has; more than 1 if questions were repeated.
        notes: choices of the reader that the user should know.
        verdicts: number of answers by verdict, from good to not_evaluable; empty without verdicts.
        causes: the causes of the verdicts that are not good, the most frequent first.
        judged_share: the share of bad answers, if a judge or people saw a sample of them; else None.
        conversation: the summary of the conversation, if the answers are grouped by session; else None.
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
    notes: tuple[str, ...] = ()
    verdicts: dict[str, int] = Field(default_factory=dict)
    causes: tuple[CauseReport, ...] = ()
    judged_share: CorrectedShare | None = None
    conversation: ConversationSummary | None = None
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

    @property
    def bad_by_cause(self) -> list[str]:
        """How many bad answers have which cause, such as "3 unsupported"."""
        return [f"{found.bad} {found.cause}" for found in self.causes if found.bad]

    def score(self, name: str) -> ScoreSummary | None:
        """Return a score, or None."""
        return next((row for row in self.scores if row.name == name), None)


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
        conclusion: which a reader has to know first; None until :func:`~.conclude` made it.
    """

    files: tuple[FileReport, ...]
    comparisons: tuple[FileComparison, ...] = ()
    resampling: Resampling = Resampling()
    conclusion: Conclusion | None = None


# --------------------------------------------------------------------------- making it


def build_report(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any) -> Report:
    """Read files of records and report on them. Options are those of :func:`analyze`, which also keeps the turns."""
    report, _ = analyze(paths, **options)
    return report


def analyze(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    metrics: Sequence[str] = (),
    worst: int = 10,
    worst_by: str | None = None,
    compare: bool = True,
    lower: Sequence[str] = (),
    resampling: Resampling | None = None,
    scorer: BertScore | None = None,
    watch: Watch | None = None,
    on_problem: Callable[[str], None] = lambda _: None,
    bounded: Collection[str] = (),
    privacy: PrivacyPolicy = NO_PRIVACY,
    group_by: str | None = None,
    people: str | None = None,
) -> tuple[Report, list[ScoredFile]]:
    """Read files of records, each once, and report on them; return the report, and the files with all turns.

    Args:
        paths: the files, or one file; the first is the baseline of the others.
        metrics: scores to report; all by default.
        worst: number of worst turns, and of most changed turns, to show.
        worst_by: the score that orders turns; by default the verdict, or the score with the highest headline.
        compare: compare the first file with the others.
        lower: scores for which lower is better, in addition to those that say so themselves.
        resampling: seed, resamples and level of intervals and tests.
        scorer: also compares repeated answers by BERTScore; None omits that.
        watch: wraps the records while they are read, to show progress.
        on_problem: called with a line for each of the first rows that could not be used.
        bounded: further names of scores. A column of numbers in a table that is named here or in ``metrics`` is a
            score.
        privacy: which texts may be shown; all by default.
        group_by: the column of a file whose values are systems, which are compared as files are.
        people: the annotation or column with labels of people, who saw a sample that was drawn at random; None for the
            sample that a judge saw.

    Raises:
        ConfigurationError: a file is missing, empty or has no scores; all ids that two files have in common stand for
            different questions.
        UnknownNameError: no file has a score of that name.
    """
    how = resampling or Resampling()
    # A path is a sequence of characters, too.
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    named = {*metrics, *bounded}
    files = read_files(given, watch=watch, scores=named, lower=lower, privacy=privacy, group_by=group_by, people=people)
    for file in files:
        if not file.is_scored:
            raise ConfigurationError(f"{file.path} has no scores. Add them: rageval-hooks score {file.path} -o OUT")
        for line in file.bad_rows:
            on_problem(line)
    valid = list(dict.fromkeys(name for file in files for name in file.names()))
    for name in (*metrics, *([worst_by] if worst_by else [])):
        if name not in valid:
            raise UnknownNameError("score", name, valid)
    ordering = worst_by or next(filter(None, (file.headline() for file in files)), None)
    # Turns are ordered by a score that the report shows.
    if not worst_by and metrics and ordering not in metrics:
        ordering = metrics[0]
    comparisons = []
    for other in files[1:] if compare else ():
        found = compare_files(files[0], other, metrics, ordering, how, worst)
        if found.different and not found.common:
            # Row numbers of differently sorted files are such ids.
            raise ConfigurationError(
                f"{found.before_path} and {found.after_path} have {counted(found.different, 'id')} in common, and every"
                " one stands for a different question in each. Give the rows ids: without one, its number is the id"
            )
        # Weeks and sessions have questions of their own.
        if found.common or group_by is None:
            comparisons.append(found)
    reports = []
    for file in files:
        # Without a choice, all scores are reported.
        names = [name for name in file.names() if not metrics or name in metrics]
        reports.append(
            FileReport(
                name=file.name,
                path=file.path,
                records=file.records,
                questions=len(file.ids),
                runs=file.runs,
                notes=tuple(file.notes),
                verdicts={label: file.verdicts[label] for label in VERDICTS} if file.verdicts else {},
                causes=tuple(
                    CauseReport(
                        cause=cause, answers=rows.count, bad=rows.bad, example=show_turn(file, rows.first, None)
                    )
                    for cause, rows in sorted(file.causes.items(), key=lambda item: -item[1].count)
                ),
                judged_share=file.judged_sample.share(how),
                conversation=file.conversation() if group_by == "session" else None,
                bad=file.bad,
                errors=dict(file.errors.most_common()),
                failed_questions=file.failed_questions(),
                scores=tuple(_summary(file, name, how) for name in names),
                ranks=_ranks(file),
                unranked=file.unranked,
                unanswerable=file.unanswerable,
                documents=_documents(file, names),
                similarity=compare_answers(file, how, scorer) if file.runs > 1 else (),
                worst_by=ordering,
                worst=tuple(show_turn(file, row, ordering) for row in file.worst_rows(ordering, worst)),
            )
        )
    return Report(files=tuple(reports), comparisons=tuple(comparisons), resampling=how), files


def _summary(file: ScoredFile, name: str, how: Resampling) -> ScoreSummary:
    values, definition = file.values.get(name), file.define(name)
    skipped, failed = (
        Missing(count=reasons.total(), reasons=dict(reasons.most_common(_MAX_REASONS)))
        for reasons in file.missing(name)
    )
    fields: dict[str, Any] = {
        "skipped": skipped,
        "failed": failed,
        **definition.model_dump(include={"direction", "unit", "low", "high", "binary", "headline"}),
    }
    if values is not None:
        found = spread(values.values, values.weights, values.questions, how, is_share=definition.binary)
        fields |= {"spread": found, "sampled": values.sampled}
        labelled = ~np.isnan(values.labels)
        if labelled.any():
            passed = np.average(values.labels[labelled], weights=values.weights[labelled])
            fields |= {"labelled": int(labelled.sum()), "passed": float(passed)}
        # What no metric defines is known by its values. A single 0 or 1 may be any number.
        if not definition.description and found.count > 1 and np.isin(values.values, (0, 1)).all():
            fields["binary"] = True
        # The default threshold, if one was measured for a model that made the score.
        models = {model for _, model in values.makers}
        thresholds = (t.value for t in definition.thresholds if t.target == "turn" and models & set(t.models))
        fields["threshold"] = next(thresholds, None)
        # A failed turn's `answered` states no maker.
        makers = tuple(maker for maker in values.described_makers() if maker != "not stated")
        fields["makers"] = makers if len(makers) > 1 else ()
        if file.runs > 1:
            fields["repeats"] = variation(values.values, values.questions, how)
    return ScoreSummary(name=name, **fields)


def _ranks(file: ScoredFile) -> Ranks | None:
    """Return the rank table, or None if no rank is known."""
    count = file.ranks.total()
    if not count:
        return None
    # None stands for a miss.
    found = {rank: file.ranks[rank] for rank in sorted(rank for rank in file.ranks if rank is not None)}
    missed = file.ranks[None]
    return Ranks(
        count=count,
        counts=found,
        missed=missed,
        match=1 - missed / count,
        misses=missed / count,
        mrr=sum(number / rank for rank, number in found.items()) / count,
        hits={k: sum(number for rank, number in found.items() if rank <= k) / count for k in HITS},
        unknown=file.unranked,
    )


def _documents(file: ScoredFile, names: Sequence[str]) -> tuple[DocumentRow, ...]:
    """Return the means per source document, in the order of the file."""
    # One more, at the end, for the records without a document, whose number is -1.
    size = len(file.documents) + 1
    means: list[dict[str, float]] = [{} for _ in range(size)]
    for name in names:
        if (values := file.values.get(name)) is not None:
            owners = file.document_numbers[values.rows] % size
            weights = np.bincount(owners, values.weights, size)
            totals = np.bincount(owners, values.weights * values.values, size)
            for owner in np.flatnonzero(weights).tolist():
                means[owner][name] = float(totals[owner] / weights[owner])
    records = np.bincount(file.document_numbers % size, minlength=size).tolist()
    return tuple(
        DocumentRow(document=document, records=records[owner], means=means[owner])
        for document, owner in file.documents.items()
    )
