"""What the adapters of LangChain and LlamaIndex share: a model of the application, called on threads."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import SecretStr

from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.limits import Clock
from rageval_hooks.judges.prices import price_usd
from rageval_hooks.judges.remote import AnyCache, RemoteJudge
from rageval_hooks.runtime.narrowing import first_text
from rageval_hooks.runtime.pool import DaemonPool
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.turn import Usage

T = TypeVar("T")


class FrameworkJudge(RemoteJudge):
    """A model of a framework with the parameters that its owner set. Parameters of single questions are ignored.

    A model's own asynchronous methods are not used: their connections belong to the event loop that used them first,
    often the application's, and all models of a process share them. On a second loop they break. The threads start at
    once, because none can be started while the interpreter exits, and the last turns are judged then.

    Args:
        name: the framework.
        given: the model.
        model: its name.
        urls: its attributes that may hold the address of its server.
        structured: ``"structured"``, or ``"text"`` to use the prompt only.
        cache: an answer cache, or its path; None for no cache.
        clock: the time and random numbers.
        options: the fields of :class:`rageval_hooks.judges.remote.CallPolicy`.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("structured", "text")

    def __init__(
        self,
        name: str,
        given: Any,
        model: str,
        urls: Iterable[str],
        structured: Mode,
        cache: AnyCache,
        clock: Clock | None,
        options: Mapping[str, Any],
    ) -> None:
        self.name = name
        super().__init__(model, options, structured=structured, cache=cache, clock=clock)
        self._model = given
        url = first_text(getattr(given, attribute, None) for attribute in urls)
        self._url = safe_url(url) if url else None
        self._provider: str | None = None
        self._pool = DaemonPool(self.policy.max_concurrency, "rageval-judge")
        self._pool.start()
        weakref.finalize(self, self._pool.shutdown).atexit = False

    @property
    def where(self) -> str:
        """The model, and its server if known."""
        return f"{self.model} at {self._url}" if self._url else self.model

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model's class, name and address."""
        kind = type(self._model)
        return {
            "api": self.name,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "model": self.model,
            "base_url": self._url,
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret fields of the model."""
        return tuple(value.get_secret_value() for value in vars(self._model).values() if isinstance(value, SecretStr))

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price at the model's provider."""
        return price_usd(usage, model, provider=self._provider, url=self._url)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Make a call in the caller's context. A cancelled call continues on its thread; its result is dropped."""
        return await asyncio.wrap_future(self._pool.submit(call))
