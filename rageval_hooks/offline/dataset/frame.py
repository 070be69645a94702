"""The scores of a dataset as a pandas data frame that shows the worst answers first in a notebook."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rageval_hooks.offline.dataset.rows import Dataset, import_pandas
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Evaluation, Failed, Score, is_about_turn
from rageval_hooks.text.formatting import flat, shorten, show_value
from rageval_hooks.turn_html import html_table

if TYPE_CHECKING:
    import pandas


_WORST = 10
_QUESTION = 120
# Scores that sum up a turn, the preferred one first.
_SUMMARIES = ("verdict", "groundedness", "trace.adherence", "hhem", "reference", "answer_relevance")
_SKIPPED = "skipped: "


def scored_frame(dataset: Dataset) -> pandas.DataFrame:
    """Return the rows with their scores.

    A score is a column with its name; next to the values there are ``NAME.label`` for labels, and ``NAME.reason`` for
    what was skipped or failed in some of the rows. What was skipped in every row for one reason is in
    ``frame.attrs["skipped"]`` instead. Rows that could not be used have a reason in ``error``.
    """
    pandas = import_pandas()
    records = dataset.records
    columns, skipped = _score_columns(records)
    if dataset.problems:
        columns["error"] = [dataset.problems.get(position) for position in range(len(records))]
    frame = pandas.DataFrame(_turn_columns(records)) if dataset.frame is None else dataset.frame.copy()
    # All at once: adding a hundred columns one by one would fragment the frame.
    kept = frame.drop(columns=[name for name in columns if name in frame.columns])
    made = _frame_class()(pandas.concat([kept, pandas.DataFrame(columns, index=frame.index)], axis=1))
    made.attrs["skipped"] = skipped
    made.evaluations = [
        None if record is None else Evaluation(turn=record.turn, results=record.results) for record in records
    ]
    return made


@cache
def _frame_class() -> Any:
    """Return the class of scored frames; pandas is imported only when it is needed."""
    pandas = import_pandas()

    class ScoredFrame(pandas.DataFrame):  # type: ignore[misc, name-defined]
        """A data frame with the evaluations of its rows.

        Attributes:
            evaluations: an evaluation per row; None for a row that could not be used.
        """

        # pandas would take a list for a new column otherwise.
        _metadata = ("evaluations",)

        @property
        def _constructor(self) -> Any:
            # A part of the frame, or a copy in another order, is a plain data frame: its rows are others.
            return pandas.DataFrame

        def _repr_html_(self) -> str:
            found = [evaluation for evaluation in getattr(self, "evaluations", ()) if evaluation is not None]
            table: str = pandas.DataFrame(self)._repr_html_() or ""
            return _page(found, table) if found else table

    return ScoredFrame


def _turn_columns(records: Sequence[Record | None]) -> dict[str, list[Any]]:
    turns = [None if record is None else record.turn for record in records]
    columns: dict[str, list[Any]] = {
        "id": [record and record.id for record in records],
        "query": [turn and turn.query for turn in turns],
        "response": [turn and turn.response for turn in turns],
        "passages": [turn and [passage.text for passage in turn.passages] for turn in turns],
        "reference": [turn and turn.reference for turn in turns],
    }
    # A test set without reference answers needs no empty column for them.
    if columns["reference"].count(None) == len(records):
        del columns["reference"]
    return columns


def _score_columns(records: Sequence[Record | None]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the columns of scores, labels and reasons, and what was skipped everywhere for one reason."""
    values: dict[str, dict[int, Any]] = defaultdict(dict)
    labels: dict[str, dict[int, Any]] = defaultdict(dict)
    reasons: dict[str, dict[int, Any]] = defaultdict(dict)
    for position, record in enumerate(records):
        for result in filter(is_about_turn, record.results if record is not None else ()):
            if isinstance(result, Score):
                values[result.name][position] = result.value
            else:
                reasons[result.name][position] = f"{result.status}: {result.reason}"
            # A skipped verdict has a label, too: "declined".
            if not isinstance(result, Failed) and result.label is not None:
                labels[result.name][position] = result.label
    usable = sum(record is not None for record in records)
    skipped: dict[str, str] = {}
    for name, found in list(reasons.items()):
        reason, *others = set(found.values())
        # A column with the same reason in every row would only make the table wider.
        if len(found) == usable and not others and reason.startswith(_SKIPPED) and name not in values:
            skipped[name] = reason
            del reasons[name]

    def column(found: Mapping[int, Any], empty: Any) -> list[Any]:
        return [found.get(position, empty) for position in range(len(records))]

    columns = {name: column(found, float("nan")) for name, found in values.items()}
    columns |= {f"{name}.label": column(found, None) for name, found in labels.items()}
    columns |= {f"{name}.reason": column(found, None) for name, found in reasons.items()}
    return columns, skipped


def _page(evaluations: Sequence[Evaluation], table: str) -> str:
    """Return a scored set as HTML: the means, then the worst answers, then the whole set as a table."""
    scores: dict[str, list[Score]] = {}
    for evaluation in evaluations:
        for score in evaluation.turn_scores():
            scores.setdefault(score.name, []).append(score)
    means = html_table(
        ("score", "mean", "pass", "n"), [_mean_row(name, found) for name, found in scores.items()], numbers={1, 2, 3}
    )
    worst = sorted(evaluations, key=_badness, reverse=True)[:_WORST]
    shown = "".join(_answer(evaluation, is_open=number == 0) for number, evaluation in enumerate(worst))
    heading = f"The worst {len(worst)} of {len(evaluations)} answers" if len(evaluations) > 1 else "The answer"
    return f"{means}<h4>{heading}</h4>{shown}<h4>All rows</h4>{table}"


def _badness(evaluation: Evaluation) -> tuple[float, float]:
    """Return how bad an answer is: the share of labels that fail, then its summarizing score."""
    labels = [score.label for score in evaluation.turn_scores() if score.label in ("pass", "fail")]
    failed = labels.count("fail") / len(labels) if labels else 0.0
    summary = next(filter(None, map(evaluation.score, _SUMMARIES)), None)
    # The lowest value is the worst.
    return failed, 0.0 if summary is None else -summary.value


def _mean_row(name: str, scores: Sequence[Score]) -> tuple[str, str, str, str]:
    mean = fmean(score.value for score in scores)
    labels = [score.label for score in scores if score.label in ("pass", "fail")]
    passed = f"{labels.count('pass') / len(labels):.0%}" if labels else ""
    arrow = " ↓" if scores[0].direction == "lower" else ""
    return f"{escape(name)}{arrow}", show_value(mean), passed, str(len(scores))


def _answer(evaluation: Evaluation, *, is_open: bool) -> str:
    question = escape(shorten(flat(evaluation.turn.query), _QUESTION))
    state = " open" if is_open else ""
    body = f'<div style="margin:.3em 0 .8em 1.2em">{evaluation._repr_html_()}</div>'
    return f'<details{state} style="margin:.3em 0"><summary>{question}</summary>{body}</details>'
