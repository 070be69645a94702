"""From files of records to a report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.offline.report.bertscore import BertScore
from rageval_hooks.offline.report.comparison import Comparison, compare_files
from rageval_hooks.offline.report.definitions import define_score, direction_of, group_of
from rageval_hooks.offline.report.derived import ANSWERED, HITS, NO_ANSWER
from rageval_hooks.offline.report.details import ShownTurn, show_turn
from rageval_hooks.offline.report.model import DocumentRow, FileReport, Missing, Ranks, Report, ScoreRow
from rageval_hooks.offline.report.score_values import ScoreValues, describe_maker
from rageval_hooks.offline.report.similarity import compare_answers
from rageval_hooks.offline.report.statistics import Resampling, Spread, spread, variation
from rageval_hooks.offline.report.tally import FileTally, Watch, check_names, read_tallies
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.runtime.selecting import common, not_none, without
from rageval_hooks.text.wording import counted

__all__ = ["Analysis", "ReportOptions", "analyze", "build_report", "rank_table"]

# The most frequent reasons explain nearly all skips and failures.
_MOST_REASONS = 5


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A report, with every turn of its files.

    Attributes:
        report: the report.
        tallies: the files that it is about, in the same order.
    """

    report: Report
    tallies: tuple[FileTally, ...]

    def turns(self, index: int) -> Iterator[ShownTurn]:
        """Yield all turns of a file, in its order.

        Args:
            index: the file's position in the report, from 0.
        """
        name, tally = self.report.files[index].worst_by, self.tallies[index]
        return (show_turn(record, tally.derived_scores(record), name) for record in tally.store)


class ReportOptions(TypedDict, total=False):
    """The options of a report; :func:`analyze` explains each."""

    metrics: Sequence[str]
    worst: int
    worst_by: str | None
    compare: bool
    lower: Sequence[str]
    resampling: Resampling | None
    scorer: BertScore | None
    watch: Watch | None
    on_problem: Callable[[str], None] | None
    bounded: Collection[str]


def build_report(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Unpack[ReportOptions]
) -> Report:
    """Read files of records and report on them; see :func:`analyze`, which also keeps the turns."""
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
    on_problem: Callable[[str], None] | None = None,
    bounded: Collection[str] = (),
    privacy: PrivacyPolicy = NO_PRIVACY,
) -> Analysis:
    """Read files of records, each once, and report on them.

    Args:
        paths: the files, or one file; the first is the baseline of the others.
        metrics: scores to report; all by default.
        worst: number of worst turns, and of most changed turns, to show.
        worst_by: the score that orders turns; the one with the highest headline by default.
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
    _check_installed()
    how = resampling or Resampling()
    # A path is a sequence of characters, too.
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    tallies = read_tallies(given, watch=watch, scores={*metrics, *bounded}, privacy=privacy)
    for tally in tallies:
        _check_has_scores(tally)
        _report_bad_rows(tally, on_problem)
    metrics = _resolved(metrics, tallies)
    check_names(metrics, tallies)
    if worst_by:
        check_names([worst_by], tallies)
    ordering = worst_by or _ordering_score(tallies, metrics)
    comparisons = _compare(tallies, metrics, ordering, lower, how, worst, on_problem) if compare else []
    files = [_file_report(tally, metrics, ordering, worst, lower, how, scorer) for tally in tallies]
    report = Report(files=tuple(files), comparisons=tuple(comparisons), resampling=how)
    return Analysis(report=report, tallies=tuple(tallies))


def _check_installed() -> None:
    with requires("scipy", "offline", "a report"):
        import scipy  # noqa: F401


def _check_has_scores(tally: FileTally) -> None:
    if not set(tally.names()) - tally.by_rules:
        raise ConfigurationError(f"{tally.path} has no scores. Add them: rageval-hooks score {tally.path} --output OUT")


def _report_bad_rows(tally: FileTally, on_problem: Callable[[str], None] | None) -> None:
    if on_problem is not None:
        for line in tally.bad_rows:
            on_problem(line)


def _resolved(metrics: Sequence[str], tallies: Sequence[FileTally]) -> list[str]:
    """Return the names of scores; ``no_answer`` is reported as ``answered``, which counts failed questions, too."""
    is_derived = any(ANSWERED in tally.values for tally in tallies)
    return [ANSWERED if name == NO_ANSWER and is_derived else name for name in metrics]


def _ordering_score(tallies: Sequence[FileTally], metrics: Sequence[str]) -> str | None:
    found = next(filter(None, (tally.headline() for tally in tallies)), None)
    # Turns are ordered by a score that the report shows.
    if metrics and found not in metrics:
        return metrics[0]
    return found


# --------------------------------------------------------------------------- comparisons


def _compare(
    tallies: Sequence[FileTally],
    metrics: Sequence[str],
    ordering: str | None,
    lower: Sequence[str],
    how: Resampling,
    most: int,
    on_problem: Callable[[str], None] | None,
) -> list[Comparison]:
    found = []
    for other in tallies[1:]:
        _check_common_scores(tallies[0], other)
        comparison = compare_files(tallies[0], other, metrics, ordering, lower, how, most)
        _check_common_questions(comparison, on_problem)
        found.append(comparison)
    return found


def _check_common_scores(first: FileTally, other: FileTally) -> None:
    by_rules = first.by_rules | other.by_rules
    if first.values.keys() & other.values.keys() - by_rules:
        return
    one, two = (", ".join(without(file.values, by_rules)) or "none" for file in (first, other))
    raise ConfigurationError(
        f"{first.path} and {other.path} have no scores in common: the first has {one}; the second has {two}"
        f"{_why_missing(first, other)}"
    )


def _why_missing(first: FileTally, other: FileTally) -> str:
    # One example is enough: usually all scores are missing for the same reason.
    for name in first.values:
        skipped, failed = other.missing(name)
        if skipped or failed:
            reason = (failed or skipped).most_common(1)[0][0]
            return f" ({name}: {failed.total()} failed, {skipped.total()} skipped: {reason})"
    return ""


def _check_common_questions(comparison: Comparison, on_problem: Callable[[str], None] | None) -> None:
    """Complain about ids that stand for different questions, as row numbers of differently sorted files do."""
    if not comparison.different:
        return
    paths = f"{comparison.before_path} and {comparison.after_path}"
    if not comparison.common:
        raise ConfigurationError(
            f"{paths} have {counted(comparison.different, 'id')} in common, and every one stands for a different"
            " question in each, so nothing can be compared. Rows without an id get their number as the id: give the"
            " rows ids"
        )
    if on_problem:
        on_problem(
            f"{paths}: {comparison.different} of {comparison.different + comparison.common} common ids stand for a"
            " different question in each, and are not compared"
        )


# --------------------------------------------------------------------------- one file


def _file_report(
    file: FileTally,
    metrics: Sequence[str],
    ordering: str | None,
    worst: int,
    lower: Sequence[str],
    how: Resampling,
    scorer: BertScore | None,
) -> FileReport:
    # Without a choice, all scores are reported.
    names = [name for name in file.names() if not metrics or name in metrics]
    worst_turns = [file.store[row] for row in file.worst_rows(ordering, worst, lower)] if ordering else []
    return FileReport(
        name=file.name,
        path=clean_text(file.path),
        records=file.records,
        questions=len(file.ids),
        runs=file.runs,
        bad=file.bad,
        errors=dict(file.errors.most_common()),
        failed_questions=len(file.failed_ids),
        scores=tuple(_score_row(file, name, lower, how) for name in names),
        ranks=rank_table(file.ranks, file.unranked),
        unranked=file.unranked,
        unanswerable=file.answered.unanswerable,
        documents=_documents(file, common(names, file.values)),
        similarity=compare_answers(file, how, scorer) if file.runs > 1 else (),
        worst_by=ordering,
        worst=tuple(show_turn(turn, file.derived_scores(turn), ordering) for turn in worst_turns),
    )


def _score_row(file: FileTally, name: str, lower: Sequence[str], how: Resampling) -> ScoreRow:
    values = file.values.get(name)
    metric = values.metric if values else None
    definition = define_score(name, metric)
    skipped, failed = file.missing(name)
    row = ScoreRow(
        name=name,
        direction=direction_of(name, metric, lower),
        unit=definition.unit,
        low=definition.low,
        high=definition.high,
        binary=definition.binary,
        group=group_of(name, metric),
        headline=definition.headline,
        skipped=_missing(skipped),
        failed=_missing(failed),
    )
    if values is None:
        return row
    questions = file.questions[values.rows]
    found = spread(values.values, values.weights, questions, how, is_share=definition.binary)
    return row.model_copy(
        update={
            "spread": found,
            "high": _bound(definition, values),
            "binary": definition.binary or _looks_binary(definition, found),
            "labelled": values.labelled,
            "passed": values.passed,
            "threshold": _default_threshold(definition, values),
            "sampled": values.sampled,
            "makers": _makers(values),
            "repeats": variation(values.values, questions, how) if file.runs > 1 else None,
        }
    )


def _makers(values: ScoreValues) -> tuple[str, ...]:
    """Return the makers in words if there are several; a failed turn's `answered` states none."""
    stated = [maker for maker in values.makers if maker != ("", "")]
    return tuple(map(describe_maker, stated)) if len(stated) > 1 else ()


def _bound(definition: ScoreDefinition, values: ScoreValues) -> float | None:
    """Return the largest possible value; if no metric defines it, 1 if all values are between 0 and 1."""
    if definition.high is not None or definition.unit:
        return definition.high
    within = (values.values >= 0) & (values.values <= 1)
    return 1.0 if within.all() else None


def _looks_binary(definition: ScoreDefinition, found: Spread) -> bool:
    """Return True if a score that no metric defines has only the values 0 and 1."""
    # A single 0 or 1 may be any number.
    return not definition.description and found.binary and found.count > 1


def _default_threshold(definition: ScoreDefinition, values: ScoreValues) -> float | None:
    """Return the value from which the score passes by default, if one was measured for a model that made it."""
    models = {model for _, model in values.makers}
    for threshold in definition.thresholds:
        if threshold.target == "turn" and models & set(threshold.models):
            return threshold.value
    return None


def _missing(reasons: Counter[str]) -> Missing:
    return Missing(count=reasons.total(), reasons=dict(reasons.most_common(_MOST_REASONS)))


def rank_table(ranks: Counter[int | None], unknown: int = 0) -> Ranks | None:
    """Return the rank table, or None if no rank is known.

    Args:
        ranks: rank → number of turns; None for a target that was missed.
        unknown: turns with a target whose rank is unknown.
    """
    count = ranks.total()
    if not count:
        return None
    # Counter sorts its keys only without None, which stands for a miss.
    known = sorted(not_none(ranks))
    found = {rank: ranks[rank] for rank in known}
    matched = sum(found.values())
    return Ranks(
        count=count,
        counts=found,
        missed=count - matched,
        match=matched / count,
        misses=(count - matched) / count,
        mrr=sum(number / rank for rank, number in found.items()) / count,
        hits={k: _within(found, k) / count for k in HITS},
        unknown=unknown,
    )


def _within(found: Mapping[int, int], k: int) -> int:
    """Return the number of turns with a rank of at most k."""
    return sum(number for rank, number in found.items() if rank <= k)


def _documents(file: FileTally, names: Sequence[str]) -> tuple[DocumentRow, ...]:
    """Return the means per source document, in the order of the file."""
    import numpy as np

    if not file.documents:
        return ()
    owners, number = file.document_numbers, len(file.documents)
    counts = np.bincount(owners[owners >= 0], minlength=number)
    means: list[dict[str, float]] = [{} for _ in range(number)]
    for name in names:
        values = file.values[name]
        owner = owners[values.rows]
        # Records without a document belong to none of the rows.
        known = owner >= 0
        weight = np.bincount(owner[known], values.weights[known], number)
        total = np.bincount(owner[known], (values.weights * values.values)[known], number)
        for index in np.flatnonzero(weight).tolist():
            means[index][name] = float(total[index] / weight[index])
    return tuple(
        DocumentRow(document=document, records=int(counts[index]), means=means[index])
        for document, index in file.documents.items()
    )
