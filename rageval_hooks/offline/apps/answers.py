"""Reads what an application returns for a question, and makes the question's record of it and of what was captured."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rageval_hooks.errors import RagevalError, TurnError
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.values import field_of, passages_in
from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.text.wording import with_article
from rageval_hooks.turn import ErrorInfo, Passage, Timing, Turn

# Names of the answer and of the passages in the results of frameworks and of tutorials, the most specific first.
_ANSWER_KEYS = ("answer", "response", "result", "output", "output_text", "text", "content")
_PASSAGE_KEYS = (
    *("passages", "contexts", "source_documents", "source_nodes", "retrieved_contexts", "documents", "chunks"),
    "context",
)
_FORMS = "a text, a pair of text and passages, a mapping with 'answer' and 'passages', or a Turn"


class UnreadableAnswerError(RagevalError):
    """The application returned something that holds no answer."""


class _Result(NamedTuple):
    """The parts of what an application returned: the answer, and passages if it lists them."""

    text: str | None = None
    passages: tuple[Passage, ...] | None = None
    context: str | None = None
    """Passages as one text, which may be several joined."""


def collected(result: Any) -> Any:
    """Return a result; a stream is read to its end."""
    for support in installed_support():
        result = support.read_stream(result)
    if isinstance(result, Iterator):
        return "".join(str(getattr(part, "content", part)) for part in result)
    return result


def record_of(
    question: GoldenQuestion,
    run: int,
    result: Any,
    error: BaseException | None,
    captured: Turn | None,
    *,
    knows_answer: bool,
    started: int,
) -> Record:
    """Return the record of a question that was asked; without a rank, which needs the whole run.

    Args:
        question: the question.
        run: number of the repetition.
        result: what the application returned.
        error: what it raised; None if it returned.
        captured: the turn that the integrations captured, if there was one.
        knows_answer: True if the integration knows the answer better than the result: the application is an object
            of its framework.
        started: nanoseconds since the epoch.
    """
    found, problem = _Result(), error
    if problem is None:
        try:
            found = _read(result)
        except UnreadableAnswerError as unreadable:
            # The passages of a bare retriever are enough for ranks.
            has_outcome = captured is not None and (bool(captured.response) or not captured.is_rag)
            problem = None if knows_answer and has_outcome else unreadable
    turn = result if isinstance(result, Turn) else captured or Turn(name="app")
    texts = (turn.response, found.text) if knows_answer else (found.text, turn.response)
    # A step that failed and was retried is no failure of the question: only the application's own exception is.
    status = "error" if problem is not None else "ok" if turn.status == "error" else turn.status
    about = {"style": question.style, "second_look": question.second_look}
    done = turn.model_copy(
        update={
            "id": turn.id or question.id,
            "query": question.question,
            "response": next((text for text in texts if text), ""),
            "passages": _passages_of(found, turn),
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


def _passages_of(found: _Result, turn: Turn) -> tuple[Passage, ...]:
    """Return the passages that the application returned, or else those that were captured."""
    if found.passages is not None:
        # Captured passages have ids and scores as well, so they are preferred if they are the same ones.
        are_same = [passage.text for passage in found.passages] == [passage.text for passage in turn.passages]
        return turn.passages if are_same else found.passages
    if not turn.passages and found.context is not None:
        return (Passage(text=found.context),)
    return turn.passages


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
    named = [] if isinstance(result, str) else [field_of(result, name) for name in _PASSAGE_KEYS]
    lists = [value for value in named if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))]
    # A chain that formats its documents returns the whole context as one text.
    context = next((value for value in named if isinstance(value, str) and value.strip()), None)
    return _Result(_text(result), _passages(lists[0]) if lists else None, context)


def _text(result: Any) -> str:
    # The answer may be a message: `{"answer": AIMessage(content="...")}`.
    values = [field_of(result, name) for name in _ANSWER_KEYS]
    for found in (result, *(part for value in values for part in (value, field_of(value, "content")))):
        if isinstance(found, str):
            # Without what a subclass adds, such as the metadata of LangChain's message texts.
            return str.__str__(found)
    described = _kind(result)
    if isinstance(result, Mapping):
        described = f"a mapping with {', '.join(map(str, result)) or 'nothing'}"
    raise UnreadableAnswerError(f"the application returned {described}; an answer is {_FORMS}")


def _passages(value: Any) -> tuple[Passage, ...]:
    if value is not None and not isinstance(value, Iterable):
        raise UnreadableAnswerError(f"the application's passages are {_kind(value)}; give a list of texts or documents")
    try:
        return tuple(passages_in(value if isinstance(value, (str, Mapping)) or value is None else list(value)))
    except TurnError as error:
        raise UnreadableAnswerError(f"the application's {error}") from None


def _kind(value: Any) -> str:
    return "None" if value is None else with_article(type(value).__name__)
