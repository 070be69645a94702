"""Generates a test set: the command ``rageval-hooks generate``, whose options are in ``generate``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import Judge, resolve_judge
from rageval_hooks.offline.jobs.budget import Budget, Spent, with_concurrency
from rageval_hooks.offline.jobs.journal import Journal, journal_path
from rageval_hooks.offline.jobs.outputs import check_apart, done_path, earlier_result, mark_finished
from rageval_hooks.offline.jobs.running import progress_bar
from rageval_hooks.offline.records.files import check_output
from rageval_hooks.offline.testsets import (
    Chunk,
    ChunkIndex,
    Generated,
    Mix,
    Plan,
    QuestionTask,
    Unanswered,
    chunks_of,
    chunks_of_store,
    generate,
    plan_of,
    read_documents,
    resolve_styles,
    shared_ids,
    spread,
    tasks_of,
    unique_chunks,
    work_of,
    write_questions,
)
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.settings import Settings
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Usage

__all__ = ["GenerateOptions", "generate_questions"]

Say = Callable[[str], object]

# Of one answer of the judge, for the estimate of the cost.
_OUTPUT_TOKENS = 60
# Each chunk asks several questions at the same time.
_JUDGE_CONCURRENCY = 8


@dataclass(frozen=True)
class GenerateOptions:
    """The options of the command line; see ``rageval-hooks generate --help``."""

    sources: tuple[str, ...]
    outputs: tuple[Path, ...]
    judge: str | None = None
    judge_options: str | None = None
    chunk_size: int = 1000
    limit: int | None = None
    per_chunk: int = 1
    styles: tuple[str, ...] = ()
    multi_hop: float = 0.0
    unanswerable: float = 0.0
    unanswered: Unanswered = "mark"
    seed: int = 0
    concurrency: int = 4
    max_calls: int | None = None
    max_cost: float | None = None
    restart: bool = False
    encoding: str | None = None
    dry_run: bool = False


def generate_questions(options: GenerateOptions, say: Say, warn: Say) -> int:
    """Generate a test set.

    Args:
        options: the options of the command line.
        say: receives each line of the result.
        warn: receives each warning.

    Returns:
        0 if all went well, 1 if a source could not be read, or the judge or the budget failed for a chunk.

    Raises:
        ConfigurationError: an option is wrong, a finished test set would lose questions, or no question was accepted.
        JudgeRejectedError: the judge rejects every request.
    """
    # The judge costs money, so the outputs are checked before it is asked.
    for output in options.outputs:
        check_output(output)
    check_apart(map(Path, options.sources), options.outputs)
    # Absolute paths: importing a store may change the current directory.
    outputs = [output.absolute() for output in options.outputs]
    styles = resolve_styles(options.styles)
    mix = Mix(multi_hop=options.multi_hop, unanswerable=options.unanswerable)
    judge = _judge(options)
    found, all_read = _collection(options, warn)
    index = ChunkIndex(found if mix != Mix() else [])
    chunks = _chosen(found, options, say)
    tasks = tasks_of(chunks, styles=styles, per_chunk=options.per_chunk, mix=mix, index=index, seed=options.seed)
    _warn_about_links(tasks, mix, warn)
    journal_file = journal_path(outputs[0])
    if options.dry_run:
        _say_plan(_finished_or_partial(outputs, judge, options), tasks, judge, say)
        return 0
    # Answers of a finished test set are reused if only the number of questions changes.
    reused = _reopen(outputs, judge, tasks, options)
    with Journal(journal_file, _work(judge), restart=options.restart) as journal:
        if reused:
            warn(f"reusing the answers of the finished {options.outputs[0]}")
        elif len(journal):
            warn(f"going on from {journal_path(options.outputs[0])}")
        result = _generate(options, judge, tasks, index, journal)
        if len(result.questions) == result.marked:
            raise ConfigurationError("\n".join(["no question was accepted:", *result.lines()]))
        for output in outputs:
            write_questions(output, result.questions)
    if result.complete:
        mark_finished(outputs, _work(judge), journal=journal_file)
    for line in result.lines():
        say(line)
    say(f"wrote {', '.join(map(str, options.outputs))}")
    if not result.complete:
        more = " with a larger budget" if result.undone else ""
        warn(f"run the same command again{more} to resume: the answers are kept in {journal_path(options.outputs[0])}")
    return 0 if result.complete and all_read else 1


def _collection(options: GenerateOptions, warn: Say) -> tuple[list[Chunk], bool]:
    """Return all chunks of the sources, and whether every source could be read.

    Raises:
        ConfigurationError: no source has a chunk.
    """
    chunks, problems = _read_sources(options, warn)
    for problem in problems:
        warn(f"not read: {problem}")
    if not chunks:
        why = ""
        if problems:
            # The other problems were printed above.
            why = f" ({problems[0]})" if len(problems) == 1 else f" ({len(problems)} could not be read)"
        hint = "" if problems else ": there is no file with text (text, HTML, PDF, Office, EPUB, e-mail, JSONL)"
        raise ConfigurationError(f"there is nothing to ask about in {', '.join(options.sources)}{why}{hint}")
    if shared := shared_ids(chunks):
        warn(
            f"{counted(len(shared), 'chunk id')}, such as {min(shared)!r}, with several texts each: these chunks "
            "are named document:id, and run finds them by their text"
        )
    return _redacted(unique_chunks(chunks)), not problems


def _redacted(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks as the judge and the test set may have them."""
    privacy = PrivacyPolicy.of(Settings.build())
    if not privacy.active:
        return chunks
    return [chunk.model_copy(update={"text": privacy.text(chunk.text)}) for chunk in chunks]


def _work(judge: Judge) -> dict[str, Any]:
    """Return what the answers in a journal depend on. Those about redacted chunks and about original ones differ."""
    is_redacted = PrivacyPolicy.of(Settings.build()).active
    return {**work_of(judge), "redact": True} if is_redacted else work_of(judge)


def _chosen(found: list[Chunk], options: GenerateOptions, say: Say) -> list[Chunk]:
    """Return the chunks to ask about."""
    documents = len({chunk.document for chunk in found})
    chunks = found
    if options.limit is not None and options.limit < len(found):
        chunks = spread(found, options.limit, options.seed)
    say(f"{len(chunks)} of {counted(len(found), 'chunk')} of {counted(documents, 'document')}")
    return chunks


def _warn_about_links(tasks: list[QuestionTask], mix: Mix, warn: Say) -> None:
    """Say if fewer multi-hop questions than wanted are possible."""
    wanted = sum(kind == "multi-hop" for _, kind in zip(tasks, mix.kinds(), strict=False))
    possible = sum(task.kind == "multi-hop" for task in tasks)
    if possible < wanted:
        warn(
            f"multi-hop questions about {possible} of {counted(wanted, 'chunk')}: the others share no rare word or "
            "name with another chunk, and get plain questions"
        )


def _finished_or_partial(outputs: list[Path], judge: Judge, options: GenerateOptions) -> Path:
    """Return the journal whose answers are reused: that of a finished test set, or of an interrupted run.

    Raises:
        ConfigurationError: an output is in the way, or another judge wrote it.
    """
    partial = journal_path(outputs[0])
    earlier = None if options.restart else earlier_result(outputs, _work(judge))
    if earlier is None:
        return partial
    if earlier.changed:
        raise ConfigurationError(
            f"{options.outputs[0]} is a finished test set with another {', '.join(earlier.changed)}: "
            "name another output, or give --restart to replace it"
        )
    return done_path(outputs[0])


def _reopen(outputs: list[Path], judge: Judge, tasks: list[QuestionTask], options: GenerateOptions) -> bool:
    """Reopen the journal of a finished test set, if there is one, and return True.

    Raises:
        ConfigurationError: the new test set would lack questions of the finished one.
    """
    found = _finished_or_partial(outputs, judge, options)
    partial = journal_path(outputs[0])
    if found == partial:
        return False
    with Journal(found, _work(judge)) as journal:
        dropped = plan_of(tasks, journal).dropped
    if dropped:
        raise ConfigurationError(
            f"{options.outputs[0]} is a finished test set, of which the questions about {counted(dropped, 'chunk')} "
            "would be lost: name another output, or give --restart to replace it"
        )
    found.replace(partial)
    return True


def _say_plan(journal_file: Path, tasks: list[QuestionTask], judge: Judge, say: Say) -> None:
    """Say how many requests there would be."""
    with Journal(journal_file, _work(judge)) as journal:
        plan = plan_of(tasks, journal)
    say(f"{counted(plan.calls, 'request')} to {judge}, about {plan.tokens:,} input tokens{_price(plan, judge)}")
    say("dry run: nothing was asked, and nothing was written")


def _price(plan: Plan, judge: Judge) -> str:
    """Return the estimated cost in words; empty if the price is not known."""
    from rageval_hooks.judges.prices import price_usd

    provider, _, model = str(judge).partition(":")
    # A question with its answer, or a verdict, takes about as many tokens as two sentences.
    usage = Usage(input_tokens=plan.tokens, output_tokens=plan.calls * _OUTPUT_TOKENS)
    price = price_usd(usage, model, provider=provider or None)
    return "" if price is None else f", about {price:.2f} USD"


def _judge(options: GenerateOptions) -> Judge:
    settings = Settings.build(judge=options.judge, judge_options=options.judge_options)
    if settings.judge is None:
        raise ConfigurationError("--judge is required: it writes the questions. Give one such as openai:gpt-5-mini")
    more = with_concurrency(settings.judge, settings.judge_options, max(_JUDGE_CONCURRENCY, options.concurrency))
    return resolve_judge(settings.judge, **more)


def _read_sources(options: GenerateOptions, warn: Say) -> tuple[list[Chunk], list[str]]:
    paths = [Path(source) for source in options.sources if not _is_object(source)]
    written = [*options.outputs, journal_path(options.outputs[0]), done_path(options.outputs[0])]
    library = read_documents(paths, exclude=written, encoding=options.encoding)
    for line in library.skipped_lines():
        warn(line)
    chunks = list(chunks_of(library.documents, options.chunk_size))
    for source in options.sources:
        if _is_object(source):
            chunks += chunks_of_store(source)
    return chunks, list(map(str, library.problems))


def _is_object(source: str) -> bool:
    """Return True if a source names an object, such as ``my_app.store:vectorstore``, and not a path."""
    module, colon, name = source.partition(":")
    return (
        bool(colon)
        and not Path(source).exists()
        and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
    )


def _generate(
    options: GenerateOptions, judge: Judge, tasks: list[QuestionTask], index: ChunkIndex, journal: Journal
) -> Generated:
    budget = Budget(options.max_calls, options.max_cost, Spent.model_validate(journal.spent))

    async def work() -> Generated:
        with progress_bar("generate", len(tasks)) as advance:
            async with judge:
                return await generate(
                    tasks,
                    judge,
                    journal,
                    index=index,
                    concurrency=options.concurrency,
                    budget=budget,
                    unanswered=options.unanswered,
                    advance=advance,
                )

    return asyncio.run(work())
