"""How users name a judge: ``judge=``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Union

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.judges.base import REGISTRY, Judge

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable
    from llama_index.core.llms import LLM

AnyJudge = Union[str, Judge, type[Judge], "Runnable[Any, Any]", "LLM"]
"""A judge as users name it; see :func:`resolve_judge`."""

_MODELS = "For a model of another provider, pass a LangChain chat model or a LlamaIndex LLM as judge=."


def resolve_judge(given: Any, **options: Any) -> Judge:
    """Return the judge for a ``judge=`` argument.

    Args:
        given: a judge or a judge class; ``"provider:model"``, for example ``"openai:gpt-5-mini"``, with a built-in
            provider or one from the entry-point group ``rageval_hooks.judges``; ``"package.module:name"`` of a judge,
            or of a class that needs no arguments; a LangChain chat model; or a LlamaIndex LLM.
        options: keyword arguments of the judge's constructor, for example ``base_url`` or ``timeout``.

    Raises:
        ConfigurationError: the argument is of another type, or the judge cannot be created.
        UnknownNameError: the provider is unknown. The message lists the valid ones.
        MissingDependencyError: the package of an extra is not installed.
    """
    if isinstance(given, str):
        return _by_name(given, options)
    if isinstance(given, Judge):
        if options:
            raise ConfigurationError(f"judge is an instance: pass {', '.join(sorted(options))} to its constructor")
        return given
    make: Callable[..., Judge]
    if isinstance(given, type) and issubclass(given, Judge):
        make = given
    # An instance of a framework's class exists only if its module is loaded, so nothing needs to be imported to check.
    elif _is(given, "langchain_core.runnables", "Runnable"):
        from rageval_hooks.judges.langchain import LangChainJudge

        make = partial(LangChainJudge, given)
    elif _is(given, "llama_index.core.llms", "LLM"):
        from rageval_hooks.judges.llama_index import LlamaIndexJudge

        make = partial(LlamaIndexJudge, given)
    else:
        raise ConfigurationError(
            f"{type(given).__qualname__} is not a judge: pass a Judge, a name such as 'openai:gpt-5-mini', a LangChain "
            "chat model or a LlamaIndex LLM"
        )
    return _made(make, options)


def _by_name(name: str, options: dict[str, Any]) -> Judge:
    provider, colon, model = (part.strip() for part in name.partition(":"))
    if "." in provider and colon:
        if options:
            raise ConfigurationError(f"the judge {name!r} takes no options, but got {', '.join(sorted(options))}")
        return REGISTRY.create(f"{provider}:{model}")
    if not colon or not model:
        raise ConfigurationError(f"judge must be 'provider:model', such as 'openai:gpt-5-mini', not {name!r}")
    if provider not in (names := REGISTRY.names()):
        raise UnknownNameError("judge provider", provider, names, _MODELS)
    return REGISTRY.create(provider, make=lambda kind: _made(partial(kind.from_model, model), options))


def _made(make: Callable[..., Judge], options: Mapping[str, Any]) -> Judge:
    try:
        return make(**options)
    except TypeError as error:
        # Usually an option that the constructor does not have.
        raise ConfigurationError(f"the judge cannot be created: {error}") from error


def _is(value: Any, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
