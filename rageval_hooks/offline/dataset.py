"""Scoring rows in memory: data frames, Arrow tables, lists and files in, a pandas data frame out."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from rageval_hooks.errors import ConfigurationError, TurnError, requires
from rageval_hooks.offline.jobs.budget import Budget
from rageval_hooks.offline.jobs.journal import Journal
from rageval_hooks.offline.jobs.running import Advance
from rageval_hooks.offline.records.columns import ColumnMap, check_columns
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import explain, record_from_row
from rageval_hooks.offline.scoring.run import ScoringRun, records_in
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import NO_PRIVACY
from rageval_hooks.score import Evaluation, Failed, Score, is_about_turn
from rageval_hooks.text.formatting import flat, shorten, show_value
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Turn
from rageval_hooks.turn_html import html_table

if TYPE_CHECKING:
    import pandas

BadRows = Literal["raise", "keep"]

# Rows in which a missing column is looked for.
_SAMPLE = 100
_SHOWN = 200
_SHOWN_PROBLEMS = 3
_WORST = 10
_QUESTION = 120
# Scores that sum up a turn, the preferred one first.
_SUMMARIES = ("verdict", "groundedness", "trace.adherence", "hhem", "reference", "answer_relevance")


def score_rows(
    data: object,
    pipeline: Pipeline,
    *,
    required: Sequence[str],
    mapping: Mapping[str, str] | None,
    bad_rows: BadRows,
    concurrency: int,
    workers: int | None,
    max_calls: int | None,
    max_cost: float | None,
    progress: bool,
) -> pandas.DataFrame:
    """Return the scores of a dataset as a data frame; see :func:`rageval_hooks.score_dataset`.

    Raises:
        TurnError: a column is missing, or rows cannot be used.
        ConfigurationError: an option is wrong.
        JudgeUnavailableError: the judge does not work.
    """
    if bad_rows not in ("raise", "keep"):
        raise ConfigurationError(f"bad_rows is {bad_rows!r}: it must be 'raise' or 'keep'")
    dataset = read_dataset(data, required, mapping)
    if not dataset.records:
        raise TurnError("there are no rows")
    problems = dataset.problems
    # If no row can be used, the columns have other names than the user thinks.
    if problems and (bad_rows == "raise" or len(problems) == len(dataset.records)):
        shown = [f"row {position}: {reason}" for position, reason in problems.items()][:_SHOWN_PROBLEMS]
        more = " …" if len(problems) > len(shown) else ""
        raise TurnError(
            f"{len(problems)} of {counted(len(dataset.records), 'row')} cannot be used: {'; '.join(shown)}{more}. "
            "bad_rows='keep' leaves their scores empty"
        )
    usable = [record for record in dataset.records if record is not None]
    # The results stay in memory, with the texts of the user.
    journal = Journal(None, {})
    run = ScoringRun(
        pipeline,
        journal,
        Budget(max_calls, max_cost),
        concurrency=concurrency,
        workers=workers,
        details="all",
        privacy=NO_PRIVACY,
    )
    with _bar(len(usable), progress) as advance:
        _run_apart(run, usable, advance)
    scored = records_in(journal)
    # Rows that cannot be used keep their places, so that the frame has one row per row of the user.
    dataset.records = [None if record is None else next(scored) for record in dataset.records]
    return _scored_frame(dataset)


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Advance]:
    """Show a progress bar, in a notebook or a terminal, if tqdm is installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda _: None
        return
    with tqdm(total=total, desc="scoring", unit="row") as bar:
        yield lambda steps: bar.update(steps)


def _run_apart(run: ScoringRun, records: Sequence[Record], advance: Advance) -> None:
    """Run in an event loop on another thread: a notebook runs one on this thread already."""
    loop = asyncio.new_event_loop()
    work = loop.create_task(run.run(enumerate(records), advance))

    def main() -> None:
        # An error is raised on the caller's thread, by result().
        with suppress(BaseException):
            loop.run_until_complete(work)
        loop.close()

    thread = threading.Thread(target=main, name="rageval-score-dataset", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        # The user interrupts the cell of a notebook: without this the judge would go on being asked.
        loop.call_soon_threadsafe(work.cancel)
        thread.join()
        raise
    work.result()


# --------------------------------------------------------------------------- rows in


@dataclass
class Dataset:
    """The rows of a user.

    Attributes:
        records: a record per row, in the order of the rows; None for a row that cannot be used.
        problems: why rows cannot be used, by position.
        frame: the rows as a data frame if they came as a table.
    """

    records: list[Record | None] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    frame: pandas.DataFrame | None = None

    def add(self, item: Record | str) -> None:
        """Add a row: its record, or why it has none."""
        if isinstance(item, str):
            self.problems[len(self.records)] = item
        self.records.append(None if isinstance(item, str) else item)


def read_dataset(data: object, required: Sequence[str], mapping: Mapping[str, str] | None) -> Dataset:
    """Return the records of what a user passed.

    Args:
        data: a path, a data frame, an object with an Arrow stream, or an iterable of mappings and turns.
        required: fields that must have a column.
        mapping: field → column, for columns with other names.

    Raises:
        TurnError: a column is missing, or the data are of another type.
        ConfigurationError: a file's format or a field of the mapping is not known.
    """
    columns = ColumnMap(mapping) if mapping else None
    dataset = Dataset()
    if isinstance(data, (str, os.PathLike)):
        for line, item in read_items(Path(data), required, mapping=columns):
            dataset.add(item if isinstance(item, Record) else f"line {line}: {item.reason}")
        return dataset
    rows: list[Any]
    if isinstance(data, import_pandas().DataFrame):
        dataset.frame = data
    elif hasattr(data, "__arrow_c_stream__"):
        with requires("pyarrow", "offline", "tables of other libraries"):
            import pyarrow
        # Without the types of Arrow, whole numbers with missing values would become floats, and dates objects.
        dataset.frame = pyarrow.table(data).to_pandas(types_mapper=import_pandas().ArrowDtype)
    if dataset.frame is not None:
        # Lists come out of Parquet as NumPy arrays.
        rows = [
            {str(name): value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
            for row in dataset.frame.to_dict("records")
        ]
    elif isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise TurnError(
            f"data is a {type(data).__name__}: pass a data frame, a list of dicts or turns, or the path of a file"
        )
    else:
        rows = list(data)
    # Our own rows have their fields under our names, so they need no columns.
    sample = [row for row in rows[:_SAMPLE] if isinstance(row, Mapping) and not _is_ours(row)]
    check_columns("", sample, required, columns, show="mapping={}".format)
    for number, row in enumerate(rows, 1):
        dataset.add(_record(row, number, required, columns))
    return dataset


def turn_of(value: object, required: Sequence[str]) -> Turn:
    """Return the turn that a user passed as a turn or as a mapping.

    Args:
        value: what the user passed.
        required: fields that a mapping must have.

    Raises:
        TurnError: it is neither, or the mapping lacks a field; the message says what is accepted.
    """
    if isinstance(value, Turn):
        return value
    if not isinstance(value, Mapping):
        raise TurnError(f"the turn is a {type(value).__name__}: pass a rageval_hooks.Turn or a dict")
    found = _record(value, 1, required, None)
    if isinstance(found, str):
        raise TurnError(found)
    return found.turn


def _is_ours(row: Mapping[str, Any]) -> bool:
    """Return True for the data of a record, an evaluation or a turn of this package."""
    return holds_turn(row) or {"query", "response", "retrieval_queries"} <= row.keys()


def _record(row: object, number: int, required: Sequence[str], columns: ColumnMap | None) -> Record | str:
    """Return the record of a row, or why it cannot be used."""
    try:
        if isinstance(row, Record):
            return row
        if isinstance(row, Evaluation):
            row = row.turn
        if isinstance(row, Mapping) and holds_turn(row):
            return Record.model_validate({"id": str(number), **row})
        if isinstance(row, Mapping) and _is_ours(row):
            row = Turn.model_validate(row)
        if isinstance(row, Turn):
            return Record(id=row.id or str(number), turn=row)
        if isinstance(row, Mapping):
            return record_from_row(row, str(number), required, columns)
        return f"it is a {type(row).__name__}, neither a dict nor a turn"
    except (ValidationError, TurnError) as error:
        return shorten(explain(error), _SHOWN)


def import_pandas() -> Any:
    """Return pandas.

    Raises:
        MissingDependencyError: it is not installed.
    """
    with requires("pandas", "notebook", "data frames"):
        import pandas
    return pandas


# --------------------------------------------------------------------------- a frame out


def _scored_frame(dataset: Dataset) -> pandas.DataFrame:
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
    }
    # A test set without reference answers needs no empty column for them.
    if any(turn is not None and turn.reference is not None for turn in turns):
        columns["reference"] = [turn and turn.reference for turn in turns]
    return columns


def _score_columns(records: Sequence[Record | None]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the columns of scores, labels and reasons, and what was skipped everywhere for one reason."""
    empty = [None] * len(records)
    values: dict[str, list[Any]] = defaultdict(lambda: [float("nan")] * len(records))
    labels: dict[str, list[Any]] = defaultdict(empty.copy)
    reasons: dict[str, list[Any]] = defaultdict(empty.copy)
    for position, record in enumerate(records):
        for result in filter(is_about_turn, record.results if record is not None else ()):
            if isinstance(result, Score):
                values[result.name][position] = result.value
            else:
                reasons[result.name][position] = f"{result.status}: {result.reason}"
            # A skipped verdict has a label, too: "declined".
            if not isinstance(result, Failed) and result.label is not None:
                labels[result.name][position] = result.label
    usable = [position for position, record in enumerate(records) if record is not None]
    skipped: dict[str, str] = {}
    for name, found in list(reasons.items()):
        # A column with the same reason in every row would only make the table wider.
        reason, *others = {found[position] for position in usable}
        if reason is not None and not others and reason.startswith("skipped: "):
            skipped[name] = reason
            del reasons[name]
    columns = dict(values)
    columns |= {f"{name}.label": found for name, found in labels.items()}
    columns |= {f"{name}.reason": found for name, found in reasons.items()}
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
    shown = ""
    for number, evaluation in enumerate(worst):
        question = escape(shorten(flat(evaluation.turn.query), _QUESTION))
        body = f'<div style="margin:.3em 0 .8em 1.2em">{evaluation._repr_html_()}</div>'
        state = "" if number else " open"
        shown += f'<details{state} style="margin:.3em 0"><summary>{question}</summary>{body}</details>'
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
