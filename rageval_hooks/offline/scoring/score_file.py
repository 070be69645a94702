"""Scoring a file: from its rows through the journal to the outputs, in the order of the input."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.judges.remote import CallPolicy
from rageval_hooks.offline.jobs.budget import Budget, Spent
from rageval_hooks.offline.jobs.journal import Journal, file_hash, journal_path
from rageval_hooks.offline.jobs.outputs import (
    BadRows,
    check_apart,
    earlier_result,
    errors_path,
    mark_finished,
)
from rageval_hooks.offline.jobs.running import Advance
from rageval_hooks.offline.records import BadRow, check_file, check_outputs, read_records, write_output
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.open_rag_eval import Closeness
from rageval_hooks.offline.records.reading import Item, read_conversation, read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.run import ScoringRun, positions_in, records_in
from rageval_hooks.offline.scoring.scorer import Details
from rageval_hooks.offline.scoring.workers import Counts
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.score import Result, Score, Skipped
from rageval_hooks.version import __version__

_INPUT, _COMPLETE = "input", "complete"
# The reason of a judgement that a budget prevented: "the budget of 20 calls is used up".
_BUDGET_SPENT = re.compile(r"the budget of .* is used up")
_OF_SCORES = {"cost_rate", "k_values", "trace_formulas"}
"""Settings that decide on the values of scores."""


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
        spent: requests and cost of the judge, earlier runs included.
        budget: the budget that was used up, in words.
        left_out: number of requests that were not sent because of the budget.
        broken: the error of a judge that answered nothing, while other metrics made scores.
    """

    counts: Counts = field(default_factory=Counts)
    resumed: int = 0
    reused: int = 0
    finished: bool = False
    bad: int = 0
    first_bad: BadRow | None = None
    errors: Path | str | None = None
    spent: Spent = field(default_factory=Spent)
    budget: str | None = None
    left_out: int = 0
    broken: str | None = None


def score_file(
    path: Path,
    outputs: Sequence[Path],
    pipeline: Pipeline,
    *,
    errors: Path | None = None,
    columns: str = "native",
    closeness: Closeness | None = None,
    concurrency: int = 8,
    workers: int | None = 1,
    details: Details = "all",
    max_calls: int | None = None,
    max_cost: float | None = None,
    required: Iterable[str] = ("query", "response"),
    restart: bool = False,
    context: Path | None = None,
    mapping: ColumnMap | None = None,
    encoding: str | None = None,
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
        closeness: compares repeated answers for a column of ``open-rag-eval``; None omits it.
        concurrency: turns at a time.
        workers: processes for the local metrics; None for one per core if the file is large. 1 uses this process.
        details: which scores keep their explanation and metadata.
        max_calls: requests to the judge; None for no limit.
        max_cost: USD for the judge; None for no limit.
        required: fields whose columns must be there.
        restart: ignore what an interrupted run left, and replace a finished output.
        context: what was retrieved, if the file is a conversation.
        mapping: columns of the fields, as the user named them.
        encoding: of a text file; None to detect it.
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
    check_outputs(outputs, columns)
    privacy = pipeline.privacy
    bad_rows = BadRows(errors or errors_path(outputs[0]), always=errors is not None, privacy=privacy)
    check_apart(inputs, outputs, bad_rows.path)
    settings = {**settings_of(pipeline, inputs), "details": details}
    work = {**settings, "columns": columns}

    def read() -> Iterator[tuple[int, Item]]:
        return read_input(path, context, required, mapping, encoding, note)

    earlier = None if restart else earlier_result(outputs, work)
    reusable: dict[str, tuple[Result, ...]] = {}
    if earlier is not None:
        # A longer input is welcome: its new rows are scored.
        if changed := [name for name in earlier.changed if name != _INPUT]:
            raise ConfigurationError(
                f"{outputs[0]} is a finished score file with other {', '.join(changed)}: name another output, or give"
                " --restart to replace it"
            )
        if not earlier.changed and earlier.work.get(_COMPLETE) and all(output.exists() for output in outputs):
            return Scored(counts=Counts.of(read_records(outputs[0])), finished=True)
        reusable = _reusable(path, outputs[0], read(), privacy)
    with Journal(journal_path(outputs[0]), settings, restart=restart) as journal:
        budget = Budget(max_calls, max_cost, Spent.model_validate(journal.spent))
        run = ScoringRun(
            pipeline,
            journal,
            budget,
            concurrency=concurrency,
            workers=workers,
            details=details,
            privacy=privacy,
        )
        scored = Scored(resumed=run.counts.turns, errors=bad_rows.path)

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
        done = positions_in(journal)
        if not done:
            first = bad.first
            why = "" if first is None else f": line {first.line}: {first.reason} (all {bad.count} are in {bad.path})"
            raise TurnError(f"no row of {path} can be used{why}" if why else f"{path} has no rows")

        def give(order: Sequence[int] | None = None, /) -> Iterator[Record]:
            return records_in(journal, done if order is None else [done[place] for place in order])

        for output in outputs:
            lines = (journal.raw(str(index)) for index in done)
            write_output(output, give, columns, lines=lines, closeness=closeness)
        # Judgements that are missing are tried again by the same command.
        mark_finished(outputs, {**work, _COMPLETE: not run.broken and not budget.refused})
        journal.remove()
    scored.counts, scored.broken = run.counts, run.broken
    scored.spent, scored.left_out = budget.spent, budget.refused
    scored.budget = budget.reason if budget.refused else None
    return scored


def read_input(
    path: Path,
    context: Path | None,
    required: Iterable[str],
    mapping: ColumnMap | None,
    encoding: str | None,
    note: Callable[[str], object] = lambda _: None,
) -> Iterator[tuple[int, Item]]:
    """Yield the records of a file, or of a conversation and what was retrieved for it; see :func:`read_items`."""
    if context is not None:
        return iter(read_conversation(path, context))
    return iter(read_items(path, required, mapping=mapping, encoding=encoding, note=note))


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
    found = {
        _turn_key(record): record.results for record in read_records(output) if all(map(_is_final, record.results))
    }
    # The finished output has redacted turns.
    keys = {_turn_key(item.redacted(privacy)) for _, item in items if isinstance(item, Record)} if found else set()
    missing = len(found.keys() - keys)
    if missing:
        raise ConfigurationError(
            f"{output} is a finished score file, and has the scores of {missing} rows that {path} does not have: name"
            " another output, or give --restart to replace it"
        )
    return found


def _turn_key(record: Record) -> str:
    """Return a hash that equal turns under the same id share."""
    text = f"{record.id}\n{record.run}\n{record.turn.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest()


def _is_final(result: Result) -> bool:
    # A larger budget may allow what an earlier one prevented.
    is_skipped = isinstance(result, Skipped) and _BUDGET_SPENT.fullmatch(result.reason) is None
    return isinstance(result, Score) or is_skipped


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
        _INPUT: [file_hash(path) for path in inputs],
        "metrics": [f"{metric.name} {metric.version}" for metric in pipeline.metrics],
        "models": settings.models.model_dump(mode="json") if uses_models else None,
        "judge": None if pipeline.judge is None else str(pipeline.judge),
        "judge options": options,
        "thresholds": settings.thresholds,
        # Only where they are not the default, so that a run that an older release began can go on.
        **settings.model_dump(mode="json", include=_OF_SCORES, exclude_defaults=True),
    }
