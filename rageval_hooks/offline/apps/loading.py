"""Loads the application that was named, as a function of a question."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.offline.apps.http import HttpApp, is_url
from rageval_hooks.offline.import_object import import_named, is_factory
from rageval_hooks.text.wording import with_article

__all__ = ["App", "adapt", "load"]


@dataclass(frozen=True)
class App:
    """Something that answers questions.

    Attributes:
        ask: takes the question; its result is read by :func:`rageval_hooks.offline.apps.answers.record_of`.
        asynchronous: True if ``ask`` is a coroutine function.
        framework: True for an object of a framework, whose integration captures everything.
    """

    ask: Callable[[str], Any]
    asynchronous: bool = False
    framework: bool = False


def load(name: str, request: str | None = None, *, follow_redirects: bool = False) -> Any:
    """Return the application that was named. A function without arguments is called, and makes it.

    Args:
        name: ``package.module:object``, or a URL.
        request: body of the requests to a URL.
        follow_redirects: True to follow redirects of a URL to the same host.

    Raises:
        ConfigurationError: there is no such object, or it cannot be made.
    """
    if is_url(name):
        return HttpApp(name, request, follow_redirects=follow_redirects)
    for option, is_given in (("--request", request is not None), ("--follow-redirects", follow_redirects)):
        if is_given:
            raise ConfigurationError(f"{option} is for an --app that is a URL, and this is {name}")
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
        target: an application of a framework with an integration, or a function of a question.
        input_key: the key under which the application takes the question; None to find out.

    Raises:
        ConfigurationError: it cannot be asked; the message says what to name instead.
    """
    # Functions are no objects of a framework. Not to ask the integrations saves the import of frameworks.
    if not inspect.isroutine(target):
        for support in installed_support():
            ask = support.question_function(target, input_key)
            if ask is not None:
                return App(ask, framework=True)
    if input_key is not None:
        raise ConfigurationError(f"--input-key is for applications that take an object, and the app is {_kind(target)}")
    if not callable(target) or isinstance(target, type):
        kinds = ", ".join(support.app_kind for support in installed_support())
        raise ConfigurationError(
            f"--app is {kinds}, a function of a question, or a function without arguments that makes one of these; "
            f"this is {_kind(target)}"
        )
    # Of an object that can be called, the method is the coroutine function.
    call = target if inspect.isroutine(target) else type(target).__call__
    return App(target, asynchronous=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call))


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return with_article(type(value).__name__)
