"""The interface of a judge and its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.judges.prompts import neutralize
from rageval_hooks.plugins import Registry
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.turn import Message, Usage

T = TypeVar("T", bound=BaseModel)

MAX_PROMPT_TOKENS = 120_000
"""Tokens of a prompt at most. Common models read 128,000, with the answer."""

Mode = Literal["json_schema", "json_object", "structured", "text"]
"""How the schema of an answer is enforced: by the provider's JSON schema mode, its JSON mode, a framework's structured
output, or by the prompt only."""

AnyMessage = Message | tuple[str, str] | Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Judgement(Generic[T]):
    """A judge's answer.

    Attributes:
        value: the answer, validated against the schema.
        model: the model that answered, as the provider reported it; otherwise the requested model.
        usage: tokens of all requests, including those with unusable answers. None if the provider did not report
            them; zero for a cache hit.
        response_id: the provider's id of the response.
        cost: USD for these tokens. None if the model's price is unknown; 0 for a cache hit.
        attempts: number of requests, including retries and a correction; 0 for a cache hit.
        mode: the mode of the request that was answered.
        repaired: True if the first answer was unusable and the model was asked to correct it.
        cached: True for a hit in the judge's cache.
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
        """Return everything but the answer as JSON-serializable data, for a score's metadata. Omits unknown facts."""
        facts = {
            "model": self.model,
            "response_id": self.response_id,
            "attempts": self.attempts,
            "mode": self.mode,
            "repaired": self.repaired or None,
            "cached": self.cached or None,
            **usage_details(self.usage, self.cost),
        }
        return {name: fact for name, fact in facts.items() if fact is not None}


def usage_details(usage: Usage | None, cost: float | None) -> dict[str, Any]:
    """Return tokens and cost, for the details of a judgement or of a failure. Unknown values are None."""
    return {
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cached_tokens": usage.cache_read_tokens if usage else None,
        "cost": cost,
    }


class Judge(ABC):
    """A language model that answers questions in a given schema.

    One instance serves concurrent calls on any event loop.

    Attributes:
        name: the provider, for example ``openai``. As a class attribute it is the provider in ``"provider:model"``.
        model: the requested model.
        has_known_price: True if each answer says what it cost. A budget in USD needs that.
        max_prompt_tokens: tokens of a prompt at most, estimated. The texts of larger turns are cut.
    """

    name: str
    model: str
    has_known_price: bool = False
    max_prompt_tokens: int = MAX_PROMPT_TOKENS

    @classmethod
    def from_model(cls, model: str, **options: Any) -> Self:
        """Create the judge for ``"provider:model"``.

        Args:
            model: the part after the first colon.
            options: keyword arguments of the constructor.

        Raises:
            ConfigurationError: the class cannot be created from a name.
        """
        raise ConfigurationError(f"{cls.__qualname__} has no name form: pass an instance as judge=")

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
            messages: the prompt: messages, or pairs of role and content. The part that several questions share comes
                first and is identical to the byte, so that providers can serve it from their prompt cache.
            schema: the schema of the answer.
            parameters: sampling parameters for this question, for example ``temperature``. They override the judge's
                own. Parameters that the model refuses are omitted. Framework adapters ignore them: there the model
                keeps the parameters that its owner set.

        Raises:
            JudgeError: there is no usable answer. The error's class and ``kind`` say why.
        """

    async def aclose(self) -> None:  # noqa: B027 - optional: not every judge holds connections
        """Close the connections of the running event loop. The judge can be used again."""

    def close(self, timeout: float = 5.0) -> None:  # noqa: B027 - optional: not every judge holds connections
        """Close the connections of event loops on other threads. The judge can be used again.

        ``evaluate()`` and ``score_dataset()`` ask a judge on a background thread. They leave the connections of a judge
        that is passed in open, so that the next call can use them. Requests that run there at this moment fail.

        Args:
            timeout: seconds to wait for it.
        """

    def stats(self) -> dict[str, Any]:
        """Return counters as JSON-serializable data."""
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
        """Show name and model only: the settings may contain a key."""
        return f"<judge {self}>"


REGISTRY: Registry[Judge] = Registry("judge provider", Judge, ("rageval_hooks.judges",), "rageval_hooks.judges")  # type: ignore[type-abstract]


def as_messages(given: Iterable[AnyMessage]) -> tuple[Message, ...]:
    """Return messages or pairs of role and content as messages.

    Special tokens of chat templates are replaced, also in the prompts of a user's own metrics.

    Raises:
        ConfigurationError: there are no messages, or one is of another type.
    """
    messages = []
    for item in given:
        try:
            if isinstance(item, Message):
                message = item
            else:
                role, content = (item["role"], item["content"]) if isinstance(item, Mapping) else item
                message = Message(role=role, content=content)
        except (KeyError, TypeError, ValueError):
            raise ConfigurationError(
                "a judge's messages must be Message objects or pairs of role and content"
            ) from None
        messages.append(message.model_copy(update={"content": neutralize(clean_text(message.content))}))
    if not messages:
        raise ConfigurationError("a judge needs at least one message")
    return tuple(messages)


# --------------------------------------------------------------------------- budgets for single requests


class GateClosedError(JudgeError):
    """The gate admits no further request. Nothing is wrong with the judge."""

    kind: ClassVar[str] = "not_asked"


class BudgetUsedUpError(GateClosedError):
    """The budget for the judge is used up."""

    kind: ClassVar[str] = "budget_spent"


@dataclass
class Admission:
    """One admitted request.

    Attributes:
        sent: how many requests were sent: 1, or 0 if it was not sent. A judge that this package did not make may have
            sent several.
        cost: USD; 0 if there was no answer, None if the answer's price is unknown.
        tokens: input and output tokens; 0 if there was no answer, None if the answer does not report them.
    """

    sent: int = 0
    cost: float | None = 0.0
    tokens: float | None = 0.0


class RequestGate(ABC):
    """Admits requests one by one: first attempts, retries and corrections. Cache hits do not pass it."""

    @abstractmethod
    def request(self) -> AbstractAsyncContextManager[Admission]:
        """Admit a request for as long as it runs. The caller records the cost on the admission.

        Raises:
            GateClosedError: the request is refused.
        """
