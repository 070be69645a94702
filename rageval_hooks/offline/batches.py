"""Scoring batches of rows on other machines: a function that Ray, Spark and Dask call with data frames."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError
from rageval_hooks.metrics.base import AnyMetric, Metric
from rageval_hooks.offline.dataset import Dataset, import_pandas, read_dataset
from rageval_hooks.offline.jobs.budget import Budget
from rageval_hooks.offline.jobs.journal import Journal
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.tables import cells
from rageval_hooks.offline.scoring.run import ScoringRun
from rageval_hooks.offline.scoring.score_file import required_fields
from rageval_hooks.offline.scoring.workers import Counts, Details
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.score import Result, is_about_turn

if TYPE_CHECKING:
    import pandas

    from rageval_hooks.settings import ModelSettings

_RESULTS: Final = "rageval_results"
_ERROR: Final = "rageval_error"
_AS_JSON: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])


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
        self._options = {name: value for name, value in locals().items() if name != "self"}
        self._pipeline = Pipeline.build(
            metrics=metrics,
            models=models,
            judge=judge,
            judge_options=judge_options,
            thresholds=thresholds,
            exporters=[],
            sample_rate=1.0,
            judge_sample_rate={},
        )
        self._required = required_fields(self._pipeline, named=metrics is not None)
        self._mapping = mapping
        self._details = details
        self._concurrency = concurrency

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
        dataset = read_dataset(batch, self._required, self._mapping) if len(batch) else Dataset()
        usable = [record for record in dataset.records if record is not None]
        _, scored = score_records(usable, self._pipeline, details=self._details, concurrency=self._concurrency)
        rest = (record for record, _ in scored)
        records = [None if record is None else next(rest) for record in dataset.records]
        values = score_cells(records, self._pipeline.metrics)
        values[_RESULTS] = [record and _AS_JSON.dump_json(record.results).decode() for record in records]
        values[_ERROR] = [dataset.problems.get(position) for position in range(len(records))]
        types = {"double": "float64", "string": "string"}
        made = {
            name: pandas.Series(values[name], index=batch.index, dtype=types[kind])
            for name, kind in self.columns.items()
        }
        kept = batch.drop(columns=[name for name in made if name in batch.columns])
        return pandas.concat([kept, pandas.DataFrame(made, index=batch.index)], axis=1)


def score_records(
    records: Sequence[Record],
    pipeline: Pipeline,
    *,
    details: Details,
    concurrency: int,
    privacy: PrivacyPolicy = NO_PRIVACY,
) -> tuple[Counts, list[tuple[Record, str]]]:
    """Score records in this process, as ``rageval-hooks score`` does.

    Returns:
        Their counts, and for each record, in their order, the scored record and its line of JSON.

    Raises:
        JudgeUnavailableError: the judge does not work.
    """
    journal = Journal(None, {})
    run = _Run(pipeline, journal, Budget(), concurrency=concurrency, workers=1, details=details, privacy=privacy)
    # On a thread of its own: a notebook runs an event loop on this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run.run(enumerate(records), lambda _: None)).result()
    if run.broken:
        raise JudgeUnavailableError(run.broken)
    return run.counts, [(run.scored[index], journal.raw(str(index)).decode()) for index in range(len(records))]


class _Run(ScoringRun):
    """A run that also keeps its records as objects."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.scored: dict[int, Record] = {}

    def keep(self, index: int, record: Record) -> None:
        super().keep(index, record)
        self.scored[index] = record


def score_columns(metrics: Iterable[Metric]) -> dict[str, str]:
    """Return the columns of the scores of whole turns, and their types, ``"double"`` or ``"string"``."""
    columns: dict[str, str] = {}
    for definition in chain.from_iterable(metric.scores for metric in metrics):
        columns |= {definition.name: "double"}
        columns |= {f"{definition.name}{suffix}": "string" for suffix in (".label", ".reason")}
    return columns


def score_cells(records: Sequence[Record | None], metrics: Iterable[Metric]) -> dict[str, list[Any]]:
    """Return the values of :func:`score_columns`: one per record, None where there is none."""
    columns: dict[str, list[Any]] = {name: [None] * len(records) for name in score_columns(metrics)}
    for position, record in enumerate(records):
        for result in filter(is_about_turn, () if record is None else record.results):
            for suffix, value in cells(result).items():
                if result.name + suffix in columns:
                    columns[result.name + suffix][position] = value
    return columns
