"""The options of ``rageval-hooks generate``. Its work is in ``generate_questions``; ``--help`` does not import it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli.output import resumable

__all__ = ["generate"]


class OnUnanswered(StrEnum):
    """What becomes of an ordinary question that its own chunk does not answer."""

    # Not the Literal of the same values: typer before 0.19 does not know it.
    mark = "mark"
    unanswerable = "unanswerable"
    reject = "reject"


def generate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files and folders (text, HTML, PDF, Office, EPUB, e-mail, JSONL), or package.module:object of a "
            "vector store or index.",
            show_default=False,
        ),
    ],
    output: Annotated[
        list[Path],
        typer.Option("--output", "-o", metavar="FILE", help="Test set, .jsonl or .csv; may be given for each."),
    ],
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="PROVIDER:MODEL", help="Who writes and checks the questions; RAGEVAL_JUDGE."),
    ] = None,
    judge_options: Annotated[
        str | None,
        typer.Option("--judge-options", metavar="NAME=VALUE", help="Such as base_url=http://localhost:8000/v1."),
    ] = None,
    chunk_size: Annotated[int, typer.Option("--chunk-size", min=50, help="Characters of a chunk, at most.")] = 1000,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Chunks to ask about, spread over the documents.")
    ] = None,
    per_chunk: Annotated[int, typer.Option("--per-chunk", min=1, max=20, help="Questions about each chunk.")] = 1,
    style: Annotated[
        list[str] | None,
        typer.Option(
            "--style",
            metavar="STYLE",
            help="factual, paraphrased, multi-part, keyword, reasoning, yes-no, scenario; several take turns.",
        ),
    ] = None,
    multi_hop: Annotated[
        float,
        typer.Option("--multi-hop", metavar="SHARE", help="Share of questions that need two chunks, such as 0.2."),
    ] = 0.0,
    unanswerable: Annotated[
        float,
        typer.Option("--unanswerable", metavar="SHARE", help="Share of questions that the documents do not answer."),
    ] = 0.0,
    unanswered: Annotated[
        OnUnanswered,
        typer.Option(
            "--unanswered",
            help="A plain question that its own chunk does not answer: keep it with a mark, keep it as unanswerable, "
            "or reject it.",
        ),
    ] = OnUnanswered.mark,
    seed: Annotated[int, typer.Option("--seed", help="Another one chooses other chunks.")] = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Chunks at a time.")] = 4,
    max_calls: Annotated[int | None, typer.Option("--max-calls", min=1, help="Requests to the judge, at most.")] = None,
    max_cost: Annotated[float | None, typer.Option("--max-cost", min=0, help="USD for the judge, at most.")] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of text files; detected by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many requests there would be, and stop.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an interrupted run, and replace a finished test set.")
    ] = False,
) -> None:
    """Make a test set: questions about your documents, each with its answer and the chunk that holds it.

    Run the same command again to resume an interrupted run, or with a larger --limit to enlarge a test set: answers of
    the judge are reused. Exit status: 0 when all went well; 1 when a file could not be read, or the judge or the budget
    failed for a chunk; 2 when nothing could be done.
    """
    from rageval_hooks.cli.generate_questions import GenerateOptions, generate_questions

    options = GenerateOptions(
        sources=tuple(sources),
        outputs=tuple(output),
        judge=judge,
        judge_options=judge_options,
        chunk_size=chunk_size,
        limit=limit,
        per_chunk=per_chunk,
        styles=tuple(style or ()),
        multi_hop=multi_hop,
        unanswerable=unanswerable,
        unanswered=unanswered.value,
        seed=seed,
        concurrency=concurrency,
        max_calls=max_calls,
        max_cost=max_cost,
        restart=restart,
        encoding=encoding,
        dry_run=dry_run,
    )
    with resumable(output[0]):
        status = generate_questions(options, say=typer.echo, warn=lambda text: typer.echo(text, err=True))
    raise typer.Exit(status)
