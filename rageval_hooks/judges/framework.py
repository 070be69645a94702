"""What the adapters of LangChain and LlamaIndex share: a model of the application, called on threads."""

from __future__ import annotations

import asyncio
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import SecretStr

from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.prices import price_usd
from rageval_hooks.judges.remote import AnyCache, RemoteJudge
from rageval_hooks.judges.throttling import Clock
from rageval_hooks.runtime.narrowing import first_text
from rageval_hooks.runtime.pool import DaemonPool
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.turn import Usage

T = TypeVar("T")

_URLS = ("openai_api_base", "base_url", "api_base", "endpoint_url")
# Endings of the names of fields that hold secrets: "api_key", "auth_token". LlamaIndex declares most as plain strings.
_SECRET = ("key", "token", "secret", "password")


class FrameworkJudge(RemoteJudge):
    """A model of a framework with the parameters that its owner set. Parameters of single questions are ignored.

    A model's own asynchronous methods are not used: their connections belong to the event loop that used them first,
    often the application's, and all models of a process share them. On a second loop they break. The threads start at
    once, because none can be started while the interpreter exits, and the last turns are judged then.

    Args:
        model: the model. Its own retries add to the judge's, so create it with ``max_retries=0``. Give it a
            ``timeout``, too: a call that runs in a thread cannot be cancelled.
        structured: ``"structured"``, or ``"text"`` to use the prompt only.
        cache: an answer cache, or its path; None for no cache.
        clock: the time and random numbers, for tests.
        options: timeouts, retries and limits; see :class:`rageval_hooks.judges.remote.CallPolicy`.

    Attributes:
        framework: its name.
        provider: the model's provider as the price list names it, if the framework knows it.

    Raises:
        ConfigurationError: it is not a model of this framework, or an option is wrong.
        MissingDependencyError: the framework is not installed.
    """

    framework: ClassVar[str]
    provider: str | None = None
    modes: ClassVar[tuple[Mode, ...]] = ("structured", "text")

    def __init__(
        self,
        model: Any,
        *,
        structured: Mode = "structured",
        cache: AnyCache = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self._model, name = self.accept(model)
        self.name = self.framework
        super().__init__(name, options, structured=structured, cache=cache, clock=clock)
        url = first_text(getattr(model, attribute, None) for attribute in _URLS)
        self._url = safe_url(url) if url else None
        self._pool = DaemonPool(self.policy.max_concurrency, "rageval-judge")
        self._pool.start()
        weakref.finalize(self, self._pool.shutdown).atexit = False

    @abstractmethod
    def accept(self, model: Any) -> tuple[Any, str]:
        """Return the model to call, and its name.

        Raises:
            ConfigurationError: it is not a model of this framework.
            MissingDependencyError: the framework is not installed.
        """

    @property
    def where(self) -> str:
        """The model, and its server if known."""
        return f"{self.model} at {self._url}" if self._url else self.model

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model's class, name and address, and its fields without secrets."""
        kind, secrets = type(self._model), set(self.secrets)
        fields = {
            name: value
            for name, value in vars(self._model).items()
            # The address has no credentials below, which these fields may have.
            if isinstance(value, str | int | float | dict) and name not in _URLS and "header" not in name
        }
        return {
            "api": self.framework,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "model": self.model,
            "base_url": self._url,
            "fields": {name: value for name, value in fields.items() if str(value) not in secrets},
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret fields of the model."""
        fields = vars(self._model).items()
        hidden = [value.get_secret_value() for _, value in fields if isinstance(value, SecretStr)]
        plain = [value for name, value in fields if isinstance(value, str) and name.endswith(_SECRET)]
        return tuple(filter(None, hidden + plain))

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price at the model's provider."""
        return price_usd(usage, model, provider=self.provider, url=self._url)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Make a call in the caller's context. A cancelled call continues on its thread; its result is dropped."""
        return await asyncio.wrap_future(self._pool.submit(call))
