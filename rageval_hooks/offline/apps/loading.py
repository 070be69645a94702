"""Loads the application that was named, as a function of a question: an object of the user's code, or a URL."""

from __future__ import annotations

import inspect
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.offline.import_object import import_named, is_factory
from rageval_hooks.offline.limits import REPLY, in_mib
from rageval_hooks.offline.records.values import chat_text
from rageval_hooks.text.wording import with_article

_PLACEHOLDER = "{question}"
_DEFAULT_REQUEST = '{"question": "{question}"}'
_SHOWN = 300
_TIMEOUT = 600.0  # the time limit of a question ends a request earlier
_MOST_REDIRECTS = 5
# 303 asks for another method, and says that the reply is about something else.
_REDIRECTS = (301, 302, 307, 308)


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
    if name.startswith(("http://", "https://")):
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


class HttpError(RagevalError):
    """The application behind a URL did not answer."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the caller: urllib would ask any host by GET, and without the question."""

    def redirect_request(self, *_: Any) -> None:
        return None


class HttpApp:
    """Asks an application by HTTP.

    Args:
        url: where requests go.
        request: the body as JSON, with ``{question}`` within any of its strings; ``{"question": ...}`` by default.
        follow_redirects: True to send a question again where the same host redirects to. Other redirects are errors.

    Raises:
        ConfigurationError: the body is not JSON or has no place for the question.
    """

    def __init__(self, url: str, request: str | None = None, *, follow_redirects: bool = False) -> None:
        self._url = url
        self._follow_redirects = follow_redirects
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._template = request or _DEFAULT_REQUEST
        if _PLACEHOLDER not in self._template:
            raise ConfigurationError(f"--request has no {_PLACEHOLDER}: {self._template!r}")
        try:
            json.loads(self._template)
        except ValueError as error:
            raise ConfigurationError(f"--request is not JSON ({error}): {self._template!r}") from None

    def __call__(self, question: str) -> Any:
        """Return the answer to a question: the JSON of the response, or its text.

        Raises:
            HttpError: there is no answer; the message has the status and the beginning of the response.
        """
        # Within a string of the template, so that the question needs no quotes of its own.
        body = self._template.replace(_PLACEHOLDER, json.dumps(question)[1:-1]).encode()
        url = self._url
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                text = self._post(url, body)
            except urllib.error.HTTPError as error:
                with error:
                    target = error.headers.get("Location")
                    if 300 <= error.code < 400 and target:
                        url = self._redirected(url, error.code, target)
                        continue
                    shown = error.read(_SHOWN).decode("utf-8", "replace")
                raise HttpError(f"{error.code} {error.reason}: {shown}") from None
            except urllib.error.URLError as error:
                raise HttpError(f"{url} cannot be reached: {error.reason}") from None
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                return text
            # A chat completion has its answer deeper than other responses.
            said = chat_text(found, "assistant") if isinstance(found, Mapping) else ""
            return {"answer": said, **found} if said else found
        raise HttpError(f"{self._url} redirects more than {_MOST_REDIRECTS} times")

    def _post(self, url: str, body: bytes) -> str:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - the user names the URL
        with self._opener.open(request, timeout=_TIMEOUT) as response:
            content: bytes = response.read(REPLY + 1)
        if len(content) > REPLY:
            raise HttpError(f"the reply is larger than {in_mib(REPLY)}")
        return content.decode("utf-8", "replace")

    def _redirected(self, url: str, status: int, target: str) -> str:
        """Return where a redirect leads, if it is to be followed.

        Raises:
            HttpError: it is not; the message says what to do.
        """
        there = urljoin(url, target)
        one, other = urlsplit(url), urlsplit(there)
        if (one.scheme, one.netloc) != (other.scheme, other.netloc):
            raise HttpError(f"{status}: {url} redirects to another host, {there}: name the right URL with --app")
        if status not in _REDIRECTS or not self._follow_redirects:
            raise HttpError(f"{status}: {url} redirects to {there}: name it with --app, or give --follow-redirects")
        return there
