"""What a report says, as plain data: per file its scores, answers, ranks, documents, repeats and worst turns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.comparison import Comparison, compare_files, find_changed
from rageval_hooks.offline.report.directions import definition_of, direction_of
from rageval_hooks.offline.report.evidence import ShownTurn, show_turn
from rageval_hooks.offline.report.score_values import Values, words_of
from rageval_hooks.offline.report.similarity import Likeness, likeness
from rageval_hooks.offline.report.statistics import Resampling, Spread, Variation, spread, variation
from rageval_hooks.offline.report.summary import NO_ANSWER, Tally, Watch, check_names, read_tallies
from rageval_hooks.runtime.jsonable import Data, clean_text
from rageval_hooks.text.wording import counted

if TYPE_CHECKING:
    from rageval_hooks.offline.report.bertscore import BertScore

__all__ = ["DocumentRow", "FileReport", "Missing", "Ranks", "Report", "ScoreRow", "build_report", "rank_table"]

_HITS = (1, 3, 5, 10)
_MOST_REASONS = 5


class Missing(Data):
    """Results that are no numbers.

    Attributes:
        count: how many.
        reasons: why, with how often; the most frequent ones.
    """

    count: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)


class ScoreRow(Data):
    """One score of one file.

    Attributes:
        name: of the score; of the metric if it never made one.
        direction: whether higher or lower is better.
        unit: ``""`` for a share.
        bounded: whether it lies within 0..1.
        spread: of its values; None if there are none.
        skipped: results without an input.
        failed: results that went wrong.
        labelled: values with the label ``pass`` or ``fail``.
        passed: share of these that pass; None if there are none.
        sampled: whether some values stand for more than one turn.
        makers: the versions and models that made it, in words, where there are several.
        repeats: how much it varies between answers to one question; None without repeats.
    """

    name: str
    direction: Direction
    unit: str = ""
    bounded: bool = False
    spread: Spread | None = None
    skipped: Missing = Missing()
    failed: Missing = Missing()
    labelled: int = 0
    passed: float | None = None
    sampled: bool = False
    makers: tuple[str, ...] = ()
    repeats: Variation | None = None


class Ranks(Data):
    """Where the target passages were found.

    Attributes:
        count: turns with a known target.
        counts: rank → how many turns.
        missed: turns whose target was not among the passages.
        match: share of turns whose target was found.
        misses: share of turns whose target was not.
        mrr: mean of 1 / rank, 0 for a miss.
        hits: k → share of turns with a rank of at most k.
        failed: turns that failed before anything was retrieved; they count nowhere above.
    """

    count: int
    counts: dict[int, int]
    missed: int
    match: float
    misses: float
    mrr: float
    hits: dict[int, float]
    failed: int = 0


class DocumentRow(Data):
    """The turns about one source document.

    Attributes:
        document: its name.
        records: turns.
        means: weighted mean by score; a score that none of its turns has is not there.
    """

    document: str
    records: int
    means: dict[str, float]


class FileReport(Data):
    """One file.

    Attributes:
        name: short.
        path: as given.
        records: answers.
        questions: distinct ones.
        runs: the most answers that a question has; more than 1 where questions were repeated.
        bad: rows that could not be used.
        errors: answers that failed, by type.
        scores: in the order of the file.
        answered: share of the answers that attempt one; None where nobody has looked.
        ranks: of target passages; None where the records know no targets.
        documents: per source document.
        likeness: how alike the answers to one question are; empty without repeats.
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
    scores: tuple[ScoreRow, ...]
    answered: ScoreRow | None
    ranks: Ranks | None
    documents: tuple[DocumentRow, ...]
    likeness: tuple[Likeness, ...] = ()
    worst_by: str | None
    worst: tuple[ShownTurn, ...]

    def score(self, name: str) -> ScoreRow | None:
        """Return the row of a score, or None."""
        return next((row for row in self.scores if row.name == name), None)


class Report(Data):
    """Everything a report says.

    Attributes:
        files: in the order in which they were given.
        comparisons: of the first file with each other one.
        resampling: how intervals and tests were made.
    """

    files: tuple[FileReport, ...]
    comparisons: tuple[Comparison, ...] = ()
    resampling: Resampling = Resampling()


def build_report(
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
    complain: Callable[[str], None] | None = None,
    bounded: Collection[str] = (),
) -> Report:
    """Read files of records and say what is in them.

    Args:
        paths: of the files, or of one file; the first is what the others are compared with.
        metrics: the scores to report; all by default. ``answered`` is the share of questions answered.
        worst: how many of the worst, and of the most changed turns to show.
        worst_by: the score that says which turns are the worst; the most telling one by default.
        compare: whether to compare the first file with the others.
        lower: scores of which lower is better, beside those that are known to be so.
        resampling: seed, resamples and level of intervals and tests.
        scorer: compares repeated answers by BERTScore, too; None leaves that out.
        watch: sees the records go by, to show progress.
        complain: called with a line for every row that could not be used.
        bounded: more names of scores. A column of numbers in a table that is named here or in ``metrics`` is a score.

    Raises:
        ConfigurationError: a file is missing, empty or has no scores; the files have no scores in common, or only ids
            that stand for other questions.
        UnknownNameError: no file has a score of that name.
    """
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("numpy", "offline", "a report") from error
    how = resampling or Resampling()
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = read_tallies(given, worst=worst, lower=lower, watch=watch, scores={*metrics, *bounded})
    for file in files:
        if not file.names() and not file.ranks:
            raise ConfigurationError(
                f"{file.path} has no scores: they are added by rageval-hooks score {file.path} --output OUT"
            )
        if complain:
            for line in file.limited_log:
                complain(line)
    metrics = _resolved(metrics, files)
    check_names([*metrics, *([worst_by] if worst_by else [])], files)
    if compare:
        _check_common(files)
    shown = worst_by or next((name for name in (file.favourite() for file in files) if name), None)
    if not worst_by and metrics and shown not in metrics:
        shown = metrics[0]
    comparisons = [
        find_changed(compare_files(files[0], other, metrics, shown, lower, how, worst), files[0], other)
        for other in (files[1:] if compare else ())
    ]
    for comparison in comparisons:
        _check_questions(comparison, complain)
    return Report(
        files=tuple(_file_report(file, metrics, shown, lower, how, scorer) for file in files),
        comparisons=tuple(comparisons),
        resampling=how,
    )


def _resolved(metrics: Sequence[str], files: Sequence[Tally]) -> list[str]:
    """Return the names of scores, with that of the score that says which questions were answered."""
    own = any("answered" in file.names() for file in files)
    known = any(NO_ANSWER in file.names() for file in files)
    return [NO_ANSWER if name == "answered" and known and not own else name for name in metrics]


def _check_common(files: Sequence[Tally]) -> None:
    for other in files[1:]:
        if not set(files[0].values) & set(other.values):
            one, two = (", ".join(file.values) or "none" for file in (files[0], other))
            raise ConfigurationError(
                f"{files[0].path} and {other.path} have no scores in common: the first has {one}; the second has {two}"
                f"{_why_none(files[0], other)}"
            )


def _why_none(file: Tally, other: Tally) -> str:
    for name in file.values:
        skipped, failed = other.missing(name)
        if skipped or failed:
            [(reason, _)] = (failed or skipped).most_common(1)
            return f" ({name}: {failed.total()} failed, {skipped.total()} skipped: {reason})"
    return ""


def _check_questions(comparison: Comparison, complain: Callable[[str], None] | None) -> None:
    """Say how many ids stand for other questions: rows without ids are named by their numbers."""
    if not comparison.different:
        return
    paths = f"{comparison.before_path} and {comparison.after_path}"
    if not comparison.common:
        raise ConfigurationError(
            f"{paths} have {counted(comparison.different, 'id')} in common, and every one stands for another question"
            " in each: nothing can be compared. Rows without an id are named by their number: give them ids"
        )
    if complain:
        complain(
            f"{paths}: {comparison.different} of {comparison.different + comparison.common} common ids stand for"
            " another question in each, and are not compared"
        )


def _file_report(
    file: Tally,
    metrics: Sequence[str],
    worst_by: str | None,
    lower: Sequence[str],
    how: Resampling,
    scorer: BertScore | None,
) -> FileReport:
    names = [name for name in file.names() if not metrics or name in metrics]
    rows = tuple(_score_row(file, name, lower, how) for name in names)
    answered = next((row for row in rows if row.name == NO_ANSWER), None)
    return FileReport(
        name=file.name,
        path=clean_text(file.path),
        records=file.records,
        questions=len(file.ids),
        runs=file.runs,
        bad=file.bad,
        errors=dict(file.errors.most_common()),
        scores=rows,
        answered=answered and answered.model_copy(update={"name": "answered"}),
        ranks=rank_table(file.ranks, file.unranked),
        documents=_documents(file, [name for name in names if name in file.values]),
        likeness=likeness(file, how, scorer) if file.runs > 1 else (),
        worst_by=worst_by,
        worst=tuple(show_turn(record, worst_by) for record in file.worst(worst_by)) if worst_by else (),
    )


def _score_row(file: Tally, name: str, lower: Sequence[str], how: Resampling) -> ScoreRow:
    values = file.values.get(name)
    metric = values.metric if values else None
    definition = definition_of(name, metric)
    skipped, failed = file.missing(name)
    repeats = None
    if values and file.runs > 1:
        repeats = variation(values.values, file.questions[values.rows], how)
    return ScoreRow(
        name=name,
        direction=direction_of(name, metric, lower),
        unit=definition.unit if definition else "",
        bounded=definition.high == 1 if definition else _looks_bounded(values),
        spread=_spread(values, file, how) if values else None,
        skipped=_missing(skipped),
        failed=_missing(failed),
        labelled=values.labelled if values else 0,
        passed=values.passed if values else None,
        sampled=bool(values and values.sampled),
        makers=tuple(map(words_of, values.makers)) if values and len(values.makers) > 1 else (),
        repeats=repeats,
    )


def _looks_bounded(values: Values | None) -> bool:
    return values is not None and bool(((values.values >= 0) & (values.values <= 1)).all())


def _spread(values: Values, file: Tally, how: Resampling) -> Spread:
    return spread(values.values, values.weights, file.questions[values.rows], how)


def _missing(reasons: Counter[str]) -> Missing:
    return Missing(count=reasons.total(), reasons=dict(reasons.most_common(_MOST_REASONS)))


def rank_table(ranks: Counter[int | None], failed: int = 0) -> Ranks | None:
    """Return the rank table; None where no target is known.

    Args:
        ranks: rank → how many turns, None for "not among the passages".
        failed: turns that failed before anything was retrieved.
    """
    count = ranks.total()
    if not count:
        return None
    found = {rank: ranks[rank] for rank in sorted(rank for rank in ranks if rank is not None)}
    matched = sum(found.values())
    return Ranks(
        count=count,
        counts=found,
        missed=count - matched,
        match=matched / count,
        misses=(count - matched) / count,
        mrr=sum(number / rank for rank, number in found.items()) / count,
        hits={k: sum(number for rank, number in found.items() if rank <= k) / count for k in _HITS},
        failed=failed,
    )


def _documents(file: Tally, names: Sequence[str]) -> tuple[DocumentRow, ...]:
    """Per source document the means, in the order of the file."""
    import numpy as np

    if not file.documents:
        return ()
    owners, number = file.document_of, len(file.documents)
    counts = np.bincount(owners[owners >= 0], minlength=number)
    means: list[dict[str, float]] = [{} for _ in range(number)]
    for name in names:
        values = file.values[name]
        mine = owners[values.rows]
        here = mine >= 0
        weight = np.bincount(mine[here], values.weights[here], number)
        total = np.bincount(mine[here], (values.weights * values.values)[here], number)
        for index in np.flatnonzero(weight).tolist():
            means[index][name] = float(total[index] / weight[index])
    return tuple(
        DocumentRow(document=document, records=int(counts[index]), means=means[index])
        for document, index in file.documents.items()
    )
