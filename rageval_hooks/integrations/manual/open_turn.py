"""``start_turn``: the application says where a turn begins and ends, what was retrieved and what the answer is."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rageval_hooks.integrations.capture.passages import PassageLike, passage_of
from rageval_hooks.integrations.capture.values import or_else
from rageval_hooks.runtime.copying import CopiedAsItself
from rageval_hooks.runtime.jsonable import string_of
from rageval_hooks.runtime.narrowing import content_text
from rageval_hooks.turn import Passage, Turn

if TYPE_CHECKING:
    from rageval_hooks.integrations.manual.block import Block
    from rageval_hooks.online.pending import PendingTurn
    from rageval_hooks.online.pipeline import Pipeline


_logger = logging.getLogger(__name__)

_PASSAGE_FORMS = "a text, a mapping or an object with 'text', a Passage, a document or a node"


_pipeline: Pipeline | None = None
"""Receives the turns; None without ``instrument()``."""


class OpenTurn(CopiedAsItself):
    """A turn from its beginning to its end: a context manager, for ``with`` and ``async with``.

    Everything that LangChain and LlamaIndex run inside the block is part of the turn. Inside another open turn, the
    block adds its passages to that turn; the outer question and answer win.

    Args:
        given: what the application says about the turn.
    """

    _block: Block | None = None
    _trace_id: str = ""

    def __init__(self, given: Turn) -> None:
        self._given = given

    @property
    def trace_id(self) -> str:
        """The id of the turn's trace, 32 hex digits, also after the block: :meth:`Instrumentation.feedback` takes it.

        Read it when the answer is there: another tracer may have begun the trace. Empty where nothing is recorded.
        """
        return self._trace_id if self._block is None else self._block.trace_id

    def add_passages(self, passages: Iterable[PassageLike] | PassageLike) -> None:
        """Say what was retrieved and given to the model. May be called several times, from any thread.

        Args:
            passages: texts, mappings with ``text`` (and ``id``, ``score``, ``metadata``), ``Passage`` objects,
                LangChain documents or LlamaIndex nodes; a single one, or several in order of rank.

        Raises:
            TypeError: something is not a passage.
        """
        # Checked whether or not the turn is recorded, so that a mistake shows in every environment.
        read = _read_passages(passages)
        if self._block is not None:
            self._block.add(read)

    def respond(self, answer: object) -> None:
        """Say what the application answers. The last call counts; without one, it is the last captured run's answer.

        Args:
            answer: a text, or a message or response of LangChain or LlamaIndex with the text.

        Raises:
            TypeError: there is no text in it.
        """
        text = text_of(answer)
        if text is None:
            raise TypeError(f"respond() takes the text of the answer, not {_kind(answer)}")
        if self._block is not None:
            self._block.respond(text)

    def add_piece(self, text: str) -> None:
        """Append to the answer. It counts as broken off until :meth:`complete` is called."""
        if self._block is not None:
            self._block.pieces.append(text)
            self._block.is_partial = True

    def complete(self) -> None:
        """Say that all pieces of the answer were added."""
        if self._block is not None:
            self._block.is_partial = False

    def __enter__(self) -> OpenTurn:
        """Start the turn."""
        if _pipeline is None:
            _logger.debug("rageval-hooks: start_turn() without instrument(): nothing is recorded")
        else:
            from rageval_hooks.integrations.manual.block import begin  # here, so that importing rageval_hooks is light

            self._block = begin(_pipeline, self._given)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the turn, and wait for its inline scores within the budget."""
        self._end(error)

    async def __aenter__(self) -> OpenTurn:
        """Start the turn."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the turn, and wait for its inline scores within the budget.

        The event loop, of asyncio or trio, is not blocked.
        """
        pending = self._end(error)
        if pending is not None:
            await pending

    def _end(self, error: BaseException | None) -> PendingTurn | None:
        pending = None
        if self._block is not None:
            pending = self._block.end(error)
            self._trace_id = self._block.trace_id
        self._block = None
        return pending

    def __del__(self) -> None:
        """Drop a turn whose end was interrupted: later turns of this context would belong to it."""
        if self._block is not None:
            self._block.drop()


def start_turn(
    question: str,
    *,
    session_id: str | int | UUID | None = None,
    user_id: str | int | UUID | None = None,
    metadata: Mapping[str, Any] | None = None,
    reference: str | None = None,
) -> OpenTurn:
    """Make one turn of a block of code, in applications without a framework and around calls to one.

    Without :func:`rageval_hooks.instrument` nothing is recorded. Exceptions of the block are not changed; they give the
    turn the status ``error``.

    Args:
        question: the user's question.
        session_id: the conversation that the turn belongs to.
        user_id: the user.
        metadata: anything else to keep with the turn.
        reference: a known good answer, for metrics that compare with one.

    Raises:
        TypeError: an argument has the wrong type.

    Example:
        >>> with start_turn("When was the pier opened?") as turn:
        ...     turn.add_passages(["The new pier was opened in September 2019."])
        ...     turn.respond("It was opened in 2019.")
    """
    if not isinstance(question, str):
        raise TypeError(f"start_turn() takes the question as a text, not {_kind(question)}")
    if reference is not None and not isinstance(reference, str):
        raise TypeError(f"start_turn(reference=…) must be a text, not {_kind(reference)}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"start_turn(metadata=…) must be a mapping, not {_kind(metadata)}")
    given = Turn(
        query=question,
        session_id=None if session_id is None else string_of(session_id),
        user_id=None if user_id is None else string_of(user_id),
        metadata=dict(metadata or {}),
        reference=reference,
    )
    return OpenTurn(given)


# --------------------------------------------------------------------------- reading arguments


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _read_passages(passages: Any) -> list[Passage]:
    single = passage_of(passages)
    if single is not None:
        return [single]
    # A mapping without a text is one passage with a mistake: its keys are not passages.
    if isinstance(passages, (Mapping, bytes)) or not isinstance(passages, Iterable):
        raise TypeError(f"add_passages() takes passages, not {_kind(passages)}: each is {_PASSAGE_FORMS}")
    found = []
    for number, item in enumerate(passages, 1):
        passage = passage_of(item)
        if passage is None:
            raise TypeError(f"add_passages(): passage {number} is {_kind(item)} without a text; give {_PASSAGE_FORMS}")
        found.append(passage)
    return found


@or_else(None)
def text_of(answer: Any) -> str | None:
    """Return the text of an answer: its own, that of a message, or that of a response."""
    if isinstance(answer, str):
        return str.__str__(answer)
    # ChatResponse(message=ChatMessage(content="In 2019.")) or AIMessage(content="In 2019.")
    content = getattr(getattr(answer, "message", answer), "content", None)
    if isinstance(content, list):
        return content_text(content)
    # The result of an engine or a model: Response(response="In 2019."), or CompletionResponse(text="In 2019.").
    for text in (content, getattr(answer, "response", None), getattr(answer, "text", None)):
        if isinstance(text, str):
            return text
    return None


# --------------------------------------------------------------------------- attaching


def attach(pipeline: Pipeline) -> None:
    """Send the turns that ``start_turn`` makes to a pipeline, in place of the one that was attached before."""
    global _pipeline
    _pipeline = pipeline


def detach() -> None:
    """Record no more turns, and drop those that are open."""
    global _pipeline
    pipeline, _pipeline = _pipeline, None
    if pipeline is not None:
        from rageval_hooks.integrations.capture.recorder import shared_recorder

        shared_recorder().forget(pipeline)
