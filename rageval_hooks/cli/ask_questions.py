"""Asks an application the questions of a test set: the command ``rageval-hooks run``, whose options are in ``run``."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.apps import (
    RunSummary,
    adapt,
    count_waiting,
    keep_answers,
    load,
    records_of,
    run_questions,
    summarize,
)
from rageval_hooks.offline.jobs.journal import Journal, file_hash, journal_path
from rageval_hooks.offline.jobs.max_errors import MaxErrors
from rageval_hooks.offline.jobs.outputs import (
    BadRows,
    EarlierResult,
    check_apart,
    done_path,
    earlier_result,
    errors_path,
    mark_finished,
)
from rageval_hooks.offline.jobs.running import progress_bar
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.files import check_output, read_records, write_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.offline.testsets import GoldenQuestion, read_questions
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.settings import Settings
from rageval_hooks.text.wording import counted

__all__ = ["RunOptions", "ask_questions"]

Say = Callable[[str], object]


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line; see ``rageval-hooks run --help``."""

    data: Path
    app: str
    output: Path
    input_key: str | None = None
    repeat: int = 1
    concurrency: int = 4
    timeout: float = 300.0
    errors: Path | None = None
    restart: bool = False
    retry_failed: bool = False
    max_errors: str | None = None
    mapping: tuple[str, ...] = ()
    encoding: str | None = None
    request: str | None = None
    follow_redirects: bool = False
    dry_run: bool = False


def ask_questions(options: RunOptions, say: Say, warn: Say) -> int:
    """Ask an application the questions of a test set.

    Evaluation by the application's own rageval-hooks is switched off meanwhile: test answers are neither evaluated
    twice nor mixed with those of users.

    Args:
        options: the options of the command line.
        say: receives each line of the result.
        warn: receives each warning.

    Returns:
        0 if no more questions failed than allowed, 1 if more failed or a row had no question, 2 if all failed.

    Raises:
        ConfigurationError: an option is wrong, or a finished output would be overwritten.
        TurnError: the test set cannot be read, or has no column with questions.
    """
    allowed = MaxErrors.parse(options.max_errors)
    if check_output(options.output).has_columns:
        raise ConfigurationError(f"the output {options.output} should end in .jsonl: a table has no passages")
    errors = options.errors or errors_path(options.output)
    check_apart([options.data], [options.output], errors)
    mapping = ColumnMap.parse(options.mapping)
    # Absolute paths: the application may change the current directory.
    privacy = PrivacyPolicy.of(Settings.build())
    bad_rows = BadRows(errors.absolute(), always=options.errors is not None, privacy=privacy)
    there = replace(options, data=options.data.absolute(), output=options.output.absolute())
    questions, bad = read_questions(options.data, mapping=mapping, encoding=options.encoding)
    with _evaluation_off():
        summary = _Run(there, questions, options.output, say, warn, privacy).result()
    if summary is None:
        return 0
    for line in summary.lines():
        say(line)
    with bad_rows:
        for row in bad:
            bad_rows.add(row)
    if bad:
        warn(_about_bad_rows(bad, options.data, errors))
    say(f"wrote {options.output}")
    return _status(summary, bad, allowed, warn)


def _about_bad_rows(bad: list[BadRow], data: Path, errors: Path) -> str:
    first = bad[0]
    return f"{counted(len(bad), 'row')} of {data} could not be used: {errors} (line {first.line}: {first.reason})"


def _status(summary: RunSummary, bad: list[BadRow], allowed: MaxErrors, warn: Say) -> int:
    # Nothing was answered: the application does not work.
    if summary.errors and summary.errors == summary.records:
        return 2
    if not allowed.allows(summary.errors, summary.records):
        if str(allowed) != "0":
            warn(f"{counted(summary.errors, 'question')} failed: --max-errors allows {allowed}")
        return 1
    return 1 if bad else 0


@contextmanager
def _evaluation_off() -> Iterator[None]:
    # The application is imported later, and calls instrument() then: only the environment reaches it.
    before = os.environ.get("RAGEVAL_ENABLED")
    os.environ["RAGEVAL_ENABLED"] = "false"
    try:
        yield
    finally:
        del os.environ["RAGEVAL_ENABLED"]
        if before is not None:
            os.environ["RAGEVAL_ENABLED"] = before


class _Run:
    """One call of the command, with absolute paths.

    Args:
        options: the options of the command line.
        questions: what to ask.
        shown: the output as the user named it, for messages.
        say: receives each line of the result.
        warn: receives each warning.
        privacy: what files may hold.
    """

    def __init__(
        self,
        options: RunOptions,
        questions: list[GoldenQuestion],
        shown: Path,
        say: Say,
        warn: Say,
        privacy: PrivacyPolicy,
    ) -> None:
        self._options = options
        self._questions = questions
        self._shown = shown
        self._say = say
        self._warn = warn
        self._privacy = privacy

    @property
    def _work(self) -> Mapping[str, Any]:
        """The options that change the answers, by the names that a user knows."""
        options = self._options
        data = file_hash(options.data)
        work = {"command": "run", "app": options.app, "data": data, "input_key": options.input_key}
        # Redacted answers and original ones are not mixed in a file.
        return {**work, "redact": True} if self._privacy.active else work

    def result(self) -> RunSummary | None:
        """Ask what is not answered yet, and write the output; None after a dry run."""
        options = self._options
        work = {**self._work, "repeat": options.repeat}
        if options.retry_failed:
            self._check_repeat()
        earlier = self._reusable(work)
        target = load(options.app, options.request, follow_redirects=options.follow_redirects)
        if not inspect.isawaitable(target):
            adapt(target, options.input_key)  # errors are reported before anything is written
        if options.dry_run:
            self._say_plan(earlier)
            _close(target)
            return None
        if earlier is not None and not earlier.changed and not options.retry_failed:
            _close(target)
            self._warn(f"{self._shown} is finished already, with the same options: nothing was asked again")
            return summarize(read_records(options.output))
        with Journal(journal_path(options.output), self._work, restart=options.restart) as journal:
            if len(journal):
                self._warn(f"going on from {journal_path(self._shown)}")
            keep_answers(self._kept(earlier), self._questions, options.repeat, journal, self._privacy)
            summary = asyncio.run(self._ask(target, journal))
            write_records(options.output, records_of(self._questions, options.repeat, journal))
            journal.remove()
        mark_finished([options.output], work)
        return summary

    def _kept(self, earlier: EarlierResult | None) -> Iterator[Record]:
        """Yield the records of the output whose answers are kept."""
        if self._options.retry_failed:
            yield from (record for record in read_records(self._options.output) if record.turn.status != "error")
        elif earlier is not None:
            yield from read_records(self._options.output)

    def _reusable(self, work: Mapping[str, Any]) -> EarlierResult | None:
        """Return the finished run in the output whose answers are kept; None if there is no such run.

        Raises:
            ConfigurationError: the output would lose answers.
        """
        options = self._options
        if options.restart:
            return None
        # An interrupted run has a journal, which keeps the answers itself.
        if options.retry_failed and not done_path(options.output).exists():
            return None
        earlier = earlier_result([options.output], work)
        if earlier is None:
            return None
        # Other questions or more repetitions add answers; everything else makes the old answers invalid.
        lost = [name for name in earlier.changed if name not in ("data", "repeat")]
        if lost and not options.retry_failed:
            raise ConfigurationError(
                f"{self._shown} holds a finished run with another {', '.join(lost)}: "
                "name another output, or give --restart to replace it"
            )
        if not options.retry_failed:
            self._check_kept()
        return earlier

    def _check_kept(self) -> None:
        """Check that a larger test set keeps every answer of the finished one."""
        wanted = {(question.id, self._privacy.text(question.question)) for question in self._questions}
        repeat = self._options.repeat
        records = read_records(self._options.output)
        lost = sum((record.id, record.turn.query) not in wanted or record.run > repeat for record in records)
        if lost:
            raise ConfigurationError(
                f"{self._shown} holds a finished run, of which {counted(lost, 'answer')} would be lost: "
                "name another output, or give --restart to replace it"
            )

    def _check_repeat(self) -> None:
        """Check that --retry-failed keeps all repetitions of the output."""
        options = self._options
        asked = {question.id for question in self._questions}
        most = max((record.run for record in read_records(options.output) if record.id in asked), default=1)
        if most > options.repeat:
            raise ConfigurationError(
                f"{self._shown} has answers to {most} repetitions, which --retry-failed would keep only "
                f"{options.repeat} of: give --repeat {most}, or another output"
            )

    def _say_plan(self, earlier: EarlierResult | None) -> None:
        options = self._options
        total = len(self._questions) * options.repeat
        answered = {(record.run, record.id) for record in self._kept(earlier)}
        kept = sum((run, q.id) in answered for q in self._questions for run in range(1, options.repeat + 1))
        if not options.restart and (partial := journal_path(options.output)).exists():
            with Journal(partial, self._work) as journal:
                kept += total - count_waiting(self._questions, options.repeat, journal)
        self._say(f"{counted(total - kept, 'call')} of the application, {counted(kept, 'answer')} kept")
        self._say("dry run: nothing was asked, and nothing was written")

    async def _ask(self, target: Any, journal: Journal) -> RunSummary:
        options = self._options
        if inspect.isawaitable(target):  # a factory that is a coroutine function
            target = await _made(target, options.app)
        app = adapt(target, options.input_key)
        with progress_bar("run", len(self._questions) * options.repeat) as advance:
            return await run_questions(
                self._questions,
                app,
                journal,
                repeat=options.repeat,
                concurrency=options.concurrency,
                timeout=options.timeout,
                privacy=self._privacy,
                advance=advance,
            )


async def _made(target: Any, name: str) -> Any:
    try:
        return await target
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"--app: {name}() failed: {type(error).__name__}: {error}") from error


def _close(target: Any) -> None:
    """Close the coroutine of a factory that a dry run does not await."""
    if inspect.iscoroutine(target):
        target.close()
