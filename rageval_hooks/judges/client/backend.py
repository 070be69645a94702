"""What stands between the common work of every judge and one client library: a single request, a single reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel

from rageval_hooks.judges.base import Mode
from rageval_hooks.turn import Message, Usage

__all__ = ["Backend", "Reply", "Request"]


@dataclass(frozen=True)
class Request:
    """One request to a model.

    Attributes:
        messages: the prompt, instructions about the form included where ``mode`` leaves it to the prompt.
        schema: the form of the answer.
        mode: how to ask for that form.
        parameters: further fields of the request: sampling parameters and the user's own.
        max_answer_bytes: an answer that is larger must not be read to its end.
        timeout: seconds; the caller ends the request then, the client's own limit may be the same.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel]
    mode: Mode
    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_answer_bytes: int = 512 * 1024
    timeout: float = 120.0


@dataclass(frozen=True)
class Reply:
    """What a model wrote.

    Attributes:
        text: the answer, or the arguments of the call of a tool that stands for it.
        usage: tokens, if they are reported.
        model: the model that answered, if that is reported.
        response_id: the provider's id.
        finish_reason: why the model stopped, in the provider's word.
        refusal: the model's words if it declined.
    """

    text: str
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None


class Backend(ABC):
    """Sends requests through one client library. Knows nothing of retries, limits, parsing and caches.

    Attributes:
        modes: the ways to ask for an answer's form, the most reliable one first; the last is ``text``.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("text",)

    @property
    @abstractmethod
    def where(self) -> str:
        """The server or the model, for messages. Holds no secrets."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """JSON-able facts that tell this model from others, for the key of cached answers. Holds no secrets."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen in messages."""
        return ()

    @abstractmethod
    async def send(self, request: Request) -> Reply:
        """Send one request. Raises whatever the client library raises.

        Raises:
            NotImplementedError: the model cannot be asked in this mode.
            JudgeTooLargeError: the answer is larger than is accepted.
        """

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price of some tokens in USD, or None if it is not known."""
        return None

    async def aclose(self) -> None:  # noqa: B027 - optional
        """Close the connections of the running event loop."""
