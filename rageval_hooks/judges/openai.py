"""A judge over the chat completions API of OpenAI or of a compatible server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self, Unpack

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.client.chat_completions import ChatCompletions, HttpClient
from rageval_hooks.judges.client.policy import CallOptions, CallPolicy
from rageval_hooks.judges.client.remote import AnyCache, RemoteJudge
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.selecting import entries_not_none

__all__ = ["OpenAIJudge"]

_DEFAULT_URL = "https://api.openai.com/v1"
_OURS = frozenset({"model", "messages", "response_format", "stream", "stream_options", "n", "tools", "tool_choice"})


class OpenAIJudge(RemoteJudge):
    """A model behind the chat completions API, with the asynchronous client of the package ``openai``.

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
        http_client: for proxies and client certificates: a function that returns an ``httpx2.AsyncClient`` (or
            ``httpx``, whichever the installed client uses), called once per event loop; or such a client, which then
            serves one event loop and is not closed by the judge.
        structured: the first mode to try. A provider may put the JSON schema before the prompt, as OpenAI does. Then
            questions with different schemas share no prompt cache; with ``"json_object"`` they do.
        cache: an answer cache: a path or a :class:`rageval_hooks.judges.client.cache.JudgeCache`; None for no cache.
        clock: the time and random numbers, for tests.
        options: timeouts, retries and limits; see :class:`rageval_hooks.judges.client.policy.CallPolicy`.

    Raises:
        ConfigurationError: a setting is wrong, or the key for OpenAI is missing.
        MissingDependencyError: the package ``openai`` is not installed.

    Example:
        >>> judge = OpenAIJudge("qwen3", base_url="http://localhost:8000/v1", max_concurrency=2)  # doctest: +SKIP
    """

    name = "openai"

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
        http_client: HttpClient | None = None,
        structured: Mode = "json_schema",
        cache: AnyCache = None,
        clock: Clock | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        if not model or not model.strip():
            raise ConfigurationError("the judge's model is empty: name one, such as 'openai:gpt-5-mini'")
        url = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        # Other servers, such as vLLM, need no key.
        own = url.rstrip("/") == _DEFAULT_URL
        wanted: dict[str, Any] = {
            "temperature": temperature,
            "seed": seed,
            # OpenAI's newer models refuse the old name, and other servers silently ignore the new one.
            "max_completion_tokens" if own else "max_tokens": max_tokens,
        }
        wanted = entries_not_none(wanted)
        backend = ChatCompletions(
            model=model,
            base_url=url,
            api_key=_key(api_key, own),
            headers=headers or {},
            ca_bundle=ca_bundle,
            http_client=http_client,
        )
        super().__init__(
            self.name,
            model,
            backend,
            CallPolicy.build(options),
            structured=structured,
            parameters=_checked({**wanted, **(parameters or {})}),
            cache=cache,
            clock=clock,
        )

    @classmethod
    def from_model(cls, model: str, **options: Any) -> Self:
        """Create the judge for ``"openai:model"``."""
        return cls(model, **options)


def _key(given: str | SecretStr | None, own: bool) -> SecretStr | None:
    key = given.get_secret_value() if isinstance(given, SecretStr) else given
    key = (key or os.environ.get("OPENAI_API_KEY") or "").strip()
    # Copied keys often end in a line break, and HTTP headers are ASCII: the client's own error would show the key.
    if not key.isascii() or any(map(str.isspace, key)):
        raise ConfigurationError("the API key contains white space or non-ASCII characters: check OPENAI_API_KEY")
    if key:
        return SecretStr(key)
    # A server of the user may need no key.
    if not own:
        return None
    raise ConfigurationError(
        "OpenAI needs a key: pass api_key or set OPENAI_API_KEY; for another server pass base_url or set "
        "OPENAI_BASE_URL"
    )


def _checked(parameters: dict[str, Any]) -> dict[str, Any]:
    if wrong := sorted(_OURS & parameters.keys()):
        raise ConfigurationError(f"parameters must not have {', '.join(wrong)}: the judge sets these itself")
    return parameters
