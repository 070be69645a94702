"""From what a user gives to a judge."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import REGISTRY, Judge

__all__ = ["resolve_judge"]


def resolve_judge(given: Any, **options: Any) -> Judge:
    """Return the judge that is meant.

    Args:
        given: a judge or its class; ``"provider:model"``, such as ``"openai:gpt-5-mini"``, with a provider that is
            built in or comes from the entry-point group ``rageval_hooks.judges``; ``"package.module:name"`` of a judge,
            or of a class that needs no arguments; a LangChain chat model; or a LlamaIndex LLM.
        options: keyword arguments for the judge that is made: ``base_url``, ``timeout`` …

    Raises:
        ConfigurationError: it is nothing of these, or cannot be made.
        UnknownNameError: there is no such provider; the message lists the valid ones.
        MissingDependencyError: a package of an extra is not installed.
    """
    if isinstance(given, str):
        return _by_name(given, options)
    if isinstance(given, Judge):
        if options:
            raise ConfigurationError(f"the judge is made already: it cannot take {', '.join(sorted(options))}")
        return given
    if isinstance(given, type) and issubclass(given, Judge):
        return _made(lambda: given(**options))
    # An object of a framework's class exists only where that module is loaded: no need to import it to find out.
    if _is(given, "langchain_core.runnables", "Runnable"):
        from rageval_hooks.judges.langchain import LangChainJudge

        return _made(lambda: LangChainJudge(given, **options))
    if _is(given, "llama_index.core.llms", "LLM"):
        from rageval_hooks.judges.llama_index import LlamaIndexJudge

        return _made(lambda: LlamaIndexJudge(given, **options))
    raise ConfigurationError(
        f"{type(given).__qualname__} is not a judge: give a Judge, a name such as 'openai:gpt-5-mini', a chat model of "
        "LangChain, or an LLM of LlamaIndex"
    )


def _by_name(name: str, options: dict[str, Any]) -> Judge:
    provider, colon, model = (part.strip() for part in name.partition(":"))
    if "." in provider and colon:
        if options:
            raise ConfigurationError(f"{name!r} names a judge that is made without {', '.join(sorted(options))}")
        return REGISTRY.create(f"{provider}:{model}")
    if not colon or not model:
        raise ConfigurationError(f"a judge is named 'provider:model', such as 'openai:gpt-5-mini', not {name!r}")
    return REGISTRY.create(provider, make=lambda kind: _made(lambda: kind.from_model(model, **options)))


def _made(make: Callable[[], Judge]) -> Judge:
    try:
        return make()
    except TypeError as error:  # an option that the constructor does not know
        raise ConfigurationError(f"the judge cannot be made: {error}") from error


def _is(value: Any, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
