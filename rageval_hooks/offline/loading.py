"""Loads what users name: objects of their code, as ``package.module:object``, and applications, also by URL."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.offline.input_sizes import REPLY, in_mib
from rageval_hooks.offline.records.values import chat_text
from rageval_hooks.text.wording import with_article

_PLACEHOLDER = "{question}"
_DEFAULT_REQUEST = '{"question": "{question}"}'
_SHOWN = 300
_TIMEOUT = 600.0  # the time limit of a question ends a request earlier


def import_named(name: str, option: str) -> Any:
    """Return the object that a name refers to. Modules of the current directory can be imported.

    Args:
        name: ``"package.module:object"``; the object may be an attribute of another: ``"module:app.chain"``.
        option: of the command line, for messages: ``"--app"``.

    Raises:
        ConfigurationError: the name has another form, the module cannot be imported, or it has no such object.
    """
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise ConfigurationError(f"{option} must have the form package.module:object, not {name!r}")
    here = os.getcwd()
    # As `python -m` does: the user's module usually lies in the current directory.
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        # A module that does not exist is usually looked for from the wrong folder.
        where = f" from {here}" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigurationError(
            f"{option}: {module_name} cannot be imported{where}: {type(error).__name__}: {error}"
        ) from error
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            close = get_close_matches(attribute, dir(found), n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigurationError(f"{option}: {name} names nothing: there is no {attribute!r}.{guess}")
        found = getattr(found, attribute)
    return found


def is_factory(value: Any) -> bool:
    """Return True if a function or class needs no arguments, so that calling it creates the object.

    A function with ``*args`` is not a factory: it may be a wrapper around a function that needs an argument.
    """
    if not (inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, partial)):
        return False
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    # A call without arguments fills **options with nothing.
    return all(
        parameter.kind is parameter.VAR_KEYWORD or parameter.default is not parameter.empty for parameter in parameters
    )


# --------------------------------------------------------------------------- applications


@dataclass(frozen=True)
class App:
    """Something that answers questions.

    Attributes:
        ask: takes the question; what it may return is read by :mod:`rageval_hooks.offline.asking`.
        asynchronous: True if ``ask`` is a coroutine function.
        framework: True for an object of a framework, whose integration captures everything.
    """

    ask: Callable[[str], Any]
    asynchronous: bool = False
    framework: bool = False


async def load_app(name: str, *, request: str | None = None, input_key: str | None = None) -> App:
    """Return the application that was named. A function without arguments is called, and makes it.

    Run this on the event loop that asks the application: what a coroutine function makes may belong to its loop.

    Args:
        name: ``package.module:object``, or a URL.
        request: body of the requests to a URL.
        input_key: see :func:`adapt`.

    Raises:
        ConfigurationError: there is no such object, or it cannot be made or asked.
    """
    if name.startswith(("http://", "https://")):
        return adapt(HttpApp(name, request), input_key)
    if request is not None:
        raise ConfigurationError(f"--request is for an --app that is a URL, and this is {name}")
    found = import_named(name, "--app")
    if is_factory(found):
        try:
            found = found()
            found = await found if inspect.isawaitable(found) else found
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"--app: {name}() failed: {type(error).__name__}: {error}") from error
    return adapt(found, input_key)


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
            if ask := support.question_function(target, input_key):
                return App(ask, framework=True)
    what = f"the class {target.__qualname__}" if isinstance(target, type) else with_article(type(target).__name__)
    if input_key is not None:
        raise ConfigurationError(f"--input-key is for applications that take an object, and the app is {what}")
    if not callable(target) or isinstance(target, type):
        kinds = ", ".join(support.app_kind for support in installed_support())
        raise ConfigurationError(
            f"--app is {kinds}, a function of a question, or a function without arguments that makes one of these; "
            f"this is {what}"
        )
    # Of an object that can be called, the method is the coroutine function.
    call = target if inspect.isroutine(target) else type(target).__call__
    return App(target, asynchronous=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call))


class HttpError(RagevalError):
    """The application behind a URL did not answer."""


class _NoRedirects(HTTPRedirectHandler):
    """Makes an error of a redirect: urllib would ask any host, by GET, and without the question."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request:
        fp.close()
        raise HttpError(f"{code}: {req.full_url} redirects to {newurl}: name the right URL with --app")


class HttpApp:
    """Asks an application by HTTP.

    Args:
        url: where requests go.
        request: the body as JSON, with ``{question}`` within any of its strings; ``{"question": ...}`` by default.

    Raises:
        ConfigurationError: the body has no place for the question.
    """

    def __init__(self, url: str, request: str | None = None) -> None:
        self._url = url
        self._opener = build_opener(_NoRedirects)
        self._template = request or _DEFAULT_REQUEST
        if _PLACEHOLDER not in self._template:
            raise ConfigurationError(f"--request has no {_PLACEHOLDER}: {self._template!r}")

    def __call__(self, question: str) -> Any:
        """Return the answer to a question: the JSON of the response, or its text.

        Raises:
            HttpError: there is no answer; the message has the status and the beginning of the response.
        """
        # Within a string of the template, so that the question needs no quotes of its own.
        body = self._template.replace(_PLACEHOLDER, json.dumps(question)[1:-1]).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = Request(self._url, body, headers, method="POST")  # noqa: S310 - the user names the URL
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                content: bytes = response.read(REPLY + 1)
        except urllib.error.HTTPError as error:
            with error:
                shown = error.read(_SHOWN).decode("utf-8", "replace")
            raise HttpError(f"{error.code} {error.reason}: {shown}") from None
        except urllib.error.URLError as error:
            raise HttpError(f"{self._url} cannot be reached: {error.reason}") from None
        if len(content) > REPLY:
            raise HttpError(f"the reply is larger than {in_mib(REPLY)}")
        text = content.decode("utf-8", "replace")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text
        # A chat completion has its answer deeper than other responses.
        said = chat_text(found, "assistant") if isinstance(found, Mapping) else ""
        return {"answer": said, **found} if said else found
