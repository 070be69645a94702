"""A judge over the chat completions API: OpenAI's own, or any server that speaks it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.client.chat_completions import ChatCompletions, HttpClient
from rageval_hooks.judges.client.policy import CallOptions, CallPolicy
from rageval_hooks.judges.client.remote import AnyCache, RemoteJudge

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Unpack

    from rageval_hooks.judges.base import Mode
    from rageval_hooks.runtime.clock import Clock

__all__ = ["OpenAIJudge"]

_DEFAULT_URL = "https://api.openai.com/v1"
_OURS = frozenset({"model", "messages", "response_format", "stream", "stream_options", "n", "tools", "tool_choice"})


class OpenAIJudge(RemoteJudge):
    """A model behind the chat completions API, through the asynchronous client of the package ``openai``.

    The form of the answer is asked for by JSON schema; where the server lacks that, in JSON mode, and where it lacks
    that too, in the prompt. What the server refuses is remembered and not sent again.

    Args:
        model: the model's name, as the server knows it.
        base_url: the server, up to ``/v1``; by default the environment's ``OPENAI_BASE_URL``, else OpenAI.
        api_key: by default the environment's ``OPENAI_API_KEY``. Servers other than OpenAI may do without.
        temperature: of the sampling; None leaves it to the server.
        seed: of the sampling; None leaves it out.
        max_tokens: the most that an answer may have, thoughts included; None for the model's own limit.
        parameters: further fields of the request, such as ``{"reasoning_effort": "low"}``.
        headers: further headers. Their values are treated as secrets.
        ca_bundle: a file with the certificates of the authorities to trust, in place of the system's. For a server with
            a self-signed certificate this is that certificate. (``SSL_CERT_FILE`` in the environment does the same for
            the whole process.)
        http_client: for proxies, client certificates and the like: a function that makes an ``httpx2.AsyncClient`` (or
            ``httpx``, as the installed client uses it), called for each event loop; or such a client, which then serves
            one event loop and is not closed by the judge.
        structured: the best way to ask for the answer's form that is tried. A provider may put the JSON schema in front
            of the prompt, as OpenAI does: then questions with different schemas share no prompt cache, which they do
            with ``"json_object"``.
        cache: answers on disk: a path, or a :class:`rageval_hooks.judges.client.cache.JudgeCache`; None for none.
        clock: tells the time; for tests.
        options: times, retries and limits; see :class:`rageval_hooks.judges.client.policy.CallPolicy`.

    Raises:
        ConfigurationError: a setting is wrong, or there is no key for OpenAI.
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
            raise ConfigurationError("the judge's model is empty")
        url = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        modes = ChatCompletions.modes
        if structured not in modes:
            raise ConfigurationError(f"structured is one of {', '.join(modes)}, not {structured!r}")
        own = url.rstrip("/") == _DEFAULT_URL
        wanted: dict[str, Any] = {
            "temperature": temperature,
            "seed": seed,
            # Newer models refuse the old name, other servers ignore the new one without a word.
            "max_completion_tokens" if own else "max_tokens": max_tokens,
        }
        wanted = {name: value for name, value in wanted.items() if value is not None}
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
            modes=modes[modes.index(structured) :],
            parameters=_checked({**wanted, **(parameters or {})}),
            cache=cache,
            clock=clock,
        )

    @classmethod
    def from_model(cls, model: str, **options: Any) -> Self:
        """Make the judge that a user has named as ``"openai:model"``."""
        return cls(model, **options)


def _key(given: str | SecretStr | None, own: bool) -> SecretStr | None:
    key = given.get_secret_value() if isinstance(given, SecretStr) else given
    key = (key or os.environ.get("OPENAI_API_KEY") or "").strip()
    if not key and own:
        raise ConfigurationError(
            "OpenAI needs a key: pass api_key or set OPENAI_API_KEY; for another server pass base_url or set "
            "OPENAI_BASE_URL"
        )
    if not key.isascii() or any(character.isspace() for character in key):
        raise ConfigurationError("the API key has characters that no key has")
    return SecretStr(key) if key else None


def _checked(parameters: dict[str, Any]) -> dict[str, Any]:
    if wrong := sorted(_OURS & parameters.keys()):
        raise ConfigurationError(f"parameters must not have {', '.join(wrong)}: the judge sets these itself")
    return parameters
