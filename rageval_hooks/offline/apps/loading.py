"""Loads the application that was named, as a function of a question."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.apps.http import HttpApp, is_url
from rageval_hooks.runtime.import_object import import_named, is_factory
from rageval_hooks.text.wording import with_article

__all__ = ["App", "adapt", "load"]

_INPUT_KEYS = ("question", "query", "input", "user_input", "messages")


@dataclass(frozen=True)
class App:
    """Something that answers questions.

    Attributes:
        ask: takes the question; its result is read by :func:`rageval_hooks.offline.apps.answers.read_answer`.
        asynchronous: True if ``ask`` is a coroutine function.
        framework: True for an object of a framework, whose integration captures everything.
    """

    ask: Callable[[str], Any]
    asynchronous: bool = False
    framework: bool = False


def load(name: str, request: str | None = None) -> Any:
    """Return the application that was named. A function without arguments is called, and makes it.

    Args:
        name: ``package.module:object``, or a URL.
        request: body of the requests to a URL.

    Raises:
        ConfigurationError: there is no such object, or it cannot be made.
    """
    if is_url(name):
        return HttpApp(name, request)
    if request is not None:
        raise ConfigurationError(f"--request is for an --app that is a URL, and this is {name}")
    found = import_named(name, "--app")
    if not is_factory(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"--app: {name}() failed: {type(error).__name__}: {error}") from error


def adapt(target: Any, input_key: str | None = None) -> App:
    """Return an application as a function of a question.

    Args:
        target: a runnable of LangChain, a query engine of LlamaIndex, or a function of a question.
        input_key: the key under which a runnable takes the question; None to find out.

    Raises:
        ConfigurationError: it cannot be asked; the message says what to name instead.
    """
    if _is_runnable(target):
        wrap = _input_of(target, input_key)
        return App(lambda question: target.invoke(wrap(question)), framework=True)
    if input_key is not None:
        raise ConfigurationError(f"--input-key is for runnables of LangChain, and the app is {_kind(target)}")
    if callable(getattr(target, "query", None)) and not isinstance(target, type):
        return App(lambda question: target.query(question), framework=True)
    if callable(getattr(target, "chat", None)):
        raise ConfigurationError(
            f"--app: {_kind(target)} remembers the conversation, so that questions would affect each other: name a "
            "function of the question that makes a new one and asks it"
        )
    if callable(getattr(target, "as_query_engine", None)):
        raise ConfigurationError(f"--app: {_kind(target)} does not answer questions: name index.as_query_engine()")
    if not callable(target) or isinstance(target, type):
        raise ConfigurationError(
            f"--app is a runnable of LangChain, a query engine of LlamaIndex, a function of a question, or a function "
            f"without arguments that makes one of these; this is {_kind(target)}"
        )
    call = target if inspect.isroutine(target) else type(target).__call__
    asynchronous = inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)
    return App(target, asynchronous=asynchronous)


def _kind(value: Any) -> str:
    return f"the class {value.__qualname__}" if isinstance(value, type) else with_article(type(value).__name__)


def _is_runnable(target: Any) -> bool:
    kind = getattr(sys.modules.get("langchain_core.runnables"), "Runnable", None)
    return isinstance(kind, type) and isinstance(target, kind)


def _input_of(runnable: Any, input_key: str | None) -> Callable[[str], Any]:
    """Return a function from a question to a runnable's input, by its schema if no key is given."""
    key = input_key if input_key is not None else _key_of(runnable)
    if key is None:
        return lambda question: question
    if key == "messages":
        return lambda question: {"messages": [("user", question)]}
    return lambda question: {key: question}


def _key_of(runnable: Any) -> str | None:
    """Return the key of the question in a runnable's input; None if the question itself is the input."""
    properties, required = _inputs(runnable)
    if not properties:
        return None
    if len(required) == 1:
        return required[0]
    found = next((name for name in _INPUT_KEYS if name in properties), None)
    if found is not None and not set(required) - {found}:
        return found
    if found is None and len(properties) == 1:
        return properties[0]
    raise ConfigurationError(
        f"--app takes more than a question ({', '.join(required or properties)}): name a function of the question that "
        "calls it, or the key of the question with --input-key"
    )


def _inputs(runnable: Any) -> tuple[list[str], list[str]]:
    """Return the keys of a runnable's input, and those that must be there."""
    builder = getattr(runnable, "builder", None)
    state = getattr(builder, "input_schema", None)
    fields = getattr(state, "__annotations__", None) or getattr(state, "model_fields", None)
    if fields:  # a graph, which needs no key of its state at its start
        return list(fields), []
    try:
        schema = runnable.get_input_jsonschema()
    except Exception:  # some inputs have no JSON schema
        return [], []
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    names = list(map(str, properties)) if isinstance(properties, Mapping) else []
    return names, [name for name in map(str, schema.get("required") or ()) if name in names]
