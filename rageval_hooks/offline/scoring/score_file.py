"""Scoring a file: from its rows through the journal to the outputs, in the order of the input."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.judges.remote import CallPolicy
from rageval_hooks.offline.command_judge import Budget, Spent, describe_requests, with_concurrency
from rageval_hooks.offline.journal import (
    REPLACE,
    BadRows,
    Journal,
    check_files,
    earlier_result,
    file_hash,
    journal_path,
    mark_finished,
)
from rageval_hooks.offline.records.formats import BadRow, check_file
from rageval_hooks.offline.records.reading import READ_AS_IS, Item, ReadOptions, read_items, read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.writing import write_output
from rageval_hooks.offline.running import Advance
from rageval_hooks.offline.scoring.run import ScoredRecords, ScoringRun
from rageval_hooks.offline.scoring.workers import Counts, Details
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.score import Failed, Result, is_over_budget
from rageval_hooks.settings import UNSAMPLED, Settings
from rageval_hooks.text.wording import counted
from rageval_hooks.version import __version__

_OF_SCORES = {"cost_rate", "k_values", "trace_formulas"}
"""Settings that decide on the values of scores."""

_USUALLY_REQUIRED = ("query", "response")

_CHARACTERS_PER_TOKEN = 4
# Instructions and schema of a request.
_PROMPT_TOKENS = 700
# Of one answer of the judge: a few sentences with a verdict each.
_OUTPUT_TOKENS = 250


@dataclass
class Scored:
    """The result of a run.

    Attributes:
        counts: turns with results, and their results.
        resumed: how many of the turns an interrupted run had scored.
        reused: how many of them have results from the finished output that this run extended.
        finished: True if the output was already complete, so that nothing was done.
        bad: number of rows that could not be used.
        first_bad: the first of these rows.
        errors: the file that these rows were written to.
        budget: what the judge has used, earlier runs included, and the number of requests that did not fit.
        broken: the error of a judge that answered nothing, while other metrics made scores.
    """

    counts: Counts = field(default_factory=Counts)
    resumed: int = 0
    reused: int = 0
    finished: bool = False
    bad: int = 0
    first_bad: BadRow | None = None
    errors: Path | str | None = None
    budget: Budget = field(default_factory=Budget)
    broken: str | None = None


def score_file(
    path: Path,
    outputs: Sequence[Path],
    pipeline: Pipeline,
    *,
    errors: Path | None = None,
    columns: str = "native",
    concurrency: int = 8,
    workers: int | None = 1,
    details: Details = "all",
    max_calls: int | None = None,
    max_cost: float | None = None,
    required: Iterable[str] = _USUALLY_REQUIRED,
    restart: bool = False,
    context: Path | None = None,
    reading: ReadOptions = READ_AS_IS,
    note: Callable[[str], object] = lambda _: None,
    advance: Advance = lambda _: None,
) -> Scored:
    """Score the turns of a file.

    A finished output is not replaced: the same call again does nothing, and a longer input gets the results that the
    output already has.

    Args:
        path: the file; see :func:`rageval_hooks.offline.records.read_records`.
        outputs: the files to write, ``.jsonl`` or ``.csv``. Until they are complete, a journal is next to the first.
        pipeline: metrics, models and judge.
        errors: where rows that cannot be used go; next to the first output by default.
        columns: of CSV files: ``native`` or ``open-rag-eval``.
        concurrency: turns at a time.
        workers: processes for the local metrics; None for one per core if the file is large. 1 uses this process.
        details: which scores keep their explanation and metadata.
        max_calls: requests to the judge; None for no limit.
        max_cost: USD for the judge; None for no limit.
        required: fields whose columns must be there.
        restart: ignore what an interrupted run left, and replace a finished output.
        context: what was retrieved, if the file is a conversation.
        reading: how to read the file.
        note: called with decisions about the file that the user should know.
        advance: called as turns are done.

    Raises:
        ConfigurationError: a setting is wrong; an interrupted run had other settings; or an output is finished and
            was made with other settings.
        TurnError: the file cannot be read, a column is missing, or no row of it can be used.
        JudgeUnavailableError: the judge does not work; the scores so far are in the journal.
        OSError: something cannot be written.
        KeyboardInterrupt: the scores so far are in the journal, and the same call goes on.
    """
    inputs = [path] if context is None else [path, context]
    for item in inputs:
        check_file(item)
    privacy = pipeline.privacy
    bad_rows = BadRows(outputs[0], errors, privacy)
    formats = check_files(inputs, outputs, bad_rows.path)
    # JSON Lines has the whole records, so that the layout would have no effect.
    if columns != "native" and not any(found.has_columns for found in formats):
        raise ConfigurationError(f"--columns {columns} is a layout of tables: an output should end in .csv")
    settings = {**settings_of(pipeline, inputs), "details": details, **reading.settings()}
    work = {**settings, "columns": columns, "complete": True}

    def read() -> Iterator[tuple[int, Item]]:
        return read_items(path, required, context=context, options=reading, note=note)

    # A longer input is welcome: its new rows are scored. Judgements that are missing are tried again.
    changed = None if restart else earlier_result(outputs, work, may_change=("input", "complete"))
    reusable: dict[str, tuple[Result, ...]] = {}
    if changed is not None:
        if not changed and all(output.exists() for output in outputs):
            return Scored(counts=Counts.of(read_records(outputs[0])), finished=True)
        reusable = _reusable(path, outputs[0], read(), privacy)
    with Journal(journal_path(outputs[0]), settings, restart=restart) as journal:
        budget = Budget(max_calls, max_cost, Spent.model_validate(journal.spent))
        run = ScoringRun(
            pipeline,
            journal,
            budget=budget,
            concurrency=concurrency,
            workers=workers,
            details=details,
            privacy=privacy,
        )
        scored = Scored(resumed=run.counts.turns, errors=bad_rows.path, budget=budget)

        def records(bad: BadRows) -> Iterator[tuple[int, Record]]:
            """Yield the usable records with their positions. Those with results of a finished output are kept first."""
            # Bad rows have no position, so that outputs have no gaps.
            index = 0
            for _, item in read():
                if isinstance(item, BadRow):
                    bad.add(item)
                    continue
                # Results of an earlier run may have texts that were not redacted.
                redacted = item.redacted(privacy)
                record = item.model_copy(update={"results": redacted.results}) if item.results else item
                results = reusable.get(_turn_key(redacted)) if reusable else None
                if results is not None:
                    names = {result.name for result in results}
                    others = [result for result in record.results if result.name not in names]
                    run.keep(index, record.model_copy(update={"results": (*others, *results)}))
                    scored.reused += 1
                yield index, record
                index += 1

        with bad_rows as bad:
            asyncio.run(run.run(records(bad), advance))
        scored.bad, scored.first_bad = bad.count, bad.first
        done = ScoredRecords(journal)
        if not done:
            first = bad.first
            why = "" if first is None else f": line {first.line}: {first.reason} (all {bad.count} are in {bad.path})"
            raise TurnError(f"no row of {path} can be used{why}" if why else f"{path} has no rows")
        for output in outputs:
            write_output(output, done, columns, lines=done.lines())
        mark_finished(outputs, {**work, "complete": run.complete})
        journal.remove()
    scored.counts, scored.broken = run.counts, run.broken
    return scored


def _reusable(
    path: Path, output: Path, items: Iterable[tuple[int, Item]], privacy: PrivacyPolicy
) -> dict[str, tuple[Result, ...]]:
    """Return the results that a finished output has for the rows of a longer input, by turn.

    A table does not hold whole turns, so only ``.jsonl`` is reused. A turn with a failed result, or with one that was
    skipped because a budget was spent, is scored again.

    Raises:
        ConfigurationError: the input lacks rows of the finished output, whose scores would be lost.
    """
    if output.suffix.lower() != ".jsonl" or not output.exists():
        return {}
    # All results of a turn are reused or none: a metric that failed may share calls with the others.
    found = {_turn_key(record): record.results for record in read_records(output) if all(map(is_final, record.results))}
    # The finished output has redacted turns.
    keys = {_turn_key(item.redacted(privacy)) for _, item in items if isinstance(item, Record)} if found else set()
    missing = len(found.keys() - keys)
    if missing:
        raise ConfigurationError(f"{output} has the scores of {missing} rows that {path} does not have: {REPLACE}")
    return found


def _turn_key(record: Record) -> str:
    """Return a hash that equal turns under the same id share."""
    text = f"{record.id}\n{record.run}\n{record.turn.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest()


def is_final(result: Result) -> bool:
    """Return False for a result that another run may find."""
    # A larger budget may allow what an earlier one prevented.
    return not isinstance(result, Failed) and not is_over_budget(result)


def settings_of(pipeline: Pipeline, inputs: Sequence[Path]) -> Mapping[str, Any]:
    """Return what decides on the results, by the names that a user knows."""
    settings = pipeline.settings
    # Retries and time-outs do not change a score: they may change between runs.
    patience = CallPolicy.model_fields
    options = {name: value for name, value in settings.judge_options.items() if name not in patience}
    # Models that no metric reads do not matter either.
    uses_models = any(metric.models for metric in pipeline.metrics)
    return {
        **({"redact": True} if pipeline.privacy.active else {}),
        "command": "score",
        "version of rageval-hooks": __version__,
        "input": [file_hash(path) for path in inputs],
        "metrics": [f"{metric.name} {metric.version}" for metric in pipeline.metrics],
        "models": settings.models.model_dump(mode="json") if uses_models else None,
        "judge": None if pipeline.judge is None else str(pipeline.judge),
        "judge options": options,
        "thresholds": settings.thresholds,
        **settings.model_dump(mode="json", include=_OF_SCORES),
    }


# --------------------------------------------------------------------------- before a run


def build_pipeline(
    *,
    concurrency: int,
    load: bool = True,
    metrics: str | None = None,
    exporters: Sequence[Exporter] = (),
    **options: Any,
) -> Pipeline:
    """Return a pipeline, and start loading its models.

    Args:
        concurrency: turns at a time. The judge gets at least as many requests at a time.
        load: False if others compute the scores.
        metrics: see :meth:`Pipeline.build`.
        exporters: where evaluations go.
        options: fields of :class:`rageval_hooks.settings.Settings`; None for their defaults.

    Raises:
        ConfigurationError: an option is wrong; the message says what is valid.
    """
    # RAGEVAL_SAMPLE_RATE is meant for an application; a command scores every row.
    options |= UNSAMPLED
    settings = Settings.build(**options)
    if settings.judge:
        options["judge_options"] = with_concurrency(settings.judge, settings.judge_options, concurrency)
    pipeline = Pipeline.build(metrics=metrics, exporters=exporters, **options)
    if not pipeline.metrics:
        raise ConfigurationError("no metrics: name some, or omit the option for the local defaults")
    if load:
        pipeline.load_models()
    return pipeline


def required_fields(pipeline: Pipeline, *, named: bool) -> tuple[str, ...]:
    """Return the fields that need a column in the file.

    Args:
        pipeline: the pipeline with its metrics.
        named: True if the user named the metrics. The file then needs what they read: a reference answer, for example,
            and no question for metrics that compare the answer with its passages.
    """
    # Metrics that need passages are skipped, with the reason, for files and turns without any.
    if not named:
        return _USUALLY_REQUIRED
    # A metric that requires nothing may still read the texts.
    read = set(chain.from_iterable(metric.requires or _USUALLY_REQUIRED for metric in pipeline.metrics))
    return tuple(name for name in (*_USUALLY_REQUIRED, "reference") if name in read)


def estimate(records: Iterable[Record], pipeline: Pipeline) -> str:
    """Say about how many requests the judge metrics of a pipeline would make for some records.

    Retries are not counted, and neither is what an interrupted run has answers to.
    """
    # Without a judge, its metrics are skipped.
    judged = [metric for metric in pipeline.metrics if metric.asks_judge and pipeline.judge is not None]
    turns = calls = tokens = 0
    for record in records:
        turns += 1
        asked = [metric for metric in judged if record.answerable or not metric.answerable_only]
        # Metrics that share calls name the same ones.
        expected: dict[str, int] = {}
        for metric in asked:
            expected.update(metric.expected_calls(len(record.turn.passages)))
        wanted = sum(expected.values())
        characters = sum(map(len, record.turn.texts()))
        calls += wanted
        tokens += wanted * (_PROMPT_TOKENS + characters // _CHARACTERS_PER_TOKEN)
    shown = counted(turns, "turn")
    if not calls:
        return f"{shown}, no requests to a judge"
    return f"{shown}: about {describe_requests(str(pipeline.judge), calls, tokens, calls * _OUTPUT_TOKENS)}"
