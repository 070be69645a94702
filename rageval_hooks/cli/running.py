"""The command ``run``: a test set and an application in, records out, and an exit status."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.apps.loading import adapt, load
from rageval_hooks.offline.apps.running import Ran, keep_answers, records_of, run_questions
from rageval_hooks.offline.jobs.bad_rows import BadRows, check_apart, errors_path
from rageval_hooks.offline.jobs.journal import file_hash, journal_path
from rageval_hooks.offline.jobs.keyed_journal import KeyedJournal
from rageval_hooks.offline.jobs.progress import progress_bar
from rageval_hooks.offline.records.files import read_records, write_records
from rageval_hooks.offline.testsets.testset import GoldenQuestion, check_output, read_questions
from rageval_hooks.text.wording import counted

__all__ = ["RunOptions", "run_app"]

Say = Callable[[str], object]


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks for; see ``rageval-hooks run --help``."""

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


def run_app(options: RunOptions, say: Say, warn: Say) -> int:
    """Ask an application the questions of a test set.

    What the application itself has of rageval-hooks is switched off meanwhile: its answers are not evaluated twice, nor
    mixed with those of its users.

    Args:
        options: what is asked for.
        say: gets each line of the result.
        warn: gets each line of what went wrong.

    Returns:
        0 if all went well, 1 if a question failed or a row was none, 2 if every question failed.

    Raises:
        ConfigurationError: an option is wrong.
        TurnError: the test set cannot be read, or has no column with questions.
    """
    check_output(options.output, (".jsonl",))
    errors = options.errors or errors_path(options.output)
    check_apart([options.data], [options.output], errors)
    # The application may change the current directory.
    bad_rows = BadRows(errors.absolute(), always=options.errors is not None)
    there = replace(options, data=options.data.absolute(), output=options.output.absolute())
    questions, bad = read_questions(options.data)
    with _switched_off():
        if options.retry_failed:
            _check_repeat(options, questions)
        ran = _asked(there, questions, lambda: warn(f"going on from {journal_path(options.output)}"))
    for line in ran.lines():
        say(line)
    with bad_rows:
        for row in bad:
            bad_rows.add(row)
    if bad:
        warn(
            f"{counted(len(bad), 'row')} of {options.data} could not be used: {errors}"
            f" (line {bad[0].line}: {bad[0].reason})"
        )
    say(f"wrote {options.output}")
    return 2 if ran.errors == ran.records else 1 if ran.errors or bad else 0


@contextmanager
def _switched_off() -> Iterator[None]:
    before = os.environ.get("RAGEVAL_ENABLED")
    os.environ["RAGEVAL_ENABLED"] = "false"
    try:
        yield
    finally:
        del os.environ["RAGEVAL_ENABLED"]
        if before is not None:
            os.environ["RAGEVAL_ENABLED"] = before


def _asked(options: RunOptions, questions: list[GoldenQuestion], going_on: Callable[[], object]) -> Ran:
    target = load(options.app)
    if not inspect.isawaitable(target):
        adapt(target, options.input_key)  # what is wrong with it is said before anything is written
    work = {
        "command": "run",
        "app": options.app,
        "data": file_hash(options.data),
        "input_key": options.input_key,
    }
    with KeyedJournal(journal_path(options.output), work, restart=options.restart) as journal:
        if len(journal):
            going_on()
        if options.retry_failed:
            keep_answers(read_records(options.output), questions, options.repeat, journal)
        ran = asyncio.run(_run(options, questions, target, journal))
        write_records(options.output, records_of(questions, options.repeat, journal))
        journal.remove()
    return ran


def _check_repeat(options: RunOptions, questions: list[GoldenQuestion]) -> None:
    """Check that no answer of the output would be lost, because it is asked for fewer repetitions than there are."""
    asked = {question.id for question in questions}
    most = max((record.run for record in read_records(options.output) if record.id in asked), default=1)
    if most > options.repeat:
        raise ConfigurationError(
            f"{options.output} has answers to {most} repetitions, which --retry-failed would keep only "
            f"{options.repeat} of: give --repeat {most}, or another output"
        )


async def _run(options: RunOptions, questions: list[GoldenQuestion], target: Any, journal: KeyedJournal) -> Ran:
    if inspect.isawaitable(target):  # a factory that is a coroutine function
        try:
            target = await target
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"--app: {options.app}() has failed: {type(error).__name__}: {error}") from error
    app = adapt(target, options.input_key)
    with progress_bar("run", len(questions) * options.repeat) as advance:
        return await run_questions(
            questions,
            app,
            journal,
            repeat=options.repeat,
            concurrency=options.concurrency,
            timeout=options.timeout,
            advance=advance,
        )
