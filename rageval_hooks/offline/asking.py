"""Asks an application questions, captures what the frameworks do for them, and keeps a record of each answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple

from rageval_hooks.errors import RagevalError, TurnError
from rageval_hooks.integrations.capture.deferred import settle
from rageval_hooks.integrations.manual.block import Block
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.models import Models
from rageval_hooks.offline.answerability import is_refusal
from rageval_hooks.offline.journal import Journal
from rageval_hooks.offline.loading import App, adapt
from rageval_hooks.offline.records.record import Record, are_comparable, place_target
from rageval_hooks.offline.records.values import passages_in
from rageval_hooks.offline.running import run_on_thread, work_together
from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.online.build import Parts
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.narrowing import entry_or_attribute
from rageval_hooks.settings import Settings
from rageval_hooks.text.wording import with_article
from rageval_hooks.turn import ErrorInfo, Passage, Timing, Turn

# Names of the answer and of the passages in the results of frameworks and of tutorials, the most specific first.
_ANSWER_KEYS = ("answer", "response", "result", "output", "output_text", "text", "content")
_PASSAGE_KEYS = (
    *("passages", "contexts", "source_documents", "source_nodes", "retrieved_contexts", "documents", "chunks"),
    "context",
)
_FORMS = "a text, a pair of text and passages, a mapping with 'answer' and 'passages', or a Turn"
_MAX_ERROR_LENGTH = 500

Asking = tuple[GoldenQuestion, int]
"""A question and the number of its repetition."""


class UnreadableAnswerError(RagevalError):
    """The application returned something that holds no answer."""


# --------------------------------------------------------------------------- many questions


async def ask_all(
    askings: Sequence[Asking],
    app: App,
    keep: Callable[[Record], None],
    *,
    concurrency: int,
    timeout: float,
) -> None:
    """Ask an application some questions.

    Args:
        askings: the questions, and the numbers of their repetitions.
        app: the application.
        keep: called with each record as soon as there is one.
        concurrency: questions at a time.
        timeout: seconds for each question.
    """
    # Workers share this iterator: each question is taken once.
    rest = iter(askings)

    collector = _Collector()

    async def take() -> None:
        for question, run in rest:
            # A separate task: what the application sets in the context does not reach the next question.
            keep(await asyncio.ensure_future(_ask(question, run, app, collector, timeout)))

    with collector.attached():
        await work_together(take, min(concurrency, len(askings)))


def ask_once(target: Any, question: GoldenQuestion, *, input_key: str | None = None, timeout: float = 300.0) -> Record:
    """Ask an application one question, and return the record of its answer.

    Args:
        target: what ``rageval-hooks run --app`` accepts: a runnable, a query engine, a function of the question.
        question: the question.
        input_key: the key of the question in the application's input.
        timeout: seconds.

    Raises:
        ConfigurationError: the object cannot be asked.
    """
    app = adapt(target, input_key)

    async def main() -> Record:
        collector = _Collector()
        with collector.attached():
            return await _ask(question, 1, app, collector, timeout)

    return run_on_thread(main())


@dataclass(frozen=True)
class Answers:
    """The answers to a test set, in a journal.

    Attributes:
        questions: the questions.
        repeat: how often each is asked.
        journal: has the records of the answers.
        privacy: what the journal may hold; the application is asked the original questions.
    """

    questions: Sequence[GoldenQuestion]
    repeat: int
    journal: Journal
    privacy: PrivacyPolicy

    def waiting(self) -> list[Asking]:
        """Return the questions that are still to be asked, each repetition on its own."""
        numbers = range(1, self.repeat + 1)
        askings = [(question, run) for run in numbers for question in self.questions]
        return [(question, run) for question, run in askings if f"{run}/{question.id}" not in self.journal]

    def keep(self, record: Record) -> None:
        """Put a record into the journal, redacted."""
        self.journal.append(f"{record.run}/{record.id}", record.redacted(self.privacy).model_dump(mode="json"))

    def reuse(self, records: Iterable[Record]) -> None:
        """Put records of an earlier run of these questions into the journal, so that only what is missing is asked."""
        for record in records:
            # Ranks are computed again: they depend on the whole run.
            fresh = record.model_copy(update={"results": (), "rank": None, "missed": False})
            self.journal.append(f"{record.run}/{record.id}", fresh.model_dump(mode="json"))

    def records(self) -> Iterator[Record]:
        """Yield the records in the order of the questions, each with the rank of its target."""
        keys = (f"{run}/{question.id}" for question in self.questions for run in range(1, self.repeat + 1))
        found = [Record.model_validate(self.journal[key]) for key in keys]
        # All records decide: the first ones may all have missed their targets.
        comparable = are_comparable(found)
        return (place_target(record, comparable=comparable) for record in found)


class RunSummary(NamedTuple):
    """What came of a run.

    Attributes:
        records: number of records.
        errors: number of records that are errors.
        lines: the summary for the user.
    """

    records: int
    errors: int
    lines: list[str]


def summarize(records: Iterable[Record]) -> RunSummary:
    """Count the records of a run."""
    total = without_passages = unranked = 0
    first_error = ""
    failed = Counter[str]()
    # Of the answered questions: whether the target was retrieved, whether an unanswerable one was declined, by rules.
    # None: it is not known, for example because redaction has hidden the answer.
    retrieved, declined = Counter[bool | None](), Counter[bool | None]()
    for record in records:
        total += 1
        error = record.turn.error
        if record.turn.status == "error" and error is not None:
            failed[error.type] += 1
            # One message is enough to see what is wrong; the records have all of them.
            first_error = first_error or f"{error.type}: {error.message}"[:_MAX_ERROR_LENGTH]
            continue
        without_passages += not record.turn.passages
        if not record.answerable:
            declined[is_refusal(record.turn.response)] += 1
        elif record.has_target and not record.turn.passages:
            unranked += 1
        elif record.has_target:
            retrieved[True if record.rank is not None else False if record.missed else None] += 1

    errors = failed.total()
    lines = [f"{total - errors} of {total} questions answered"]
    # A rank that is unknown counts neither as found nor as missed.
    if known := retrieved[True] + retrieved[False]:
        lines.append(f"the chunk with the answer was retrieved for {retrieved[True]} of {known}")
    if retrieved[None]:
        lines.append(
            f"for {retrieved[None]} of them the rank of the chunk is unknown: no retrieved passage has an id of the "
            "test set, and the test set has no text of the chunk in a column 'chunk'"
        )
    if unranked:
        lines.append(f"for {unranked} of them the rank of the chunk is unknown: the application returned no passages")
    if known := declined[True] + declined[False]:
        lines.append(f"the application declined {declined[True]} of {known} questions marked as unanswerable")
    lines += [f"  {number} failed: {kind}" for kind, number in failed.most_common()]
    if first_error:
        lines.append(f"  the first: {first_error}")
    if without_passages:
        lines.append(
            f"  {without_passages} answers without passages: if some were retrieved, have the application return "
            "(answer, passages)"
        )
    return RunSummary(total, errors, lines)


# --------------------------------------------------------------------------- one question


async def _ask(question: GoldenQuestion, run: int, app: App, collector: _Collector, timeout: float) -> Record:
    """Ask one question, and return its record.

    Args:
        question: the question.
        run: number of the repetition.
        app: the application; a plain function runs in a new thread, a coroutine function on this event loop.
        collector: gets what the frameworks do.
        timeout: seconds; a thread that takes longer is abandoned.
    """
    started = time.time_ns()
    for watch in collector.watches:
        watch()
    # As of `start_turn`: what the frameworks do in this context is one turn, and concurrent questions are not mixed.
    block = Block(collector)
    block.start(Turn(query=question.question))
    work = asyncio.ensure_future(_call(app, question.question))
    error: BaseException | None = None
    try:
        done, _ = await asyncio.wait({work}, timeout=timeout)
    finally:
        work.cancel()
    if not done:
        error = TimeoutError(f"no answer within {timeout:g} s")
        await asyncio.wait({work}, timeout=0.1)  # lets a cancelled chain report its end
    elif work.cancelled():
        error = RuntimeError("the application cancelled its own task")
    else:
        error = work.exception()
    if app.framework:
        # The end of a stream may be on its way from a generator that was closed.
        await asyncio.to_thread(settle, 5.0)
    block.end(error)
    captured = collector.turns.pop(block.id, None)
    return _record(question, run, app, None if error is not None else work.result(), error, captured, started)


async def _call(app: App, question: str) -> Any:
    """Return what the application returns; a stream is read to its end."""
    try:
        if app.asynchronous:
            result = await app.ask(question)
        else:
            result = await _in_thread(lambda: _collected(app.ask(question)))
            result = await result if isinstance(result, Awaitable) else result
        if hasattr(result, "__aiter__"):
            return "".join([str(getattr(part, "content", part)) async for part in result])
        return _collected(result)
    except SystemExit as error:  # the application's, not ours
        raise RuntimeError(f"SystemExit: {error}") from error


def _collected(result: Any) -> Any:
    """Return a result; a stream is read to its end."""
    for support in installed_support():
        result = support.read_stream(result)
    if isinstance(result, Iterator):
        return "".join(str(getattr(part, "content", part)) for part in result)
    return result


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a new daemon thread, in this context.

    A pool's threads would be joined at exit, and a question without an end would keep the process alive.
    """
    future: Future[Any] = Future()
    # After the timeout a question is abandoned: its future is neither cancelled nor awaited.
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            # SystemExit would end us, and asyncio cannot pass a StopIteration on.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(f"{type(error).__name__}: {error}"))

    threading.Thread(target=copy_context().run, args=(work,), name="rageval-run", daemon=True).start()
    return await asyncio.wrap_future(future)


class _Collector(Pipeline):
    """Keeps the turns that the installed frameworks hand over, while :meth:`attached` runs. Nothing is evaluated.

    Settings in the environment are ignored: they are meant for the application.

    Attributes:
        turns: the turns by the id of their block.
        watches: called in the context of a question, they capture what it runs from then on.
    """

    def __init__(self) -> None:
        settings = Settings.model_construct(
            exporters=(), spans="rag", evaluate_unsampled=True, evaluate_without_retrieval=True
        )
        super().__init__(Parts(settings=settings, models=Models(settings.models)))
        self.holds_interrupted = False
        self.computes_inline = True  # a turn is built, and handed over, before its call returns
        self.turns: dict[str | None, Turn] = {}
        self.watches: list[Callable[[], object]] = []

    def submit(
        self, ended: EndedTurn, selection: TurnContext | None = None, *, may_have_scores: bool = True
    ) -> PendingTurn:
        """Keep the turn of a question, which its block has built. Work that continues after it makes other turns."""
        if ended.turn is not None:
            self.turns[ended.turn.id] = ended.turn
        return DONE

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Capture while the block runs. What ``instrument()`` attached to LlamaIndex is detached."""
        with ExitStack() as stack:
            self.watches = [stack.enter_context(support.capturing(self)) for support in installed_support()]
            yield


# --------------------------------------------------------------------------- what the application returned


class _Result(NamedTuple):
    """The parts of what an application returned: the answer, and passages if it lists them."""

    text: str | None = None
    passages: tuple[Passage, ...] | None = None
    context: str | None = None
    """Passages as one text, which may be several joined."""


def _record(
    question: GoldenQuestion,
    run: int,
    app: App,
    result: Any,
    error: BaseException | None,
    captured: Turn | None,
    started: int,
) -> Record:
    """Return the record of a question that was asked; without a rank, which needs the whole run.

    Args:
        question: the question.
        run: number of the repetition.
        app: the application. The integration of a framework knows the answer of its object better than the result.
        result: what the application returned.
        error: what it raised; None if it returned.
        captured: the turn that the integrations captured, if there was one.
        started: nanoseconds since the epoch.
    """
    found, problem = _Result(), error
    if problem is None:
        try:
            found = _read(result)
        except UnreadableAnswerError as unreadable:
            # The passages of a bare retriever are enough for ranks.
            has_outcome = captured is not None and (bool(captured.response) or not captured.is_rag)
            problem = None if app.framework and has_outcome else unreadable
    turn = result if isinstance(result, Turn) else captured or Turn(name="app")
    passages = turn.passages
    # Captured passages have ids and scores as well, so they are preferred if they are the same ones.
    if found.passages is not None and [item.text for item in found.passages] != [item.text for item in passages]:
        passages = found.passages
    elif not passages and found.passages is None and found.context is not None:
        passages = (Passage(text=found.context),)
    texts = (turn.response, found.text) if app.framework else (found.text, turn.response)
    # A step that failed and was retried is no failure of the question: only the application's own exception is.
    status = "error" if problem is not None else "ok" if turn.status == "error" else turn.status
    about = {"style": question.style, "second_look": question.second_look}
    done = turn.model_copy(
        update={
            "id": turn.id or question.id,
            "query": question.question,
            "response": next((text for text in texts if text), ""),
            "passages": passages,
            "retrieval_queries": tuple(query for query in turn.retrieval_queries if query != question.question),
            "reference": turn.reference if question.reference is None else question.reference,
            "timing": turn.timing or Timing(started_at=started, ended_at=time.time_ns()),
            # A span that this package would have written does not exist: nothing is exported during a run.
            "span": turn.span if turn.span is not None and turn.span.external else None,
            "status": status,
            "error": None if problem is None else ErrorInfo.of(problem),
            "metadata": {**turn.metadata, **{name: value for name, value in about.items() if value}},
        }
    )
    return Record(
        id=question.id,
        run=run,
        turn=done,
        target=question.chunk_id,
        target_text=question.chunk,
        document=question.document,
        more_targets=question.more_chunks,
        answerable=question.answerable,
    )


def _read(result: Any) -> _Result:
    """Find the answer and the passages in the result of an application.

    Raises:
        UnreadableAnswerError: the result holds no answer; the message says what is accepted.
    """
    if isinstance(result, Turn):
        return _Result(result.response, result.passages)
    if isinstance(result, tuple) and len(result) == 2:
        return _Result(_text(result[0]), _passages(result[1]))
    # A text, a mapping, a message or a response object.
    named = [] if isinstance(result, str) else [entry_or_attribute(result, name) for name in _PASSAGE_KEYS]
    lists = [value for value in named if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))]
    # A chain that formats its documents returns the whole context as one text.
    context = next((value for value in named if isinstance(value, str) and value.strip()), None)
    return _Result(_text(result), _passages(lists[0]) if lists else None, context)


def _text(result: Any) -> str:
    # The answer may be a message: `{"answer": AIMessage(content="...")}`.
    values = [entry_or_attribute(result, name) for name in _ANSWER_KEYS]
    for found in (result, *(part for value in values for part in (value, entry_or_attribute(value, "content")))):
        if isinstance(found, str):
            # Without what a subclass adds, such as the metadata of LangChain's message texts.
            return str.__str__(found)
    described = "None" if result is None else with_article(type(result).__name__)
    if isinstance(result, Mapping):
        described = f"a mapping with {', '.join(map(str, result)) or 'nothing'}"
    raise UnreadableAnswerError(f"the application returned {described}; an answer is {_FORMS}")


def _passages(value: Any) -> tuple[Passage, ...]:
    if value is not None and not isinstance(value, Iterable):
        kind = with_article(type(value).__name__)
        raise UnreadableAnswerError(f"the application's passages are {kind}; give a list of texts or documents")
    try:
        return tuple(passages_in(value if isinstance(value, (str, Mapping)) or value is None else list(value)))
    except TurnError as error:
        raise UnreadableAnswerError(f"the application's {error}") from None
