"""``rageval-hooks run`` asks an application questions; ``launch`` starts one and evaluates its answers."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.output import resumable, say
from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.records import Record


def run(
    data: Annotated[Path, typer.Argument(help="Test set: any file with a column of questions.")],
    app: Annotated[
        str,
        typer.Option(
            "--app",
            metavar="PACKAGE.MODULE:OBJECT",
            help="A LangChain runnable, a LlamaIndex query engine, a function of a question that returns the answer or "
            "(answer, passages), or a function that makes one of these. An http(s) URL is asked by POST.",
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
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How often each question is asked.")] = 1,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Questions at a time.")] = 4,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for each question.")] = 300.0,
    max_errors: Annotated[
        str | None,
        typer.Option("--max-errors", metavar="N|P%", help="How many questions may fail with exit status 0: none."),
    ] = None,
    engine: options.Engine = "local",
    mapping: options.ColumnNames = None,
    ignore: options.IgnoredColumns = None,
    map_file: options.MapFile = None,
    sheet: options.Sheet = None,
    encoding: options.Encoding = None,
    errors: options.BadRowsFile = None,
    dry_run: options.DryRun = False,
    restart: options.Restart = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Keep the answers in the output and ask failed questions again.")
    ] = False,
) -> None:
    """Ask an application the questions of a test set. Run the same command again to resume an interrupted run.

    Exit status: 0 when all questions were answered, but for --max-errors; 1 when more failed; 2 when nothing could be
    done.
    """
    from rageval_hooks.offline import journal as files
    from rageval_hooks.offline.asking import Answers, ask_all, summarize
    from rageval_hooks.offline.loading import load_app
    from rageval_hooks.offline.records import read_records, write_records
    from rageval_hooks.offline.running import MaxErrors, progress_bar
    from rageval_hooks.offline.testsets import read_questions
    from rageval_hooks.privacy import PrivacyPolicy
    from rageval_hooks.settings import Settings
    from rageval_hooks.text.wording import counted

    with resumable(output), _evaluation_off(), asyncio.Runner() as runner:
        allowed = MaxErrors.parse(max_errors)
        privacy = PrivacyPolicy.of(Settings.build())
        # Absolute paths: the application may change the current directory.
        there, partial = output.absolute(), files.journal_path(output.absolute())
        bad_rows = files.BadRows(there, errors and errors.absolute(), privacy)
        [output_format] = files.check_files([data], [output], bad_rows.path)
        if output_format.has_columns:
            raise ConfigurationError(f"the output {output} should end in .jsonl: a table has no passages")
        reading = options.read_options(
            data, ("query",), mapping=mapping, ignore=ignore, map_file=map_file, sheet=sheet, encoding=encoding
        )
        questions, bad = read_questions(data, reading, note=say)
        total = len(questions) * repeat
        # What decides on the answers, by the names that a user knows. Redacted and original answers are not mixed.
        work: dict[str, Any] = {"command": "run", "app": app, "data": files.file_hash(data), "input_key": input_key}
        work |= reading.settings()
        # A hash, since the body may have a key.
        work |= {"request": hashlib.sha256(request.encode()).hexdigest()} if request is not None else {}
        work |= {"redact": True} if privacy.active else {}

        # An interrupted run has a journal, which keeps the answers itself.
        whole = {**work, "repeat": repeat}
        # More questions or repetitions add to the answers of a finished run. Every answer stays.
        changed = None if restart else files.earlier_result([there], whole, may_change=("data", "repeat"))
        records = list(read_records(there)) if changed is not None else []
        wanted = {(question.id, privacy.text(question.question)) for question in questions}
        if lost := sum((record.id, record.turn.query) not in wanted or record.run > repeat for record in records):
            raise ConfigurationError(f"{counted(lost, 'answer')} in {output} would be lost: {files.REPLACE}")
        named: dict[str, Any] = {"name": app, "request": request, "input_key": input_key}
        # Errors are reported before anything is written. With Ray, only the actors import the application.
        target = runner.run(load_app(**named)) if engine == "local" else None

        if changed == [] and not retry_failed and not dry_run:
            typer.echo(f"{output} is finished already, with the same options: nothing was asked again", err=True)
        else:
            # A dry run counts on what an interrupted run has, and leaves no journal behind.
            path = None if dry_run and (restart or not partial.exists()) else partial
            with files.Journal(path, work, restart=restart) as journal:
                is_resumed = len(journal) > 0
                answers = Answers(questions, repeat, journal, privacy)
                answers.reuse(record for record in records if not retry_failed or record.turn.status != "error")
                waiting = answers.waiting()
                if dry_run:
                    kept = counted(total - len(waiting), "answer")
                    typer.echo(f"{counted(len(waiting), 'call')} of the application, {kept} kept")
                    typer.echo("dry run: nothing was asked, and nothing was written")
                    return
                if is_resumed:
                    typer.echo(f"going on from {files.journal_path(output)}", err=True)
                with progress_bar("run", total) as advance:
                    advance(total - len(waiting))

                    def keep(record: Record) -> None:
                        answers.keep(record)
                        advance(1)

                    if target is None:
                        from rageval_hooks.offline.ray_engine import ask_on_ray

                        for record in ask_on_ray(waiting, named, concurrency=concurrency, timeout=timeout):
                            keep(record)
                    else:
                        runner.run(ask_all(waiting, target, keep, concurrency=concurrency, timeout=timeout))
                write_records(there, answers.records())
                journal.remove()
            files.mark_finished([there], whole)

        summary = summarize(read_records(there))
        for line in summary.lines:
            typer.echo(line)
        with bad_rows:
            for row in bad:
                bad_rows.add(row)
        if bad:
            reason = f"{bad_rows.path} (line {bad[0].line}: {bad[0].reason})"
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


def launch(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The command that starts it, such as: python app.py")
    ],
) -> None:
    """Start an application and evaluate its answers. The settings are environment variables: RAGEVAL_METRICS ..."""
    from rageval_hooks.zero_code.launch import launch

    launch(command)
