"""The interface between the common code of all judges and one client library: one request, one reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic import BaseModel

from rageval_hooks.judges.base import Mode
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.runtime.selecting import entries_of
from rageval_hooks.turn import Message, Usage

__all__ = ["Backend", "Reply", "Request"]


@dataclass(frozen=True)
class Request:
    """One request to a model.

    Attributes:
        messages: the prompt. In a mode that does not enforce the schema, it includes instructions about it.
        schema: the schema of the answer.
        mode: how the schema is enforced.
        parameters: additional fields of the request: sampling parameters and the user's own.
        max_answer_bytes: a larger answer must not be read to its end.
        timeout: seconds after which the caller cancels the request.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel]
    mode: Mode
    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_answer_bytes: int = 512 * 1024
    timeout: float = 120.0


@dataclass(frozen=True)
class Reply:
    """A model's reply.

    Attributes:
        text: the answer; with structured output by tool call, the call's arguments.
        usage: tokens, if reported.
        model: the model that answered, if reported.
        response_id: the provider's id of the response.
        finish_reason: why the model stopped, as the provider names it.
        refusal: the model's text if it refused.
    """

    text: str
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None

    def cleaned(self) -> Reply:
        """Return the reply without lone surrogates, which can be encoded neither for the cache nor for a span."""
        texts = {name: clean_text(value) for name, value in entries_of(vars(self), str).items()}
        return replace(self, **texts)  # type: ignore[arg-type]  # only fields with texts


class Backend(ABC):
    """Sends requests with one client library. Retries, limits, parsing and caching are not its concern.

    Attributes:
        modes: the supported modes, the most reliable one first. The last is ``text``.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("text",)

    @property
    @abstractmethod
    def where(self) -> str:
        """The server or the model, for messages, without secrets."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """JSON-serializable facts that distinguish this model from others, for the cache key, without secrets."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in messages."""
        return ()

    @abstractmethod
    async def send(self, request: Request) -> Reply:
        """Send one request. Exceptions of the client library pass through.

        Raises:
            NotImplementedError: the model does not support this mode.
            JudgeTooLargeError: the answer is larger than ``max_answer_bytes``.
        """

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price of the tokens in USD; None if it is unknown."""
        return None

    async def aclose(self) -> None:  # noqa: B027 - optional
        """Close the connections of the running event loop."""

    def close(self, timeout: float) -> None:  # noqa: B027 - optional
        """Close the connections of event loops on other threads, within a timeout in seconds."""
