"""``rageval-hooks run`` asks an application questions; ``run-app`` starts one and evaluates its answers."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rageval_hooks.cli.options import BadRowsFile, ColumnNames, DryRun, Encoding, Engine, EngineName, Restart
from rageval_hooks.cli.output import resumable
from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.apps import RunSummary
    from rageval_hooks.offline.jobs.journal import Journal
    from rageval_hooks.offline.jobs.outputs import EarlierResult
    from rageval_hooks.offline.records.record import Record
    from rageval_hooks.offline.testsets import GoldenQuestion
    from rageval_hooks.privacy import PrivacyPolicy


def run(
    data: Annotated[Path, typer.Argument(help="Test set: any file with a column of questions.")],
    app: Annotated[
        str,
        typer.Option(
            "--app",
            metavar="PACKAGE.MODULE:OBJECT",
            help="A LangChain runnable, a LlamaIndex query engine, a function of a question that returns the answer or "
            "(answer, passages), or a function without arguments that returns one of these. An http(s) URL is asked "
            "by POST.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the records go: .jsonl, for score.")],
    input_key: Annotated[
        str | None, typer.Option("--input-key", metavar="NAME", help="Key of the question in the application's input.")
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(
            "--request",
            metavar="JSON",
            help='Body for an app that is a URL, with {question} where the question goes: \'{"q": "{question}"}\'.',
        ),
    ] = None,
    follow_redirects: Annotated[
        bool,
        typer.Option(
            "--follow-redirects",
            help="Ask again where a URL redirects to on the same host. Other redirects are errors.",
        ),
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How often each question is asked.")] = 1,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Questions at a time.")] = 4,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for each question.")] = 300.0,
    max_errors: Annotated[
        str | None,
        typer.Option("--max-errors", metavar="N|P%", help="How many questions may fail with exit status 0: none."),
    ] = None,
    engine: EngineName = Engine.local,
    mapping: ColumnNames = None,
    encoding: Encoding = None,
    errors: BadRowsFile = None,
    dry_run: DryRun = False,
    restart: Restart = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Keep the answers in the output and ask failed questions again.")
    ] = False,
) -> None:
    """Ask an application the questions of a test set. Run the same command again to resume an interrupted run.

    Exit status: 0 when all questions were answered, but for --max-errors; 1 when more failed; 2 when nothing could be
    done.
    """
    from rageval_hooks.offline.apps import adapt, keep_answers, load, records_of, summarize, waiting_in
    from rageval_hooks.offline.jobs.journal import Journal, file_hash, journal_path
    from rageval_hooks.offline.jobs.max_errors import MaxErrors
    from rageval_hooks.offline.jobs.outputs import BadRows, check_apart, earlier_result, errors_path, mark_finished
    from rageval_hooks.offline.records import read_records
    from rageval_hooks.offline.records.columns import ColumnMap
    from rageval_hooks.offline.records.writing import check_output, write_records
    from rageval_hooks.offline.testsets import read_questions
    from rageval_hooks.privacy import PrivacyPolicy
    from rageval_hooks.settings import Settings
    from rageval_hooks.text.wording import counted

    with resumable(output), _evaluation_off():
        allowed = MaxErrors.parse(max_errors)
        if check_output(output).has_columns:
            raise ConfigurationError(f"the output {output} should end in .jsonl: a table has no passages")
        bad_file = errors or errors_path(output)
        check_apart([data], [output], bad_file)
        privacy = PrivacyPolicy.of(Settings.build())
        questions, bad = read_questions(data, mapping=ColumnMap.parse(mapping or ()), encoding=encoding)
        # Absolute paths: the application may change the current directory.
        bad_rows = BadRows(bad_file.absolute(), always=errors is not None, privacy=privacy)
        there = output.absolute()
        # What decides on the answers, by the names that a user knows. Redacted and original answers are not mixed.
        work: dict[str, Any] = {"command": "run", "app": app, "data": file_hash(data), "input_key": input_key}
        work |= {"redact": True} if privacy.active else {}

        # An interrupted run has a journal, which keeps the answers itself.
        earlier = None if restart else earlier_result([there], {**work, "repeat": repeat})
        records = list(read_records(there)) if earlier is not None else []
        _check_nothing_is_lost(earlier, records, {(q.id, privacy.text(q.question)) for q in questions}, repeat, output)
        kept = [record for record in records if not retry_failed or record.turn.status != "error"]
        named: dict[str, Any] = {"name": app, "request": request, "follow_redirects": follow_redirects}
        # With Ray, only the actors import the application.
        target = load(**named) if engine is Engine.local else None
        if engine is Engine.local and not inspect.isawaitable(target):
            adapt(target, input_key)  # errors are reported before anything is written
        is_finished = earlier is not None and not earlier.changed and not retry_failed
        if (dry_run or is_finished) and inspect.iscoroutine(target):
            target.close()
        if dry_run:
            answered = {(record.run, record.id) for record in kept}
            total = len(questions) * repeat
            done = sum((number, q.id) in answered for q in questions for number in range(1, repeat + 1))
            if not restart and journal_path(there).exists():
                with Journal(journal_path(there), work) as journal:
                    done += total - len(waiting_in(questions, repeat, journal))
            typer.echo(f"{counted(total - done, 'call')} of the application, {counted(done, 'answer')} kept")
            typer.echo("dry run: nothing was asked, and nothing was written")
            return
        if is_finished:
            typer.echo(f"{output} is finished already, with the same options: nothing was asked again", err=True)
            summary: RunSummary = summarize(records)
        else:
            with Journal(journal_path(there), work, restart=restart) as journal:
                if len(journal):
                    typer.echo(f"going on from {journal_path(output)}", err=True)
                keep_answers(kept, journal)
                how = (input_key, questions, journal, repeat, concurrency, timeout, privacy)
                summary = _ask_on_ray(named, *how) if engine is Engine.ray else asyncio.run(_ask(target, app, *how))
                write_records(there, records_of(questions, repeat, journal))
                journal.remove()
            mark_finished([there], {**work, "repeat": repeat})

        for line in summary.lines():
            typer.echo(line)
        with bad_rows:
            for row in bad:
                bad_rows.add(row)
        if bad:
            reason = f"{bad_file} (line {bad[0].line}: {bad[0].reason})"
            typer.echo(f"{counted(len(bad), 'row')} of {data} could not be used: {reason}", err=True)
        typer.echo(f"wrote {output}")
        if summary.errors and summary.errors == summary.records:
            raise typer.Exit(2)  # the application does not work
        too_many = not allowed.allows(summary.errors, summary.records)
        if too_many and str(allowed) != "0":
            typer.echo(f"{counted(summary.errors, 'question')} failed: --max-errors allows {allowed}", err=True)
        if too_many or bad:
            raise typer.Exit(1)


@contextmanager
def _evaluation_off() -> Iterator[None]:
    """Switch the application's own rageval-hooks off: test answers are neither evaluated twice nor mixed with others.

    The application is imported later, and calls instrument() then: only the environment reaches it.
    """
    before = os.environ.get("RAGEVAL_ENABLED")
    os.environ["RAGEVAL_ENABLED"] = "false"
    try:
        yield
    finally:
        del os.environ["RAGEVAL_ENABLED"]
        if before is not None:
            os.environ["RAGEVAL_ENABLED"] = before


def _check_nothing_is_lost(
    earlier: EarlierResult | None,
    records: Iterable[Record],
    wanted: Container[tuple[str, str]],
    repeat: int,
    output: Path,
) -> None:
    """Check that this run keeps every answer of the finished one: more questions or repetitions only add to them."""
    from rageval_hooks.text.wording import counted

    changed = [] if earlier is None else [name for name in earlier.changed if name not in ("data", "repeat")]
    lost = sum((record.id, record.turn.query) not in wanted or record.run > repeat for record in records)
    if changed:
        problem = f"a finished run with another {', '.join(changed)}"
    elif lost:
        problem = f"a finished run, of which {counted(lost, 'answer')} would be lost"
    else:
        return
    raise ConfigurationError(f"{output} holds {problem}: name another output, or give --restart to replace it")


async def _ask(
    target: Any,
    name: str,
    input_key: str | None,
    questions: Sequence[GoldenQuestion],
    journal: Journal,
    repeat: int,
    concurrency: int,
    timeout: float,
    privacy: PrivacyPolicy,
) -> RunSummary:
    from rageval_hooks.offline.apps import adapt, run_questions
    from rageval_hooks.offline.jobs.running import progress_bar

    if inspect.isawaitable(target):  # a factory that is a coroutine function
        try:
            target = await target
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"--app: {name}() failed: {type(error).__name__}: {error}") from error
    with progress_bar("run", len(questions) * repeat) as advance:
        return await run_questions(
            questions,
            adapt(target, input_key),
            journal,
            repeat=repeat,
            concurrency=concurrency,
            timeout=timeout,
            privacy=privacy,
            advance=advance,
        )


def _ask_on_ray(
    app: Mapping[str, Any],
    input_key: str | None,
    questions: Sequence[GoldenQuestion],
    journal: Journal,
    repeat: int,
    concurrency: int,
    timeout: float,
    privacy: PrivacyPolicy,
) -> RunSummary:
    from rageval_hooks.offline.apps import keep_record, records_of, summarize, waiting_in
    from rageval_hooks.offline.jobs.running import progress_bar
    from rageval_hooks.offline.ray_engine import ask_on_ray

    waiting = waiting_in(questions, repeat, journal)
    with progress_bar("run", len(waiting)) as advance:
        for (question, number), record in ask_on_ray(waiting, app, input_key, concurrency=concurrency, timeout=timeout):
            keep_record(question, number, record, journal, privacy)
            advance(1)
    return summarize(records_of(questions, repeat, journal))


def run_app(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The command that starts it, such as: python app.py")
    ],
) -> None:
    """Start an application and evaluate its answers. The settings are environment variables: RAGEVAL_METRICS ..."""
    from rageval_hooks.zero_code.launch import launch

    launch(command)
