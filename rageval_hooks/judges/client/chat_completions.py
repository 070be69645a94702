"""Single requests to a chat completions API, with the client of the package openai."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError, JudgeRejectedError, JudgeTooLargeError, requires
from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.client.backend import Backend, Reply, Request
from rageval_hooks.judges.client.completion import reply_from
from rageval_hooks.judges.client.failures import CallFailedError, CallFailure
from rageval_hooks.judges.client.prices import price_usd
from rageval_hooks.judges.prompts.schema import schema_name, strict_schema
from rageval_hooks.runtime.event_loops import PerLoop
from rageval_hooks.runtime.selecting import not_none
from rageval_hooks.runtime.suppression import quietly
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.turn import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["ChatCompletions", "HttpClient"]

HttpClient = Callable[[], Any] | Any
"""A function that makes an ``httpx2.AsyncClient``, or such a client."""

_MAX_ERROR_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024
# The client insists on a key, also for servers that need none.
_NO_KEY = "none"
_CLOSE_TIMEOUT = 5.0

_IMPORTED_BY_REQUESTS = (
    "openai.pagination",
    "openai.resources.chat.chat",
    "openai.resources.chat.completions.completions",
    "openai.lib._chat_completion_resources",
    "openai.lib.streaming.chat",
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "httpcore",
    "httpcore2",
    "h11",
    "h2.connection",
    "truststore",
    "genai_prices",
    "genai_prices.data",
    "genai_prices.data_snapshot",
)
"""Modules that the client imports with its first request; which ones exist depends on its version."""


class ChatCompletions(Backend):
    """Sends requests with the asynchronous client of the package ``openai``, one client per event loop.

    Args:
        model: the model's name.
        base_url: the server's URL, up to ``/v1``.
        api_key: the key; None for a server that needs none.
        headers: additional headers. Their values are secrets.
        ca_bundle: see :class:`rageval_hooks.judges.openai.OpenAIJudge`.
        http_client: see :class:`rageval_hooks.judges.openai.OpenAIJudge`.

    Raises:
        ConfigurationError: the URL is not valid, or the CA bundle cannot be read.
        MissingDependencyError: the package ``openai`` is not installed.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("json_schema", "json_object", "text")

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: SecretStr | None,
        headers: Mapping[str, str],
        ca_bundle: str | os.PathLike[str] | None,
        http_client: HttpClient | None,
    ) -> None:
        with requires("openai", "openai", "OpenAIJudge"):
            import openai
        # A child that is forked while another thread imports would wait for that import forever: import now.
        for module in _IMPORTED_BY_REQUESTS:
            with suppress(ImportError):
                import_module(module)
        self._openai = openai
        self._model = model
        self._url = SecretStr(_checked_url(base_url))  # it may contain a password
        self._shown_url = safe_url(base_url)
        self._api_key = api_key
        self._headers = {name: SecretStr(value) for name, value in headers.items()}
        self._tls = _tls(ca_bundle)
        self._http_client = http_client
        self._clients: PerLoop[AsyncOpenAI] = PerLoop(self._client, self._close)
        self._loop_of_client: asyncio.AbstractEventLoop | None = None

    @property
    def where(self) -> str:
        """The server's address."""
        return self._shown_url

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model and address."""
        return {"api": "chat.completions", "model": self._model, "base_url": self._shown_url}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, the values of the headers, and the credentials in the URL."""
        parts = urlsplit(self._url.get_secret_value())
        of_url = [parts.username or "", parts.password or "", *(value for _, value in parse_qsl(parts.query))]
        keys = [self._api_key, *self._headers.values()]
        return (
            *(key.get_secret_value() for key in not_none(keys)),
            *of_url,
            *(unquote(part) for part in of_url),
        )

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price at the provider behind the URL."""
        return price_usd(usage, model, url=self._shown_url)

    async def send(self, request: Request) -> Reply:
        """Send one request."""
        client = await self._clients.get()
        body: dict[str, Any] = {**request.parameters, **_response_format(request)}
        # Sent as `extra_body`: the client's own signature would reject the fields of other servers.
        call = client.chat.completions.with_streaming_response.create(
            model=self._model,
            messages=[{"role": message.role, "content": message.content} for message in request.messages],  # type: ignore[misc]
            extra_body=body,
            extra_headers=self._own_headers(),
            timeout=request.timeout,
        )
        async with call as response:
            answer = await _read(response.iter_bytes(), request.max_answer_bytes)
            kind = response.headers.get("content-type", "")
        return reply_from(answer, kind, self.where)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    def close(self, timeout: float) -> None:
        """Close the connections of event loops on other threads."""
        self._clients.close(timeout)

    def _own_headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = {name: value.get_secret_value() for name, value in self._headers.items()}
        # A small compressed body can expand beyond every limit on bytes.
        headers["Accept-Encoding"] = "identity"
        if self._api_key is None:
            headers.setdefault("Authorization", self._openai.Omit())
        return headers

    def _client(self) -> AsyncOpenAI:
        client = _without_redirects(self._openai.AsyncOpenAI)(
            api_key=self._api_key.get_secret_value() if self._api_key else _NO_KEY,
            base_url=self._url.get_secret_value(),
            http_client=self._http(),
            max_retries=0,
        )
        # The client determines the platform in a new thread, and no thread can be started while the interpreter exits.
        with suppress(Exception):
            client._platform = import_module("openai._base_client").get_platform()
        return client

    def _http(self) -> Any:
        given = self._http_client
        if given is None:
            # A redirect to another host would receive the key and the prompt.
            made = self._openai.DefaultAsyncHttpxClient(verify=self._tls or True, follow_redirects=False)
        elif callable(given):
            made = given()
        else:
            loop = asyncio.get_running_loop()
            if self._loop_of_client not in (None, loop):
                problem = "the http_client belongs to another event loop: pass a function that creates one"
                raise CallFailedError(CallFailure(JudgeRejectedError(problem)))
            self._loop_of_client = loop
            return given
        made.event_hooks["response"].append(_bound)
        return made

    async def _close(self, client: AsyncOpenAI) -> None:
        if self._http_client is None or callable(self._http_client):
            await quietly(client.close(), _CLOSE_TIMEOUT)


def _response_format(request: Request) -> dict[str, Any]:
    if request.mode == "json_schema":
        schema = {"name": schema_name(request.schema), "strict": True, "schema": strict_schema(request.schema)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if request.mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {}


async def _read(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    read = bytearray()
    async for chunk in chunks:
        read += chunk
        if len(read) > limit:
            raise JudgeTooLargeError(f"the answer is larger than {limit} bytes")
    return bytes(read)


def _without_redirects(kind: type[AsyncOpenAI]) -> type[AsyncOpenAI]:
    """Return a client that follows no redirect, whatever its HTTP client does: another host would receive the key."""

    class Client(kind):  # type: ignore[valid-type, misc]
        async def _prepare_options(self, options: Any) -> Any:
            options = await super()._prepare_options(options)
            options.follow_redirects = False
            return options

    return Client


async def _bound(response: Any) -> None:
    """Decompress a body in small pieces, and limit the body of an error, which the client reads whole.

    A server may compress a body although it was asked not to. 200 kB of gzip can be 200 MB.
    """
    # The client uses httpx2, or httpx before openai 3.
    http = sys.modules[type(response).__module__.partition(".")[0]]
    stream = response.stream
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    limit = _MAX_ERROR_BYTES if response.status_code >= 300 else sys.maxsize

    class Bounded(http.AsyncByteStream):  # type: ignore[name-defined, misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = limit
            async for piece in _pieces(stream, encoding):
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()


async def _pieces(stream: AsyncIterable[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Yield a body, decompressed; nothing if its compression is not known."""
    if encoding not in ("identity", "gzip", "deflate"):
        return
    # 32: the header says whether it is gzip or zlib.
    decoder = None if encoding == "identity" else zlib.decompressobj(32 + zlib.MAX_WBITS)
    async for chunk in stream:
        if decoder is None:
            yield chunk
            continue
        try:
            while chunk:
                yield decoder.decompress(chunk, _PIECE_BYTES)
                chunk = decoder.unconsumed_tail
        except zlib.error:
            return


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError("base_url must be a URL such as http://localhost:8000/v1")
    return url.strip()


def _tls(ca_bundle: str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    if ca_bundle is None:
        return None
    try:
        return ssl.create_default_context(cafile=os.fspath(ca_bundle))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"ca_bundle {os.fspath(ca_bundle)!r} cannot be read: {error}") from error
