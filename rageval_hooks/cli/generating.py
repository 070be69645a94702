"""The command ``generate``: sources in, a test set out, and an exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import Judge
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.offline.jobs.bad_rows import check_apart
from rageval_hooks.offline.jobs.budget import Budget, Spent
from rageval_hooks.offline.jobs.journal import journal_path
from rageval_hooks.offline.jobs.keyed_journal import KeyedJournal
from rageval_hooks.offline.jobs.progress import progress_bar
from rageval_hooks.offline.testsets.chunks import Chunk, chunks_of, shared_ids, spread, unique_chunks
from rageval_hooks.offline.testsets.documents import read_documents
from rageval_hooks.offline.testsets.generation import Generated, generate, work_of
from rageval_hooks.offline.testsets.stores import chunks_of_store
from rageval_hooks.offline.testsets.styles import resolve_styles
from rageval_hooks.offline.testsets.testset import check_output, write_questions
from rageval_hooks.settings import Settings
from rageval_hooks.text.wording import counted

__all__ = ["GenerateOptions", "run_generate"]

Say = Callable[[str], object]


@dataclass(frozen=True)
class GenerateOptions:
    """What the command line asks for; see ``rageval-hooks generate --help``."""

    sources: tuple[str, ...]
    outputs: tuple[Path, ...]
    judge: str | None = None
    judge_options: str | None = None
    chunk_size: int = 1000
    limit: int | None = None
    per_chunk: int = 1
    styles: tuple[str, ...] = ()
    seed: int = 0
    concurrency: int = 4
    max_calls: int | None = None
    max_cost: float | None = None
    restart: bool = False


def run_generate(options: GenerateOptions, say: Say, warn: Say) -> int:
    """Make a test set.

    Args:
        options: what is asked for.
        say: gets each line of the result.
        warn: gets each line of what went wrong.

    Returns:
        0 if all went well, 1 if something could not be read, answered or afforded.

    Raises:
        ConfigurationError: an option is wrong, or nothing came of it.
        JudgeRejectedError: the judge takes no request at all.
    """
    for output in options.outputs:
        check_output(output, (".jsonl", ".csv"))
    check_apart(map(Path, options.sources), options.outputs)
    outputs = [output.absolute() for output in options.outputs]  # importing a store may change the current directory
    styles = resolve_styles(options.styles)
    judge = _judge(options)
    chunks, problems = _chunks(options)
    for problem in problems:
        warn(f"not read: {problem}")
    if not chunks:
        why = f" ({problems[0]})" if len(problems) == 1 else f" ({len(problems)} could not be read)" if problems else ""
        raise ConfigurationError(f"there is nothing to ask about in {', '.join(options.sources)}{why}")
    shared = shared_ids(chunks)
    chunks = unique_chunks(chunks)
    if shared:
        warn(
            f"{counted(len(shared), 'id')} of chunks, such as {min(shared)!r}, with several texts each: these chunks "
            "are named document:id, and run finds them by their text"
        )
    documents = len({chunk.document for chunk in chunks})
    found = len(chunks)
    if options.limit is not None and options.limit < found:
        chunks = spread(chunks, options.limit, options.seed)
    say(f"{len(chunks)} of {counted(found, 'chunk')} of {counted(documents, 'document')}")
    journal = KeyedJournal(journal_path(outputs[0]), work_of(judge), restart=options.restart)
    with journal:
        result = _generate(options, styles, judge, chunks, journal, warn)
        if not result.questions:
            raise ConfigurationError("\n".join(["no question came of it:", *result.lines()]))
        for output in outputs:
            write_questions(output, result.questions)
        if result.complete:
            journal.remove()
    for line in result.lines():
        say(line)
    say(f"wrote {', '.join(map(str, options.outputs))}")
    if not result.complete:
        more = " with a larger budget" if result.undone else ""
        warn(f"run the same command again{more} to go on: what is done is kept in {journal_path(options.outputs[0])}")
    return 0 if result.complete and not problems else 1


def _judge(options: GenerateOptions) -> Judge:
    settings = Settings.build(judge=options.judge, judge_options=options.judge_options)
    if settings.judge is None:
        raise ConfigurationError("somebody has to write the questions: pass --judge, such as openai:gpt-5-mini")
    more = dict(settings.judge_options)
    if settings.judge.partition(":")[0].strip() == "openai":  # which has a limit of its own
        more.setdefault("max_concurrency", max(8, options.concurrency))
    return resolve_judge(settings.judge, **more)


def _chunks(options: GenerateOptions) -> tuple[list[Chunk], list[str]]:
    paths = [Path(source) for source in options.sources if not _is_object(source)]
    written = [*options.outputs, journal_path(options.outputs[0])]
    library = read_documents(paths, leave_out=written)
    chunks = list(chunks_of(library.documents, options.chunk_size))
    for source in options.sources:
        if _is_object(source):
            chunks += chunks_of_store(source)
    return chunks, list(map(str, library.problems))


def _is_object(source: str) -> bool:
    """Whether a source is the name of an object and not a path."""
    module, colon, name = source.partition(":")
    return (
        bool(colon)
        and not Path(source).exists()
        and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
    )


def _generate(
    options: GenerateOptions,
    styles: tuple[str, ...],
    judge: Judge,
    chunks: list[Chunk],
    journal: KeyedJournal,
    warn: Say,
) -> Generated:
    spent = Spent.model_validate(journal[journal.last]["spent"]) if journal.last is not None else None
    budget = Budget(options.max_calls, options.max_cost, spent)

    async def work() -> Generated:
        with progress_bar("generate", len(chunks)) as advance:
            async with judge:
                return await generate(
                    chunks,
                    judge,
                    journal,
                    styles=styles,
                    per_chunk=options.per_chunk,
                    concurrency=options.concurrency,
                    budget=budget,
                    advance=advance,
                )

    if len(journal):
        warn(f"going on from {journal_path(options.outputs[0])}")
    return asyncio.run(work())
