"""``rageval-hooks generate``: make a test set from documents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rageval_hooks.cli.options import DryRun, Encoding, JudgeName, JudgeOptionTexts, MaxCalls, MaxCost, Restart
from rageval_hooks.cli.output import resumable
from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.running import Advance
    from rageval_hooks.offline.testsets import Chunk, generation
    from rageval_hooks.privacy import PrivacyPolicy


def generate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", help="Files, folders, or package.module:object of a vector store or index."
        ),
    ],
    output: Annotated[
        list[Path],
        typer.Option("--output", "-o", metavar="FILE", help="Test set, .jsonl or .csv; may be given for each."),
    ],
    judge: JudgeName = None,
    judge_options: JudgeOptionTexts = None,
    chunk_size: Annotated[int, typer.Option("--chunk-size", min=50, help="Characters of a chunk, at most.")] = 1000,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Chunks to ask about, spread over the documents.")
    ] = None,
    per_chunk: Annotated[int, typer.Option("--per-chunk", min=1, max=20, help="Questions about each chunk.")] = 1,
    style: Annotated[
        list[str] | None,
        typer.Option("--style", metavar="STYLE", help="Such as factual, keyword or yes-no; several take turns."),
    ] = None,
    multi_hop: Annotated[
        float,
        typer.Option("--multi-hop", metavar="SHARE", help="Share of questions that need two chunks, such as 0.2."),
    ] = 0.0,
    unanswerable: Annotated[
        float, typer.Option("--unanswerable", metavar="SHARE", help="Share that the documents do not answer.")
    ] = 0.0,
    unanswered: Annotated[
        Literal["mark", "unanswerable", "reject"],
        typer.Option("--unanswered", help="What becomes of a question that its chunk does not answer."),
    ] = "mark",
    seed: Annotated[int, typer.Option("--seed", help="Another one chooses other chunks.")] = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Chunks at a time.")] = 4,
    max_calls: MaxCalls = None,
    max_cost: MaxCost = None,
    encoding: Encoding = None,
    dry_run: DryRun = False,
    restart: Restart = False,
) -> None:
    """Make a test set: questions about your documents, each with its answer and the chunk that holds it.

    Run the same command again to resume an interrupted run, or with a larger --limit to enlarge a test set: answers of
    the judge are reused. Exit status: 0 when all went well; 1 when a file could not be read, or the judge or the budget
    failed for a chunk; 2 when nothing could be done.
    """
    from rageval_hooks.judges.resolve import resolve_judge
    from rageval_hooks.offline.command_judge import Budget, Spent, describe_requests, with_concurrency
    from rageval_hooks.offline.journal import (
        REPLACE,
        Journal,
        check_files,
        done_path,
        earlier_result,
        journal_path,
        mark_finished,
    )
    from rageval_hooks.offline.running import progress_bar
    from rageval_hooks.offline.testsets import ChunkIndex, generation, write_questions
    from rageval_hooks.offline.testsets.chunks import spread
    from rageval_hooks.offline.testsets.questions import PROMPTS_VERSION, resolve_styles
    from rageval_hooks.online.build import within_budget
    from rageval_hooks.privacy import PrivacyPolicy
    from rageval_hooks.settings import Settings
    from rageval_hooks.text.wording import counted

    with resumable(output[0]):
        # The judge costs money, so everything is checked before it is asked.
        check_files(map(Path, sources), output)
        # Absolute paths: importing a store may change the current directory.
        outputs = [file.absolute() for file in output]
        partial, finished = journal_path(outputs[0]), done_path(outputs[0])
        styles = resolve_styles(style or ())
        mix = generation.Mix(multi_hop=multi_hop, unanswerable=unanswerable)
        settings = Settings.build(judge=judge, judge_options=judge_options)
        if settings.judge is None:
            raise ConfigurationError("--judge is required: it writes the questions. Give one such as openai:gpt-5-mini")
        options = with_concurrency(settings.judge, settings.judge_options, concurrency)
        writer = within_budget(resolve_judge(settings.judge, **options), settings)
        privacy = PrivacyPolicy.of(settings)
        # What the answers in a journal depend on, apart from chunk and styles. Those about redacted chunks differ.
        work: dict[str, Any] = {"command": "generate", "judge": str(writer), "prompts": PROMPTS_VERSION}
        work |= {"redact": True} if privacy.active else {}

        found, all_read = _collection(sources, [*outputs, partial, finished], chunk_size, encoding, privacy)
        chunks = spread(found, limit, seed)
        documents = len({chunk.document for chunk in found})
        typer.echo(f"{len(chunks)} of {counted(len(found), 'chunk')} of {counted(documents, 'document')}")
        index = ChunkIndex(found if mix != generation.Mix() else [])
        tasks = generation.tasks_of(chunks, styles=styles, per_chunk=per_chunk, mix=mix, index=index, seed=seed)
        linked = sum(task.kind == "multi-hop" for task in tasks)
        if linked < int(multi_hop * len(chunks)):
            rest = "the others share no rare word or name with another chunk, and get plain questions"
            typer.echo(f"multi-hop questions about {counted(linked, 'chunk')}: {rest}", err=True)

        earlier = None if restart else earlier_result(outputs, work)
        if dry_run or earlier is not None:
            with Journal(partial if earlier is None else finished, work) as journal:
                plan = generation.plan_of(tasks, journal)
                dropped = generation.dropped_by(tasks, journal)
            if dry_run:
                typer.echo(describe_requests(str(writer), *plan))
                typer.echo("dry run: nothing was asked, and nothing was written")
                return
            if dropped:
                lost = f"the questions about {counted(dropped, 'chunk')} would be lost"
                raise ConfigurationError(f"{output[0]} is a finished test set, and {lost}: {REPLACE}")
            # Answers of a finished test set are reused if only the number of questions changes.
            finished.replace(partial)
        with Journal(partial, work, restart=restart) as journal:
            if earlier is not None:
                typer.echo(f"reusing the answers of the finished {output[0]}", err=True)
            elif len(journal):
                typer.echo(f"going on from {journal_path(output[0])}", err=True)
            budget = Budget(max_calls, max_cost, Spent.model_validate(journal.spent))

            async def ask(advance: Advance) -> generation.Generated:
                async with writer:
                    return await generation.generate(
                        tasks,
                        writer,
                        journal,
                        index=index,
                        concurrency=concurrency,
                        budget=budget,
                        unanswered=unanswered,
                        advance=advance,
                    )

            with progress_bar("generate", len(tasks)) as advance:
                result = asyncio.run(ask(advance))
            if len(result.questions) == result.marked:
                raise ConfigurationError("\n".join(["no question was accepted:", *result.lines()]))
            for file in outputs:
                write_questions(file, result.questions)
        if result.complete:
            mark_finished(outputs, work, journal=partial)
        for line in result.lines():
            typer.echo(line)
        typer.echo(f"wrote {', '.join(map(str, output))}")
        if not result.complete:
            more = " with a larger budget" if result.undone else ""
            kept = f"the answers are kept in {journal_path(output[0])}"
            typer.echo(f"run the same command again{more} to resume: {kept}", err=True)
        if not (result.complete and all_read):
            raise typer.Exit(1)


def _collection(
    sources: Sequence[str], exclude: Sequence[Path], chunk_size: int, encoding: str | None, privacy: PrivacyPolicy
) -> tuple[list[Chunk], bool]:
    """Return all chunks of the sources, as the judge and the test set may have them, and whether all could be read.

    Raises:
        ConfigurationError: no source has a chunk.
    """
    from rageval_hooks.offline.testsets.chunks import chunks_of, shared_ids, unique_chunks
    from rageval_hooks.offline.testsets.documents import read_documents
    from rageval_hooks.offline.testsets.stores import chunks_of_store
    from rageval_hooks.text.wording import counted

    stores = [source for source in sources if _is_object(source)]
    library = read_documents(
        [Path(source) for source in sources if source not in stores], exclude=exclude, encoding=encoding
    )
    problems = library.problems
    for line in (*library.skipped_lines(), *(f"not read: {problem}" for problem in problems)):
        typer.echo(line, err=True)
    chunks = list(chunks_of(library.documents, chunk_size))
    for store in stores:
        chunks += chunks_of_store(store)
    if not chunks:
        why = f" ({len(problems)} could not be read)" if problems else ": there is no file with text"
        if len(problems) == 1:
            why = f" ({problems[0]})"
        raise ConfigurationError(f"there is nothing to ask about in {', '.join(sources)}{why}")
    if shared := shared_ids(chunks):
        named = "with several texts: these chunks are named document:id"
        typer.echo(f"{counted(len(shared), 'chunk id')}, such as {min(shared)!r}, {named}", err=True)
    found = unique_chunks(chunks)
    if privacy.active:
        found = [chunk.model_copy(update={"text": privacy.text(chunk.text)}) for chunk in found]
    return found, not problems


def _is_object(source: str) -> bool:
    """Return True if a source names an object, such as ``my_app.store:vectorstore``, and not a path."""
    module, colon, name = source.partition(":")
    parts = (*module.split("."), *name.split("."))
    return bool(colon) and not Path(source).exists() and all(part.isidentifier() for part in parts)
