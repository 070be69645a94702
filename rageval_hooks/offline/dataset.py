"""Scoring rows in memory: data frames, Arrow tables, lists and files in, a pandas data frame out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from html import escape
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError, TurnError, requires
from rageval_hooks.metrics.base import AnyMetric, Metric
from rageval_hooks.offline.command_judge import Budget
from rageval_hooks.offline.records.columns import ColumnMap, find_columns
from rageval_hooks.offline.records.reading import ReadOptions, read_items
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import explain, record_from_row
from rageval_hooks.offline.records.writing import cells
from rageval_hooks.offline.running import Advance
from rageval_hooks.offline.scoring.run import ScoringRun
from rageval_hooks.offline.scoring.score_file import required_fields
from rageval_hooks.offline.scoring.workers import Details
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.score import Evaluation, Result, Score, shown_name
from rageval_hooks.settings import UNSAMPLED
from rageval_hooks.text.formatting import flat, shorten, show_value
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Turn
from rageval_hooks.turn_html import html_table

if TYPE_CHECKING:
    import pandas

    from rageval_hooks.settings import ModelSettings

BadRows = Literal["raise", "keep"]

# Rows in which a missing column is looked for.
_SAMPLE = 100
_SHOWN = 200
_SHOWN_PROBLEMS = 3
_WORST = 10
_QUESTION = 120
# Scores that sum up a turn, the preferred one first.
_SUMMARIES = ("verdict", "faithfulness", "groundedness", "trace.adherence", "hhem", "answer_relevance")

_RESULTS: Final = "rageval_results"
_ERROR: Final = "rageval_error"
_AS_JSON: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])


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
    items, frame = read_dataset(data, required, mapping)
    if not items:
        raise TurnError("there are no rows")
    problems = [f"row {position}: {item}" for position, item in enumerate(items) if isinstance(item, str)]
    # If no row can be used, the columns have other names than the user thinks.
    if problems and (bad_rows == "raise" or len(problems) == len(items)):
        more = " …" if len(problems) > _SHOWN_PROBLEMS else ""
        raise TurnError(
            f"{len(problems)} of {counted(len(items), 'row')} cannot be used: "
            f"{'; '.join(problems[:_SHOWN_PROBLEMS])}{more}. bad_rows='keep' leaves their scores empty"
        )
    run = ScoringRun(pipeline, budget=Budget(max_calls, max_cost), concurrency=concurrency, workers=workers)
    with _bar(len(items) - len(problems), progress) as advance:
        return _scored_frame(_scored(items, run, advance), frame)


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


# --------------------------------------------------------------------------- rows in


def _scored(items: Sequence[Record | str], run: ScoringRun, advance: Advance = lambda _: None) -> list[Record | str]:
    """Return rows with their scored records. Rows that cannot be used keep their places."""
    scored = iter(run.score([item for item in items if isinstance(item, Record)], advance))
    return [item if isinstance(item, str) else next(scored) for item in items]


def read_dataset(
    data: object, required: Sequence[str], mapping: Mapping[str, str] | None, *, is_batch: bool = False
) -> tuple[list[Record | str], pandas.DataFrame | None]:
    """Return what a user passed: for each row its record, or why it cannot be used; and the table, if it is one.

    Args:
        data: a path, a data frame, an object with an Arrow stream, or an iterable of mappings and turns.
        required: fields that must have a column.
        mapping: field → column, for columns with other names.
        is_batch: the data are a part of a table, in which every answer may be missing.

    Raises:
        TurnError: a column is missing, or the data are of another type.
        ConfigurationError: a file's format or a field of the mapping is not known.
    """
    columns = ColumnMap(mapping) if mapping else None
    if isinstance(data, (str, os.PathLike)):
        items = read_items(Path(data), required, options=ReadOptions(columns=columns))
        return [item if isinstance(item, Record) else f"line {line}: {item.reason}" for line, item in items], None
    frame: pandas.DataFrame | None = None
    if isinstance(data, import_pandas().DataFrame):
        frame = data
    elif hasattr(data, "__arrow_c_stream__"):
        with requires("pyarrow", "offline", "tables of other libraries"):
            import pyarrow
        # Without the types of Arrow, whole numbers with missing values would become floats, and dates objects.
        frame = pyarrow.table(data).to_pandas(types_mapper=import_pandas().ArrowDtype)
    if frame is not None:
        # Lists come out of Parquet as NumPy arrays.
        rows: list[Any] = [
            {str(name): value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
    elif isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise TurnError(
            f"data is a {type(data).__name__}: pass a data frame, a list of dicts or turns, or the path of a file"
        )
    else:
        rows = list(data)
    # Our own rows have their fields under our names, so they need no columns.
    sample = [row for row in rows[:_SAMPLE] if isinstance(row, Mapping) and not (holds_turn(row) or _is_turn(row))]
    found = find_columns("", sample, required, columns, may_be_empty=is_batch, show="mapping={}".format)
    return [_record(row, number, required, found) for number, row in enumerate(rows, 1)], frame


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
    rows = [] if holds_turn(value) or _is_turn(value) else [value]
    columns = find_columns("", rows, required, show=lambda paths: f"Turn({', '.join(map(_argument, paths.items()))})")
    found = _record(value, 1, required, columns)
    if isinstance(found, str):
        raise TurnError(found)
    return found.turn


def _argument(place: tuple[str, str]) -> str:
    return f"{place[0]}=row[{place[1]!r}]"


def _is_turn(row: Mapping[str, Any]) -> bool:
    """Return True for the data of a turn of this package."""
    return {"query", "response", "retrieval_queries"} <= row.keys()


def _record(row: object, number: int, required: Sequence[str], columns: ColumnMap) -> Record | str:
    """Return the record of a row, or why it cannot be used."""
    try:
        if isinstance(row, Record):
            return row
        if isinstance(row, Evaluation):
            row = row.turn
        elif isinstance(row, Mapping) and holds_turn(row):
            return Record.model_validate({"id": str(number), **row})
        elif isinstance(row, Mapping) and _is_turn(row):
            row = Turn.model_validate(row)
        if isinstance(row, Turn):
            return Record(id=row.id or str(number), turn=row)
        if isinstance(row, Mapping):
            return record_from_row(row, str(number), columns, required)
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


def _scored_frame(items: Sequence[Record | str], given: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return rows with their scores.

    A score is a column with its name; next to the values there are ``NAME.label`` for labels, and ``NAME.reason`` for
    what was skipped or failed in some of the rows. What was skipped in every row for one reason is in
    ``frame.attrs["skipped"]`` instead. Rows that could not be used have a reason in ``error``.
    """
    pandas = import_pandas()
    records = [item if isinstance(item, Record) else None for item in items]
    found = [{} if record is None else cells(record) for record in records]
    names = dict.fromkeys(chain.from_iterable(found))
    # A column with the same reason in every row would only make the table wider.
    skipped: dict[str, str] = {}
    for name in [name for name in names if name.endswith(".reason")]:
        reasons = {row.get(name) for row, record in zip(found, records, strict=True) if record is not None}
        reason = str(reasons.pop())
        if not reasons and reason.startswith("skipped: "):
            skipped[name.removesuffix(".reason")] = reason
            del names[name]
    # Values, then labels, then reasons.
    ordered = sorted(names, key=lambda name: (name.endswith(".reason"), name.endswith(".label")))
    columns = {name: [row.get(name) for row in found] for name in ordered}
    if None in records:
        columns["error"] = [item if isinstance(item, str) else None for item in items]
    frame = pandas.DataFrame(_turn_columns(records)) if given is None else given.copy()
    made = _frame_class()(_joined(frame, pandas.DataFrame(columns, index=frame.index)))
    made.attrs["skipped"] = skipped
    made.evaluations = [
        None if record is None else Evaluation(turn=record.turn, results=record.results) for record in records
    ]
    return made


def _joined(frame: pandas.DataFrame, columns: pandas.DataFrame) -> pandas.DataFrame:
    """Return a frame with more columns, which replace those of the same names."""
    # All at once: adding a hundred columns one by one would fragment the frame.
    kept = frame.drop(columns=[name for name in columns if name in frame.columns])
    joined: pandas.DataFrame = import_pandas().concat([kept, columns], axis=1)
    return joined


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


def _share_with(label: str, scores: Iterable[Score]) -> float | None:
    """Return the share of the labels pass and fail that are one of them; None without labels."""
    labels = [score.label for score in scores if score.label in ("pass", "fail")]
    return labels.count(label) / len(labels) if labels else None


def _badness(evaluation: Evaluation) -> tuple[float, float]:
    """Return how bad an answer is: the share of labels that fail, then its summarizing score."""
    summary = next(filter(None, map(evaluation.score, _SUMMARIES)), None)
    # The lowest value is the worst.
    return _share_with("fail", evaluation.turn_scores()) or 0.0, 0.0 if summary is None else -summary.value


def _mean_row(name: str, scores: Sequence[Score]) -> tuple[str, str, str, str]:
    passed = _share_with("pass", scores)
    arrow = " ↓" if scores[0].direction == "lower" else ""
    mean = show_value(fmean(score.value for score in scores))
    return f"{escape(shown_name(name))}{arrow}", mean, "" if passed is None else f"{passed:.0%}", str(len(scores))


# --------------------------------------------------------------------------- batches on other machines


class ScoreBatches:
    """Scores batches of rows, for the engine of your cluster: Ray, Spark, Dask.

    It is pickled as its options, and each process loads its own models. A call takes a pandas data frame, an Arrow
    table or a dict of columns, and returns a data frame with the same rows and the further :attr:`columns`: for each
    score its value, ``NAME.label`` and ``NAME.reason``, which says why a value is missing; ``rageval_results``, all
    results with their details as JSON; and ``rageval_error``, which says why a row cannot be used. Every batch gets
    the same columns.

    Args:
        metrics: see :func:`rageval_hooks.instrument`.
        models: see :func:`rageval_hooks.instrument`.
        judge: its name, ``"provider:model"``. Each process asks it on its own: ``judge_budget`` with a Redis store
            limits all of them together.
        judge_options: options of the judge.
        thresholds: see :func:`rageval_hooks.instrument`.
        mapping: field → column; see :func:`rageval_hooks.score_dataset`.
        details: which scores keep their explanation and metadata in ``rageval_results``: none, failed or all.
        concurrency: turns at a time, if a judge is asked.

    Raises:
        ConfigurationError: an option is wrong.

    Example:
        >>> score = ScoreBatches(metrics="unsupported_facts", models="lexical")
        >>> batch = {"question": ["When?"], "answer": ["In 2018."], "contexts": [["It opened in 2019."]]}
        >>> score(batch)["unsupported_facts"].tolist()
        [1.0]
    """

    def __init__(
        self,
        *,
        metrics: Iterable[AnyMetric] | str | None = None,
        models: str | ModelSettings | Mapping[str, Any] | None = None,
        judge: str | None = None,
        judge_options: Mapping[str, Any] | str | None = None,
        thresholds: Mapping[str, float | None] | str | None = None,
        mapping: Mapping[str, str] | None = None,
        details: Details = "all",
        concurrency: int = 8,
    ) -> None:
        if not isinstance(judge, str | None):
            raise ConfigurationError('judge must be a name, such as "openai:gpt-5-mini": workers make their own judge')
        of_pipeline: dict[str, Any] = {
            "metrics": metrics,
            "models": models,
            "judge": judge,
            "judge_options": judge_options,
            "thresholds": thresholds,
        }
        self._options = {**of_pipeline, "mapping": mapping, "details": details, "concurrency": concurrency}
        self._pipeline = Pipeline.build(exporters=[], **UNSAMPLED, **of_pipeline)
        self._required = required_fields(self._pipeline, named=metrics is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._options), ()

    @property
    def columns(self) -> dict[str, str]:
        """The columns that a batch gets, and their types, ``"double"`` or ``"string"``."""
        return {**score_columns(self._pipeline.metrics), _RESULTS: "string", _ERROR: "string"}

    def __call__(self, batch: Any) -> pandas.DataFrame:
        """Score a batch.

        Raises:
            TurnError: a column is missing.
            JudgeUnavailableError: the judge does not work.
        """
        pandas = import_pandas()
        if not isinstance(batch, pandas.DataFrame):
            batch = batch.to_pandas() if hasattr(batch, "to_pandas") else pandas.DataFrame(dict(batch))
        # Spark and Dask also call it with partitions that are empty.
        mapping = self._options["mapping"]
        items = read_dataset(batch, self._required, mapping, is_batch=True)[0] if len(batch) else []
        details, concurrency = self._options["details"], self._options["concurrency"]
        run = ScoringRun(self._pipeline, details=details, concurrency=concurrency)
        scored = _scored(items, run)
        if run.broken:
            raise JudgeUnavailableError(run.broken)
        rows: list[dict[str, Any]] = [
            {_ERROR: item}
            if isinstance(item, str)
            else cells(item) | {_RESULTS: _AS_JSON.dump_json(item.results).decode()}
            for item in scored
        ]
        types = {"double": "float64", "string": "string"}
        made = {
            name: pandas.Series([row.get(name) for row in rows], index=batch.index, dtype=types[kind])
            for name, kind in self.columns.items()
        }
        return _joined(batch, pandas.DataFrame(made, index=batch.index))


def score_columns(metrics: Iterable[Metric]) -> dict[str, str]:
    """Return the columns of the scores of whole turns, and their types, ``"double"`` or ``"string"``."""
    names = [score.name for metric in metrics for score in metric.scores]
    suffixes = {"": "double", ".label": "string", ".reason": "string"}
    return {name + suffix: kind for name in names for suffix, kind in suffixes.items()}
