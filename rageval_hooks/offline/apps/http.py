"""An application behind a URL: each question is a POST request with JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.offline.records.values import chat_text

__all__ = ["HttpApp", "is_url"]

_PLACEHOLDER = "{question}"
_DEFAULT_REQUEST = '{"question": "{question}"}'
_LONGEST_BODY = 300
_TIMEOUT = 600.0  # the time limit of a question ends a request earlier


class HttpError(RagevalError):
    """The application behind a URL did not answer."""


def is_url(name: str) -> bool:
    """Return True if an application is named by its URL."""
    return name.startswith(("http://", "https://"))


class HttpApp:
    """Asks an application by HTTP.

    Args:
        url: where requests go.
        request: the body as JSON, with ``{question}`` within any of its strings; ``{"question": ...}`` by default.

    Raises:
        ConfigurationError: the body is not JSON or has no place for the question.
    """

    def __init__(self, url: str, request: str | None = None) -> None:
        self._url = url
        template = request or _DEFAULT_REQUEST
        if _PLACEHOLDER not in template:
            raise ConfigurationError(f"--request has no {_PLACEHOLDER}: {template!r}")
        try:
            self._template = json.loads(template)
        except ValueError as error:
            raise ConfigurationError(f"--request is not JSON ({error}): {template!r}") from None

    def __call__(self, question: str) -> Any:
        """Return the answer to a question: the JSON of the response, or its text.

        Raises:
            HttpError: there is no answer; the message has the status and the beginning of the response.
        """
        body = json.dumps(_filled(self._template, question)).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - the user names the URL
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
                return _answer(response.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")[:_LONGEST_BODY]
            raise HttpError(f"{error.code} {error.reason}: {text}") from None
        except urllib.error.URLError as error:
            raise HttpError(f"{self._url} cannot be reached: {error.reason}") from None


def _filled(template: Any, question: str) -> Any:
    """Return the body with the question in the place of ``{question}``."""
    if isinstance(template, str):
        return template.replace(_PLACEHOLDER, question)
    if isinstance(template, list):
        return [_filled(item, question) for item in template]
    if isinstance(template, dict):
        return {key: _filled(value, question) for key, value in template.items()}
    return template


def _answer(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    # A chat completion has its answer deeper than other responses.
    if isinstance(found, Mapping) and (said := chat_text(found, "assistant")):
        return {"answer": said, **found}
    return found
