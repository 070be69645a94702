"""A judge over the chat completions API of OpenAI or of a compatible server.

Requests are sent with the asynchronous client of the package ``openai``, one per event loop. Retries and the deadline
are those of :class:`rageval_hooks.judges.remote.RemoteJudge`.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from rageval_hooks.errors import (
    ConfigurationError,
    JudgeAnswerError,
    JudgeRejectedError,
    JudgeTooLargeError,
    requires,
)
from rageval_hooks.judges.answers import schema_name, strict_schema
from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.concurrency import PerLoop
from rageval_hooks.judges.failures import CallFailure, StatusError
from rageval_hooks.judges.prices import price_usd
from rageval_hooks.judges.remote import AnyCache, JudgeReply, JudgeRequest, RemoteJudge
from rageval_hooks.judges.throttling import Clock
from rageval_hooks.judges.token_counts import usage_from
from rageval_hooks.runtime.narrowing import (
    content_text,
    items_or_empty,
    mapping_or_empty,
    text_or_none,
)
from rageval_hooks.runtime.suppression import quietly
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.turn import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_DEFAULT_URL = "https://api.openai.com/v1"
_OURS = frozenset({"model", "messages", "response_format", "stream", "stream_options", "n", "tools", "tool_choice"})
_MAX_ERROR_BYTES = 64 * 1024
_CLOSE_SECONDS = 5.0
# What the client imports with its first request; which ones exist depends on its version. A child that is forked during
# an import would wait for it forever.
_IMPORTED_BY_REQUESTS = (
    *("openai.pagination", "openai.resources.chat.chat", "openai.resources.chat.completions.completions"),
    *("openai.lib._chat_completion_resources", "openai.lib.streaming.chat"),
    *("anyio._backends._asyncio", "anyio.streams.tls", "httpcore", "httpcore2", "h11", "h2.connection", "truststore"),
    "genai_prices.data",
    # The client also looks for it in `sys.modules`, where it may be half imported: by an exporter, on another thread.
    "httpx",
)


class OpenAIJudge(RemoteJudge):
    """A model behind the chat completions API.

    The schema of the answer is enforced by JSON schema mode. If the server does not support it, JSON mode is used, and
    after that the prompt only. What the server refuses is not sent again.

    Args:
        model: the model's name on the server.
        base_url: the server's URL, up to ``/v1``. By default ``OPENAI_BASE_URL``, then OpenAI.
        api_key: by default ``OPENAI_API_KEY``. Optional for servers other than OpenAI.
        temperature: sampling temperature; None for the server's default.
        seed: sampling seed; None for no seed.
        max_tokens: limit for the answer, including reasoning; None for the model's limit.
        parameters: additional fields of the request, for example ``{"reasoning_effort": "low"}``.
        headers: additional headers. Their values are treated as secrets.
        ca_bundle: a file with the certificates to trust instead of the system's, for example the server's self-signed
            certificate. ``SSL_CERT_FILE`` has the same effect on the whole process.
        http_client: for proxies and client certificates: a function that returns an ``httpx2.AsyncClient`` or
            ``httpx.AsyncClient`` (before openai 3, only ``httpx``), called once per event loop.
        structured: the first mode to try. A provider may put the JSON schema before the prompt, as OpenAI does. Then
            questions with different schemas share no prompt cache; with ``"json_object"`` they do.
        cache: an answer cache: a path or a :class:`rageval_hooks.judges.cache.JudgeCache`; None for no cache.
        clock: the time and random numbers, for tests.
        options: timeouts, retries and limits; see :class:`rageval_hooks.judges.remote.CallPolicy`.

    Raises:
        ConfigurationError: a setting is wrong, or the key for OpenAI is missing.
        MissingDependencyError: the package ``openai`` is not installed.

    Example:
        >>> judge = OpenAIJudge("qwen3", base_url="http://localhost:8000/v1", max_concurrency=2)  # doctest: +SKIP
    """

    name = "openai"
    modes: ClassVar[tuple[Mode, ...]] = ("json_schema", "json_object", "text")

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        *,
        temperature: float | None = 0.0,
        seed: int | None = None,
        max_tokens: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        ca_bundle: str | os.PathLike[str] | None = None,
        http_client: Callable[[], Any] | None = None,
        structured: Mode = "json_schema",
        cache: AnyCache = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        if not model or not model.strip():
            raise ConfigurationError("the judge's model is empty: name one, such as 'openai:gpt-5-mini'")
        if http_client is not None and not callable(http_client):
            raise ConfigurationError(
                "http_client must be a function that returns a client, such as lambda: httpx.AsyncClient(proxy=…): the "
                "judge needs one for each event loop"
            )
        url = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        # Other servers, such as vLLM, need no key.
        self._is_openai = url.rstrip("/") == _DEFAULT_URL
        wanted: dict[str, Any] = {
            "temperature": temperature,
            "seed": seed,
            # OpenAI's newer models refuse the old name, and other servers silently ignore the new one.
            "max_completion_tokens" if self._is_openai else "max_tokens": max_tokens,
        }
        body = {name: value for name, value in wanted.items() if value is not None} | dict(parameters or {})
        if wrong := sorted(_OURS & body.keys()):
            raise ConfigurationError(f"parameters must not have {', '.join(wrong)}: the judge sets these itself")
        super().__init__(model, options, structured=structured, parameters=body, cache=cache, clock=clock)
        self._api_key = _key(api_key, self._is_openai)
        self._headers = {name: SecretStr(value) for name, value in (headers or {}).items()}
        # It may contain a password.
        self._url = SecretStr(_checked_url(url))
        self._shown_url = safe_url(url)
        with requires("openai", "openai", "OpenAIJudge"):
            import openai
        for module in _IMPORTED_BY_REQUESTS:
            with suppress(ImportError):
                import_module(module)
        self._openai = openai
        # One context for all clients, made now. OpenSSL holds locks meanwhile, which a child that is forked at that
        # moment, by another thread, would wait for forever.
        # The HTTP library is httpx2, or httpx before openai 3.
        http = sys.modules[openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]]
        try:
            self._tls = http.create_ssl_context() if ca_bundle is None else ssl.create_default_context(cafile=ca_bundle)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"ca_bundle {os.fspath(ca_bundle or '')!r} cannot be read: {error}") from error
        # The client starts a thread to find this out, and no thread can be started while the interpreter exits. It also
        # starts a process and holds a lock of the standard library, which a child that is forked meanwhile inherits.
        self._platform = None
        with suppress(Exception):
            self._platform = import_module("openai._base_client").get_platform()
        self._new_http_client = http_client or (lambda: openai.DefaultAsyncHttpxClient(verify=self._tls))
        self._clients = PerLoop(self._client, lambda client: quietly(client.close(), _CLOSE_SECONDS))

    @classmethod
    def from_model(cls, model: str, **options: Any) -> Self:
        """Create the judge for ``"openai:model"``."""
        return cls(model, **options)

    @property
    def where(self) -> str:
        """The server's address."""
        return self._shown_url

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model and address."""
        return {"api": "chat.completions", "model": self.model, "base_url": self._shown_url}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, the values of the headers, and the credentials in the URL."""
        parts = urlsplit(self._url.get_secret_value())
        of_url = [parts.username or "", parts.password or "", *(value for _, value in parse_qsl(parts.query))]
        keys = [*self._headers.values(), *filter(None, [self._api_key])]
        return (*(key.get_secret_value() for key in keys), *of_url, *map(unquote, of_url))

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price at the provider behind the URL."""
        return price_usd(usage, model, url=self._shown_url)

    async def send(self, request: JudgeRequest) -> JudgeReply:
        """Send one request."""
        client = await self._clients.get()
        body: dict[str, Any] = {**request.parameters}
        if request.mode == "json_schema":
            schema = {"name": schema_name(request.schema), "strict": True, "schema": strict_schema(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif request.mode == "json_object":
            body["response_format"] = {"type": "json_object"}
        headers: dict[str, Any] = {name: value.get_secret_value() for name, value in self._headers.items()}
        if self._api_key is None:
            headers.setdefault("Authorization", self._openai.Omit())
        messages: list[Any] = [{"role": message.role, "content": message.content} for message in request.messages]
        # Sent as `extra_body`: the client's own signature would reject the fields of other servers.
        call = client.chat.completions.with_streaming_response.create(
            model=self.model, messages=messages, extra_body=body, extra_headers=headers, timeout=request.timeout
        )
        limit = self.policy.max_answer_bytes
        async with call as response:
            content = await _read(response.http_response, limit)
        if len(content) > limit:
            raise JudgeTooLargeError(f"the answer is larger than {limit} bytes")
        return _reply(content, response.headers.get("content-type", ""), self.where)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The judge can be used again."""
        await self._clients.aclose()

    def close(self, timeout: float = 5.0) -> None:
        """Close the connections of event loops on other threads, such as those that ``evaluate()`` has used."""
        self._clients.close(timeout)

    def _client(self) -> AsyncOpenAI:
        parts = urlsplit(self._url.get_secret_value())
        http_client = self._new_http_client()
        hooks = http_client.event_hooks
        http_client.event_hooks = {**hooks, "response": [*hooks["response"], _raise_errors]}
        client = self._openai.AsyncOpenAI(
            # The client insists on a key, also for servers that need none.
            api_key=self._api_key.get_secret_value() if self._api_key else "none",
            base_url=urlunsplit(parts._replace(query="")),
            default_query=dict(parse_qsl(parts.query)),
            http_client=http_client,
            max_retries=0,
        )
        if not self._is_openai:
            # It reads them from the environment, and would send them to every server.
            client.organization = client.project = None
        client._platform = self._platform
        # Made while a fork waits for it: in Python 3.11 a process that is forked during a cached property's first use
        # would wait for ever for its lock.
        _ = client.chat.completions.with_streaming_response
        return client


def _key(given: str | SecretStr | None, is_openai: bool) -> SecretStr | None:
    key = given.get_secret_value() if isinstance(given, SecretStr) else given
    key = (key or os.environ.get("OPENAI_API_KEY") or "").strip()
    # Copied keys often end in a line break, and HTTP headers are ASCII: the client's own error would show the key.
    if not key.isascii() or any(map(str.isspace, key)):
        raise ConfigurationError("the API key contains white space or non-ASCII characters: check OPENAI_API_KEY")
    if not key and is_openai:
        raise ConfigurationError(
            "OpenAI needs a key: pass api_key or set OPENAI_API_KEY; for another server pass base_url or set "
            "OPENAI_BASE_URL"
        )
    return SecretStr(key) if key else None


def _checked_url(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url.strip())
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return urlunsplit(parts)
    raise ConfigurationError("base_url must be a URL such as http://localhost:8000/v1")


async def _raise_errors(response: Any) -> None:
    """Raise a :class:`StatusError` for an error or a redirect.

    The client would read the whole body of an error, and follow a redirect, whose host would receive the key and the
    prompt.
    """
    if response.status_code >= 300:
        content = await _read(response, _MAX_ERROR_BYTES)
        text = content[:_MAX_ERROR_BYTES].decode("utf-8", "replace")
        raise StatusError(response.status_code, text, {k.lower(): value for k, value in response.headers.items()})


async def _read(response: Any, limit: int) -> bytes:
    """Return the body of a response. Reading ends once it is longer than the limit in bytes."""
    content = b""
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            content += chunk
            if len(content) > limit:
                break
    return content


def _reply(body: bytes, content_type: str, where: str) -> JudgeReply:
    """Return the reply in a response with status 200.

    Raises:
        StatusError: the body holds an error object.
        CallFailure: the body is not a chat completion, for example a web page, or cut off.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        # A base_url without /v1 often leads to the web page of the server, with status 200.
        if "html" in content_type:
            page = JudgeRejectedError(f"{where} answers with a web page: check base_url, which ends in /v1")
            raise CallFailure(page, broken=True)
        raise _broken(f"{where} answers with something that is not JSON")
    # Some gateways send errors with status 200, and with the true status as the code.
    error = mapping_or_empty(found.get("error"))
    if error:
        code = error.get("code")
        raise StatusError(code if isinstance(code, int) and 400 <= code < 600 else 500, error)
    choice = mapping_or_empty(next(iter(items_or_empty(found.get("choices"))), None))
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise _broken(f"{where} answers without choices[0].message")
    return JudgeReply(
        text=content_text(message.get("content")),
        usage=usage_from(found.get("usage")),
        model=text_or_none(found.get("model")),
        response_id=text_or_none(found.get("id")),
        finish_reason=text_or_none(choice.get("finish_reason")),
        refusal=text_or_none(message.get("refusal")),
    )


def _broken(problem: str) -> CallFailure:
    return CallFailure(JudgeAnswerError(problem), retry=True, broken=True)
