"""Scoring a file: from its rows through the journal to the outputs, in the order of the input."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.judges.client.policy import CallPolicy
from rageval_hooks.offline.jobs.bad_rows import BadRows, check_apart, errors_path
from rageval_hooks.offline.jobs.budget import Budget
from rageval_hooks.offline.jobs.finished import EarlierResult, earlier_result, mark_finished
from rageval_hooks.offline.jobs.journal import file_hash, journal_path
from rageval_hooks.offline.jobs.progress import Advance
from rageval_hooks.offline.jobs.score_journal import ScoreJournal
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.conversations import read_conversation
from rageval_hooks.offline.records.files import check_outputs, read_records, write_output
from rageval_hooks.offline.records.open_rag_eval import Closeness
from rageval_hooks.offline.records.reading import Item, read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, check_file
from rageval_hooks.offline.scoring.detail import Details
from rageval_hooks.offline.scoring.reuse import count_missing, reusable_results, turn_key
from rageval_hooks.offline.scoring.run import ScoringRun
from rageval_hooks.offline.scoring.summary import Scored, why_not
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.score import Result
from rageval_hooks.version import __version__

__all__ = ["score_file"]

_INPUT = "input"
_COMPLETE = "complete"


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
        path: the file; see :func:`rageval_hooks.offline.records.files.read_records`.
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
    settings = {**_settings(pipeline, inputs), "details": details}
    work = {**settings, "columns": columns}

    def read() -> Iterator[tuple[int, Item]]:
        if context is not None:
            return iter(read_conversation(path, context))
        return iter(read_items(path, required, mapping=mapping, encoding=encoding, note=note))

    earlier = None if restart else earlier_result(outputs, work)
    if earlier is not None and _is_finished(earlier, outputs):
        return _already_finished(outputs[0])
    reusable = {} if earlier is None else _reusable(path, outputs[0], read(), privacy)
    with ScoreJournal(journal_path(outputs[0]), settings, restart=restart, privacy=privacy) as journal:
        budget = Budget(max_calls, max_cost, journal.spent)
        scored = Scored(resumed=journal.resumed, errors=bad_rows.path)
        for record in journal.records():
            scored.counts.add(record.results)
        with bad_rows as bad:
            records = _reused(_usable(read(), bad, privacy), reusable, journal, scored, privacy)
            run = ScoringRun(
                pipeline,
                journal,
                budget,
                concurrency=concurrency,
                workers=workers,
                details=details,
                counts=scored.counts,
            )
            asyncio.run(run.run(records, advance))
        scored.bad, scored.first_bad = bad.count, bad.first
        scored.turns = len(journal)
        if not scored.turns:
            raise _no_rows(path, bad)
        if not scored.results["scored"]:
            scored.why_not = why_not(journal.records())
        for output in outputs:
            write_output(output, journal.records, columns, lines=journal.lines, closeness=closeness)
        # Judgements that are missing are tried again by the same command.
        is_complete = not run.broken and not budget.refused
        mark_finished(outputs, {**work, _COMPLETE: is_complete})
        journal.remove()
    scored.broken = run.broken
    scored.spent, scored.left_out = budget.spent, budget.refused
    scored.budget = budget.reason if budget.refused else None
    return scored


def _already_finished(output: Path) -> Scored:
    scored = Scored(finished=True)
    for record in read_records(output):
        scored.turns += 1
        scored.counts.add(record.results)
    if not scored.results["scored"]:
        scored.why_not = why_not(read_records(output))
    return scored


def _is_finished(earlier: EarlierResult, outputs: Sequence[Path]) -> bool:
    """Return True if there is nothing to do.

    Raises:
        ConfigurationError: the outputs were made with other settings, and would be lost.
    """
    # A longer input is welcome: its new rows are scored.
    changed = [name for name in earlier.changed if name != _INPUT]
    if changed:
        raise ConfigurationError(
            f"{outputs[0]} is a finished score file with other {', '.join(changed)}: name another output, or give"
            " --restart to replace it"
        )
    if earlier.changed or not earlier.work.get(_COMPLETE):
        return False
    return all(output.exists() for output in outputs)


def _reusable(
    path: Path, output: Path, items: Iterable[tuple[int, Item]], privacy: PrivacyPolicy
) -> dict[str, tuple[Result, ...]]:
    """Return the results that a finished output has for the rows of a longer input.

    Raises:
        ConfigurationError: the input lacks rows of the finished output, whose scores would be lost.
    """
    found = reusable_results(output)
    # The finished output has redacted turns.
    records = (item.redacted(privacy) for _, item in items if isinstance(item, Record))
    missing = count_missing(found, records) if found else 0
    if missing:
        raise ConfigurationError(
            f"{output} is a finished score file, and has the scores of {missing} rows that {path} does not have: name"
            " another output, or give --restart to replace it"
        )
    return found


def _usable(items: Iterable[tuple[int, Item]], errors: BadRows, privacy: PrivacyPolicy) -> Iterator[tuple[int, Record]]:
    """Yield the usable records with their positions; the other rows go to the file for bad rows."""
    # Bad rows have no position, so that outputs have no gaps.
    index = 0
    for _, item in items:
        if isinstance(item, BadRow):
            errors.add(item)
        else:
            # Results of an earlier run may have texts that were not redacted.
            yield index, item.model_copy(update={"results": item.redacted(privacy).results}) if item.results else item
            index += 1


def _reused(
    records: Iterable[tuple[int, Record]],
    reusable: Mapping[str, tuple[Result, ...]],
    journal: ScoreJournal,
    scored: Scored,
    privacy: PrivacyPolicy,
) -> Iterator[tuple[int, Record]]:
    """Yield records; those with results of a finished file go to the journal first, so that they are not scored."""
    for index, record in records:
        # Hashing every turn takes time, and most runs have nothing to reuse.
        results = reusable.get(turn_key(record.redacted(privacy))) if reusable else None
        if results is not None and not journal.has(index):
            done = _with_results(record, results)
            journal.done(index, done, journal.spent)
            scored.counts.add(done.results)
            scored.reused += 1
        yield index, record


def _with_results(record: Record, results: Sequence[Result]) -> Record:
    names = {result.name for result in results}
    others = [result for result in record.results if result.name not in names]
    return record.model_copy(update={"results": (*others, *results)})


def _no_rows(path: Path, errors: BadRows) -> TurnError:
    if errors.first is None:
        return TurnError(f"{path} has no rows")
    return TurnError(
        f"no row of {path} can be used: line {errors.first.line}: {errors.first.reason} "
        f"(all {errors.count} are in {errors.path})"
    )


_OF_SCORES: Final = frozenset(("cost_rate", "k_values", "trace_formulas"))
"""Settings that decide on the values of scores."""


def _settings(pipeline: Pipeline, inputs: Sequence[Path]) -> Mapping[str, Any]:
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
        # Only where they are not the default, so that a run that an older release began can go on.
        **settings.model_dump(mode="json", include=set(_OF_SCORES), exclude_defaults=True),
    }
