"""``rag_turn``: makes one turn of each call of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, overload

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.integrations.capture.passages import text_results
from rageval_hooks.integrations.capture.values import answer_keys_in, data_fields, is_a, or_else, words_in
from rageval_hooks.integrations.manual.open_turn import OpenTurn, start_turn, text_of

F = TypeVar("F", bound=Callable[..., Any])

_QUESTIONS = ("question", "query", "user_question", "user_query", "user_input", "user_message", "input", "message", "q")
"""Names of the parameter with the question, the most certain one first."""

_PASSAGES = frozenset("chunks context contexts docs documents passages".split())
"""Words in the keys of a result under which the passages are."""


@overload
def rag_turn(function: F, /) -> F: ...
@overload
def rag_turn(*, question: str | None = None) -> Callable[[F], F]: ...
def rag_turn(function: F | None = None, /, *, question: str | None = None) -> F | Callable[[F], F]:
    """Make one turn of each call of a function, as :func:`start_turn` does of a block.

    The question is an argument of the call. The answer is the result: a text, a message, a response, a mapping or an
    object with the answer under a name such as ``answer`` and passages under one such as ``documents``, or a tuple of
    the answer and passages. Of any other result, the answer is that of the last captured run inside. The answer of a
    generator is its pieces. Arguments, results and exceptions are not changed.

    Args:
        function: the function or method, synchronous or asynchronous, or a generator function.
        question: the name of the parameter with the question. By default the one whose name says so, such as
            ``question`` or ``query``, else the first argument that is a text.

    Raises:
        ConfigurationError: the function has no parameter of this name.

    Example:
        >>> @rag_turn
        ... def ask(question: str) -> str:
        ...     return "It was opened in 2019."
        >>> ask("When was the pier opened?")
        'It was opened in 2019.'
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        if question is not None and question not in signature.parameters:
            raise ConfigurationError(f"rag_turn(question={question!r}): {function.__name__}() has no such parameter")
        names = _QUESTIONS if question is None else (question,)

        def turn_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenTurn:
            return start_turn(_question_in(signature, names, args, kwargs))

        return functools.wraps(function)(_wrapper(function, turn_of))  # type: ignore[return-value]

    return decorate if function is None else decorate(function)


def _wrapper(function: Callable[..., Any], turn_of: Callable[..., OpenTurn]) -> Callable[..., Any]:
    """Return a function of the same kind that makes a turn of each call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with turn_of(args, kwargs) as turn:
            result = function(*args, **kwargs)
            _note_result(turn, result)
            return result

    async def acall(*args: Any, **kwargs: Any) -> Any:
        async with turn_of(args, kwargs) as turn:
            result = await function(*args, **kwargs)
            _note_result(turn, result)
            return result

    def stream(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with turn_of(args, kwargs) as turn:
            result = yield from _Pieces(turn, function(*args, **kwargs))
            turn.complete()
            return result

    async def astream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with turn_of(args, kwargs) as turn:
            inner, given = function(*args, **kwargs), None
            try:
                piece = await anext(inner)
                while True:
                    _note_piece(turn, piece)
                    try:
                        given = yield piece
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:
                        piece = await inner.athrow(error)
                    else:
                        piece = await inner.asend(given)
            except StopAsyncIteration:
                turn.complete()

    if inspect.isasyncgenfunction(function):
        return astream
    if inspect.isgeneratorfunction(function):
        return stream
    return acall if inspect.iscoroutinefunction(function) else call


class _Pieces(Generator[Any, Any, Any]):
    """What a generator yields, each piece noted."""

    def __init__(self, turn: OpenTurn, inner: Generator[Any, Any, Any]) -> None:
        self._turn = turn
        self._inner = inner

    def send(self, value: Any) -> Any:
        return self._noted(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._noted(self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def _noted(self, piece: Any) -> Any:
        _note_piece(self._turn, piece)
        return piece


@or_else("")
def _question_in(
    signature: inspect.Signature, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    texts = {name: text for name, value in bound.arguments.items() if (text := text_of(value)) is not None}
    return next((texts[name] for name in names if name in texts), "") or next(iter(texts.values()), "")


@or_else(None)
def _note_piece(turn: OpenTurn, piece: Any) -> None:
    turn.add_piece(text_of(piece) or "")


@or_else(None)
def _note_result(turn: OpenTurn, result: Any) -> None:
    """Read the answer and the passages in a result, if there are any."""
    text, passages = text_of(result), []
    if is_a(result, tuple) and not hasattr(result, "_fields"):
        text = text_of(result[0])
        passages = [value for value in result[1:] if is_a(value, (list, tuple))]
    elif text is None:
        fields = data_fields(result)
        answers = (text_of(fields[key]) for key in answer_keys_in(fields))
        text = next((answer for answer in answers if answer is not None), None)
        passages = [value for key, value in fields.items() if not _PASSAGES.isdisjoint(words_in(str(key)))]
    if text is not None:
        turn.respond(text)
    for value in passages:
        turn.add_passages(text_results(value, {}, is_field=True))
