"""From files of records to a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import ConfigurationError, UnknownNameError, requires
from rageval_hooks.offline.report.compare import compare_files, describe_maker
from rageval_hooks.offline.report.definitions import (
    ANSWERED,
    HITS,
    NO_ANSWER,
    VERDICTS,
    define_score,
    direction_of,
    group_of,
)
from rageval_hooks.offline.report.model import DocumentRow, FileReport, Missing, Ranks, Report, ScoreSummary
from rageval_hooks.offline.report.scored_file import ScoredFile, Watch, read_files
from rageval_hooks.offline.report.similarity import BertScore, compare_answers
from rageval_hooks.offline.report.statistics import Resampling, spread, variation
from rageval_hooks.offline.report.turns import ShownTurn, show_turn
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.text.wording import counted

# The most frequent reasons explain nearly all skips and failures.
_MOST_REASONS = 5


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A report, with every turn of its files.

    Attributes:
        report: the report.
        files: what it is about, in the same order.
    """

    report: Report
    files: tuple[ScoredFile, ...]

    def turns(self, index: int) -> Iterator[ShownTurn]:
        """Yield all turns of a file, in its order.

        Args:
            index: the file's position in the report, from 0.
        """
        file = self.files[index]
        yield from _shown(file, range(file.records), self.report.files[index].worst_by)


def build_report(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any) -> Report:
    """Read files of records and report on them. Options are those of :func:`analyze`, which also keeps the turns."""
    return analyze(paths, **options).report


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
) -> Analysis:
    """Read files of records, each once, and report on them.

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

    Raises:
        ConfigurationError: a file is missing, empty or has no scores; the files have no scores in common, or only ids
            that stand for different questions.
        MissingDependencyError: scipy is not installed.
        UnknownNameError: no file has a score of that name.
    """
    with requires("scipy", "offline", "a report"):
        import scipy  # noqa: F401
    how = resampling or Resampling()
    # A path is a sequence of characters, too.
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files = read_files(given, watch=watch, scores={*metrics, *bounded}, privacy=privacy)
    for file in files:
        if file.unscored.issuperset(file.names()):
            raise ConfigurationError(
                f"{file.path} has no scores. Add them: rageval-hooks score {file.path} --output OUT"
            )
        for line in file.bad_rows:
            on_problem(line)
    # `answered` is `no_answer` with failed questions counted, too.
    is_derived = any(ANSWERED in file.values for file in files)
    metrics = [ANSWERED if name == NO_ANSWER and is_derived else name for name in metrics]
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
        _check_common_scores(files[0], other)
        found = compare_files(files[0], other, metrics, ordering, lower, how, worst)
        comparisons.append(found)
        # Row numbers of differently sorted files are such ids.
        paths_of = f"{found.before_path} and {found.after_path}"
        if found.different and not found.common:
            raise ConfigurationError(
                f"{paths_of} have {counted(found.different, 'id')} in common, and every one stands for a different"
                " question in each, so nothing can be compared. Rows without an id get their number as the id: give"
                " the rows ids"
            )
        if found.different:
            on_problem(
                f"{paths_of}: {found.different} of {found.different + found.common} common ids stand for a different"
                " question in each, and are not compared"
            )
    reports = []
    for file in files:
        # Without a choice, all scores are reported.
        names = [name for name in file.names() if not metrics or name in metrics]
        reports.append(
            FileReport(
                name=file.name,
                path=clean_text(file.path),
                records=file.records,
                questions=len(file.ids),
                runs=file.runs,
                verdicts={label: file.verdicts[label] for label in VERDICTS} if file.verdicts else {},
                bad=file.bad,
                errors=dict(file.errors.most_common()),
                failed_questions=file.failed_questions(),
                scores=tuple(_summary(file, name, lower, how) for name in names),
                ranks=_ranks(file),
                unranked=file.unranked,
                unanswerable=file.unanswerable,
                documents=_documents(file, names),
                similarity=compare_answers(file, how, scorer) if file.runs > 1 else (),
                worst_by=ordering,
                worst=tuple(_shown(file, file.worst_rows(ordering, worst, lower), ordering) if ordering else ()),
            )
        )
    report = Report(files=tuple(reports), comparisons=tuple(comparisons), resampling=how)
    return Analysis(report=report, files=tuple(files))


def _check_common_scores(first: ScoredFile, other: ScoredFile) -> None:
    unscored = first.unscored | other.unscored
    if first.values.keys() & other.values.keys() - unscored:
        return
    one, two = (", ".join(name for name in file.values if name not in unscored) or "none" for file in (first, other))
    why = ""
    # One example is enough: usually all scores are missing for the same reason.
    for name in first.values:
        skipped, failed = other.missing(name)
        if skipped or failed:
            [(reason, _)] = (failed or skipped).most_common(1)
            why = f" ({name}: {failed.total()} failed, {skipped.total()} skipped: {reason})"
            break
    raise ConfigurationError(
        f"{first.path} and {other.path} have no scores in common: the first has {one}; the second has {two}{why}"
    )


def _shown(file: ScoredFile, rows: Collection[int], by: str | None) -> Iterator[ShownTurn]:
    for record in map(file.record, rows):
        yield show_turn(record, file.derived_scores(record), by)


def _summary(file: ScoredFile, name: str, lower: Sequence[str], how: Resampling) -> ScoreSummary:
    values = file.values.get(name)
    metric = values.metric if values else None
    definition = define_score(name, metric)
    skipped, failed = (
        Missing(count=reasons.total(), reasons=dict(reasons.most_common(_MOST_REASONS)))
        for reasons in file.missing(name)
    )
    summary = ScoreSummary(
        name=name,
        direction=direction_of(name, metric, lower),
        unit=definition.unit,
        low=definition.low,
        high=definition.high,
        binary=definition.binary,
        group=group_of(name, metric),
        headline=definition.headline,
        skipped=skipped,
        failed=failed,
    )
    if values is None:
        return summary
    found = spread(values.values, values.weights, values.questions, how, is_share=definition.binary)
    fields: dict[str, Any] = {"spread": found, "labelled": values.labelled, "passed": values.passed}
    # What no metric defines is known by its values. A single 0 or 1 may be any number.
    if not definition.description and found.binary and found.count > 1:
        fields["binary"] = True
    if definition.high is None and not definition.unit and 0 <= found.minimum <= found.maximum <= 1:
        fields["high"] = 1.0
    # A failed turn's `answered` states no maker.
    makers = [maker for maker in values.makers if maker != ("", "")]
    # The default threshold, if one was measured for a model that made the score.
    models = {model for _, model in makers}
    thresholds = (t.value for t in definition.thresholds if t.target == "turn" and models & set(t.models))
    fields |= {
        "threshold": next(thresholds, None),
        "sampled": values.sampled,
        "makers": tuple(map(describe_maker, makers)) if len(makers) > 1 else (),
        "repeats": variation(values.values, values.questions, how) if file.runs > 1 else None,
    }
    return summary.model_copy(update=fields)


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
    import numpy as np

    means: list[dict[str, float]] = [{} for _ in file.documents]
    for name in names:
        if (values := file.values.get(name)) is None:
            continue
        owners = file.document_numbers[values.rows]
        # Records without a document belong to none of the rows.
        known = owners >= 0
        weights = np.bincount(owners[known], values.weights[known], len(means))
        totals = np.bincount(owners[known], (values.weights * values.values)[known], len(means))
        for owner in np.flatnonzero(weights).tolist():
            means[owner][name] = float(totals[owner] / weights[owner])
    return tuple(
        DocumentRow(document=document, records=int((file.document_numbers == owner).sum()), means=means[owner])
        for document, owner in file.documents.items()
    )
