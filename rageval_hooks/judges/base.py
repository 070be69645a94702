"""What a judge is, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.plugins import Registry
from rageval_hooks.turn import Message, Usage

if TYPE_CHECKING:
    from typing import Self

__all__ = ["REGISTRY", "AnyMessage", "Judge", "Judgement", "Mode", "as_messages"]

T = TypeVar("T", bound=BaseModel)

Mode = Literal["json_schema", "json_object", "structured", "text"]
"""How an answer's form was asked for: by the provider's JSON schema, its JSON mode, a framework's own structured
output, or in the prompt alone."""

AnyMessage = Union[Message, tuple[str, str], Mapping[str, str]]


@dataclass(frozen=True)
class Judgement(Generic[T]):
    """A judge's answer.

    Attributes:
        value: the answer, checked against the schema.
        model: the model that answered, as the provider reported it, else as it was asked for.
        usage: tokens of all requests that it took, also of those that were answered in vain; None if the provider
            does not say; zero for an answer from the cache.
        response_id: the provider's id of the response.
        cost: USD for these tokens; None if the model's price is not known; 0 for an answer from the cache.
        attempts: requests that it took, retries and a repair included; 0 for an answer from the cache.
        mode: how the form was asked for in the request that was answered.
        repaired: whether the first answer could not be used and the model was asked once more.
        cached: whether it came from the judge's cache on disk.
    """

    value: T
    model: str
    usage: Usage | None = None
    response_id: str | None = None
    cost: float | None = None
    attempts: int = 1
    mode: Mode = "text"
    repaired: bool = False
    cached: bool = False

    def details(self) -> dict[str, Any]:
        """Return everything but the answer as JSON-able data, for a score's metadata; unknown facts are left out."""
        facts = {
            "model": self.model,
            "response_id": self.response_id,
            "attempts": self.attempts,
            "mode": self.mode,
            "repaired": self.repaired or None,
            "cached": self.cached or None,
            **usage_details(self.usage, self.cost),
        }
        return {name: value for name, value in facts.items() if value is not None}


def usage_details(usage: Usage | None, cost: float | None) -> dict[str, Any]:
    """Return what was spent, as the details of a judgement or of a failure; None for what is not known."""
    return {
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cached_tokens": usage.cache_read_tokens if usage else None,
        "cost": cost,
    }


class Judge(ABC):
    """A language model that answers questions in a given form.

    One instance serves concurrent calls, on any event loop.

    Attributes:
        name: whose models it uses: ``openai``, ``langchain`` … A class attribute makes it the provider's name in
            ``"provider:model"``.
        model: the model that is asked for.
    """

    name: str
    model: str

    @classmethod
    def from_model(cls, model: str, **options: Any) -> Self:
        """Make the judge that a user has named as ``"provider:model"``.

        Args:
            model: what stands behind the first colon.
            options: as its constructor takes them.

        Raises:
            ConfigurationError: it cannot be made from a name alone.
        """
        raise ConfigurationError(f"a judge of the kind {cls.__qualname__} is passed as an instance, not by name")

    @abstractmethod
    async def complete(
        self,
        messages: Iterable[AnyMessage],
        schema: type[T],
        *,
        parameters: Mapping[str, Any] | None = None,
    ) -> Judgement[T]:
        """Ask one question.

        Args:
            messages: the prompt: messages, or pairs of role and content. What several questions share comes first, in
                the same bytes, so that providers can serve it from their prompt cache.
            schema: the answer's form.
            parameters: sampling parameters for this question, such as ``temperature``; they come before the judge's
                own. One that the model does not take is left out. Adapters to frameworks ignore them: there the model
                is used as its owner made it.

        Raises:
            JudgeError: there is no usable answer; the error's class and ``kind`` say why.
        """

    async def aclose(self) -> None:  # noqa: B027 - optional: not every judge holds connections
        """Close the connections of the running event loop. The judge can be used again."""

    def stats(self) -> dict[str, Any]:
        """Return what was counted, as JSON-able data."""
        return {}

    async def __aenter__(self) -> Self:
        """Return the judge itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()

    def __str__(self) -> str:
        """Return ``name:model``."""
        return f"{getattr(self, 'name', type(self).__name__)}:{getattr(self, 'model', '?')}"

    def __repr__(self) -> str:
        """Show name and model, and nothing of the settings: there may be a key among them."""
        return f"<judge {self}>"


REGISTRY: Registry[Judge] = Registry("judge provider", Judge, "rageval_hooks.judges", "rageval_hooks.judges")  # type: ignore[type-abstract]


def as_messages(given: Iterable[AnyMessage]) -> tuple[Message, ...]:
    """Return messages or pairs of role and content as messages.

    Raises:
        ConfigurationError: there is none, or one of them is something else.
    """
    messages = []
    for item in given:
        if isinstance(item, Message):
            messages.append(item)
            continue
        try:
            role, content = (item["role"], item["content"]) if isinstance(item, Mapping) else item
            messages.append(Message(role=role, content=content))
        except (KeyError, TypeError, ValueError):
            raise ConfigurationError("a judge's messages are Message objects or pairs of role and content") from None
    if not messages:
        raise ConfigurationError("a judge needs at least one message")
    return tuple(messages)
