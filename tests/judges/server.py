"""A chat completions server on loopback that does what a test tells it to, and remembers what it was asked.

    with JudgeServer() as server:
        server.then(error(429, headers={"Retry-After": "2"}), answer({"grade": 3}))  # the next requests, in order
        server.otherwise(answer({"grade": 0}))  # every further one; may be a function of the request
        OpenAIJudge("any", base_url=server.url, api_key="sk-test")
        …
        assert server.requests[0].body["messages"][0]["role"] == "user"

Replies are made by the functions below: :func:`answer`, :func:`error`, :func:`raw`, and for servers that misbehave
:func:`held`, :func:`silent`, :func:`cut_off`, :func:`hang_up`, :func:`endless`. :func:`picky` is a server that lacks
features. Plain asyncio in one daemon thread: no framework is between a test and the bytes on the wire.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 40},
}
MODEL = "judge-model-2026-01-01"


@dataclass(frozen=True)
class Received:
    """A request as it came.

    Attributes:
        method: in capitals.
        path: with the query.
        headers: with lower-case names.
        content: the bytes of the body.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The body, parsed."""
        return json.loads(self.content)

    @property
    def prompt(self) -> str:
        """The contents of all messages together."""
        return "\n".join(message["content"] for message in self.body["messages"])

    @property
    def format(self) -> str | None:
        """The type of the response format that is asked for."""
        return self.body.get("response_format", {}).get("type")


Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class Reply:
    """What the server does with a request: by default, a response with a length.

    Attributes:
        status: of the response.
        headers: further ones.
        content: the body.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""

    def head(self, **more: str) -> bytes:
        """Return status line and headers."""
        headers = {"Content-Type": "application/json", **self.headers, **more}
        lines = [f"HTTP/1.1 {self.status} Whatever", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    async def play(self, send: Send) -> bool:
        """Send the response; returns whether the connection stays open."""
        await send(self.head(**{"Content-Length": str(len(self.content))}) + self.content)
        return True


class Gate:
    """Opened once, from any thread; the server's event loop waits for it without blocking."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def set(self) -> None:
        """Open the gate, if it is not open."""
        with suppress(InvalidStateError):
            self._opened.set_result(None)

    async def wait(self) -> None:
        """Wait until the gate is open."""
        # Several replies may wait, and the cancellation of one must not cancel the others.
        await asyncio.shield(asyncio.wrap_future(self._opened))


@dataclass(frozen=True)
class _Held(Reply):
    reply: Reply = field(default_factory=Reply)
    gate: Gate = field(default_factory=Gate)

    async def play(self, send: Send) -> bool:
        await self.gate.wait()
        return await self.reply.play(send)


@dataclass(frozen=True)
class _Silent(Reply):
    async def play(self, send: Send) -> bool:
        await asyncio.Event().wait()  # until the other side, or the server, gives up
        return False


@dataclass(frozen=True)
class _CutOff(Reply):
    async def play(self, send: Send) -> bool:
        await send(self.head(**{"Content-Length": str(len(self.content))}) + self.content[: len(self.content) // 2])
        return False


@dataclass(frozen=True)
class _HangUp(Reply):
    async def play(self, send: Send) -> bool:
        return False


@dataclass(frozen=True)
class _Endless(Reply):
    pause: float = 0.0

    async def play(self, send: Send) -> bool:
        await send(self.head(**{"Transfer-Encoding": "chunked"}))
        chunk = b"%x\r\n%s\r\n" % (len(self.content), self.content)
        while True:
            await send(chunk)
            # A server that sends slowly, which only time can show.
            await asyncio.sleep(self.pause)


AnyReply = Reply | Callable[[Received], Reply]


NONCE = "NONCE-OF-THE-REQUEST"
"""In the content of a reply: the server puts the nonce of the request in its place, as a model does."""


_FIELD = f'"nonce": "{NONCE}", '


def nonce_of(prompt: str) -> str:
    """Return the nonce that a prompt asks for; empty if it asks for none."""
    # Set the field "nonce" of the object to "1a2b3c4d".
    found = re.findall(r'of the object to "([0-9a-f]+)"\.', prompt)
    return found[-1] if found else ""


def with_nonce(reply: Reply, request: Received) -> Reply:
    """Return a reply with the nonce that the request asks for."""
    if isinstance(reply, _Held):
        return dataclasses.replace(reply, reply=with_nonce(reply.reply, request))
    if NONCE.encode() not in reply.content:
        return reply
    nonce = nonce_of(request.prompt)
    # A model of an application is asked for no nonce.
    old, new = (NONCE, nonce) if nonce else (json.dumps(_FIELD)[1:-1], "")
    return dataclasses.replace(reply, content=reply.content.replace(old.encode(), new.encode()))


def _signed(text: str) -> str:
    """Return a text with a field for the nonce in each outermost object, for example {"nonce": "…", "grade": 3}."""
    signed, depth = "", 0
    for character in text:
        signed += f"{{{_FIELD}" if character == "{" and not depth else character
        depth += {"{": 1, "}": -1}.get(character, 0)
    return signed


def answer(
    content: Any,
    *,
    signed: bool = True,
    finish_reason: str = "stop",
    refusal: str | None = None,
    usage: Mapping[str, Any] | None = USAGE,
    model: str = MODEL,
    tool: str | None = None,
) -> Reply:
    """A chat completion.

    Args:
        content: the message's content; anything but a string and None is written as JSON.
        signed: whether the outermost objects in it repeat the nonce of the request.
        finish_reason: why the model stopped.
        refusal: the message's refusal.
        usage: as the API has it; None to leave it out.
        model: who answered.
        tool: the name of a tool: then the content becomes the arguments of a call of it.
    """
    text = content if content is None or isinstance(content, str) else json.dumps(content)
    text = _signed(text) if text and signed else text
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal}
    if tool is not None:
        call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": text}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}],
    }
    if usage is not None:
        body["usage"] = dict(usage)
    return Reply(content=json.dumps(body).encode())


def error(
    status: int,
    message: str = "no",
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error in OpenAI's form."""
    body = {"error": {"message": message, "type": "test_error", "param": param, "code": code}}
    return Reply(status=status, headers=headers or {}, content=json.dumps(body).encode())


def raw(content: bytes | str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A response with any body at all."""
    data = content.encode() if isinstance(content, str) else content
    return Reply(status=status, headers=headers or {}, content=data)


def held(reply: Reply, gate: Gate) -> Reply:
    """A reply that is sent when the gate is opened."""
    return _Held(reply=reply, gate=gate)


def silent() -> Reply:
    """Nothing, for ever."""
    return _Silent()


def cut_off(reply: Reply) -> Reply:
    """The first half of a body whose whole length was announced; then the connection is closed."""
    return _CutOff(status=reply.status, headers=reply.headers, content=reply.content)


def hang_up() -> Reply:
    """The connection is closed without a byte."""
    return _HangUp()


def endless(chunk: bytes = b" " * 4096, *, status: int = 200, pause: float = 0.0) -> Reply:
    """A body without an end: chunk after chunk, with a pause in seconds between them."""
    return _Endless(status=status, content=chunk, pause=pause)


def picky(
    reply: AnyReply, *, parameters: Collection[str] = (), formats: Collection[str] = (), named: bool = True
) -> Callable[[Received], Reply]:
    """A server that refuses some parameters and response formats, and otherwise replies.

    Args:
        reply: to a request that has none of them.
        parameters: fields that the request must not have.
        formats: types of response formats that it must not ask for.
        named: whether the refusal has the field's name in ``param``, or in its text alone.
    """

    def respond(request: Received) -> Reply:
        for name in request.body:
            if name in parameters:
                text = f"Unsupported parameter: '{name}' is not supported with this model."
                return error(400, text, param=name if named else None, code="unsupported_parameter")
        if request.format in formats:
            text = f"'response_format' of type '{request.format}' is not supported with this model."
            return error(400, text, param="response_format" if named else None)
        return reply(request) if callable(reply) else reply

    return respond


class JudgeServer:
    """The server: a context manager, started and stopped with the block.

    Args:
        tls: a server-side context for HTTPS.

    Attributes:
        requests: what came, in the order of pending.
        most_at_once: requests that were under way at the same time, at most.
        bytes_sent: of all responses, as far as the other side took them.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._lock = threading.Condition()
        self._script: deque[AnyReply] = deque()
        self._default: AnyReply = error(418, "the test's script has no further reply")
        self._at_once = 0
        self.requests: list[Received] = []
        self.most_at_once = 0
        self.bytes_sent = 0
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL, up to ``/v1``."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def then(self, *replies: AnyReply) -> None:
        """Say what happens to the next requests, one reply each, behind those that were said before."""
        with self._lock:
            self._script.extend(replies)

    def otherwise(self, reply: AnyReply) -> None:
        """Say what happens to every request beyond the script."""
        self._default = reply

    def wait_for_requests(self, number: int) -> None:
        """Wait until as many requests have arrived in all.

        Raises:
            TimeoutError: they have not arrived within 30 seconds.
        """
        with self._lock:
            if not self._lock.wait_for(lambda: len(self.requests) >= number, 30):
                raise TimeoutError(f"{len(self.requests)} of {number} requests arrived")

    def __enter__(self) -> JudgeServer:
        """Start."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="judge-server", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls), self._loop
        ).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, whatever is under way."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _stop(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()
            self.bytes_sent += len(data)

        try:
            while (request := await _read(reader, writer)) is not None:
                self._began(request)
                try:
                    stays = await _until_gone(self._reply(request).play(send), reader)
                finally:
                    self._at_once -= 1
                if not stays:
                    break
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()

    def _began(self, request: Received) -> None:
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._lock.notify_all()

    def _reply(self, request: Received) -> Reply:
        with self._lock:
            reply = self._script.popleft() if self._script else self._default
        return with_nonce(reply(request) if callable(reply) else reply, request)


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Received | None:
    beginning = await reader.read(1)
    if not beginning.isupper():  # the end, or TLS where none is spoken
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" if beginning else b"")
        return None
    head = beginning + await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, content)


async def _until_gone(play: Awaitable[bool], reader: asyncio.StreamReader) -> bool:
    """Await a reply, unless the other side goes away first."""
    playing = asyncio.ensure_future(play)
    gone = asyncio.ensure_future(_gone(reader))
    try:
        await asyncio.wait({playing, gone}, return_when=asyncio.FIRST_COMPLETED)
        return playing.done() and playing.result()
    finally:
        for task in (playing, gone):
            task.cancel()
        await asyncio.gather(playing, gone, return_exceptions=True)


async def _gone(reader: asyncio.StreamReader) -> None:
    # The reader has no event for its end: reading would take the first byte of the next request.
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.02)
