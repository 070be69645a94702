"""``rageval-hooks run`` asks an application questions; ``run-app`` starts one and evaluates its answers.

The work of ``run`` is in ``ask_questions``, so that ``--help`` does not import that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli.output import resumable

__all__ = ["run", "run_app"]


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
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="Column of a field, such as query=user_text. Repeatable."),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of the test set; detected by default.")
    ] = None,
    errors: Annotated[
        Path | None, typer.Option("--errors", help="Where rows without a question go. Default: next to the output.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many calls there would be, and stop.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an interrupted run, and replace a finished output.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Keep the answers in the output and ask failed questions again.")
    ] = False,
) -> None:
    """Ask an application the questions of a test set. Run the same command again to resume an interrupted run.

    Exit status: 0 when all questions were answered, but for --max-errors; 1 when more failed; 2 when nothing could be
    done.
    """
    from rageval_hooks.cli.ask_questions import RunOptions, ask_questions

    options = RunOptions(
        data=data,
        app=app,
        output=output,
        input_key=input_key,
        repeat=repeat,
        concurrency=concurrency,
        timeout=timeout,
        errors=errors,
        restart=restart,
        retry_failed=retry_failed,
        max_errors=max_errors,
        mapping=tuple(mapping or ()),
        encoding=encoding,
        request=request,
        follow_redirects=follow_redirects,
        dry_run=dry_run,
    )
    with resumable(output):
        status = ask_questions(options, say=typer.echo, warn=lambda text: typer.echo(text, err=True))
    raise typer.Exit(status)


def run_app(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The command that starts it, such as: python app.py")
    ],
) -> None:
    """Start an application and evaluate its answers. The settings are environment variables: RAGEVAL_METRICS ..."""
    from rageval_hooks.zero_code.launch import launch

    launch(command)
