"""Read a chat completion in OpenAI's form, and in the variants of other servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rageval_hooks.errors import JudgeAnswerError, JudgeRejectedError
from rageval_hooks.judges.client.backend import Reply
from rageval_hooks.judges.client.failures import CallFailedError, CallFailure, StatusError
from rageval_hooks.runtime.narrowing import (
    is_integer,
    items_or_empty,
    mapping_or_empty,
    mappings_in,
    text_or_empty,
    text_or_none,
)
from rageval_hooks.turn import Usage

__all__ = ["reply_from", "usage_from"]

_ERROR_STATUSES = range(400, 600)


def reply_from(body: bytes, content_type: str, where: str) -> Reply:
    """Return the reply in a response with status 200.

    Args:
        body: the response's body.
        content_type: the response's content type.
        where: the server, for messages.

    Raises:
        StatusError: the body holds an error object.
        CallFailedError: the body is not a chat completion, for example a web page, or cut off.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        # A base_url without /v1 often leads to the web page of the server, with status 200.
        if "html" in content_type:
            page = JudgeRejectedError(f"{where} answers with a web page: check base_url, which ends in /v1")
            raise CallFailedError(CallFailure(page, broken=True))
        raise _broken(f"{where} answers with something that is not JSON")
    # Some gateways send errors with status 200, and with the true status as the code.
    error = mapping_or_empty(found.get("error"))
    if error:
        code = error.get("code")
        status = code if isinstance(code, int) and code in _ERROR_STATUSES else 500
        raise StatusError(status, error)
    choice = mapping_or_empty(next(iter(items_or_empty(found.get("choices"))), None))
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise _broken(f"{where} answers without choices[0].message")
    return Reply(
        text=_text(message.get("content")),
        usage=usage_from(found.get("usage")),
        model=text_or_none(found.get("model")),
        response_id=text_or_none(found.get("id")),
        finish_reason=text_or_none(choice.get("finish_reason")),
        refusal=text_or_none(message.get("refusal")),
    )


def _broken(problem: str) -> CallFailedError:
    return CallFailedError(CallFailure(JudgeAnswerError(problem), retry=True, broken=True))


def usage_from(usage: Any) -> Usage | None:
    """Return the reported tokens, by the names of OpenAI, Anthropic, Google or DeepSeek; None without them."""
    usage = _fields(usage)
    read = _first(usage, "prompt_tokens", "input_tokens", "prompt_token_count")
    written = _first(usage, "completion_tokens", "output_tokens", "candidates_token_count")
    # Half a count would look like a cheap answer.
    if read is None or written is None:
        return None
    details = _fields(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    # OpenAI and compatible servers nest this count, the others do not.
    cached = _first(details, "cached_tokens")
    if cached is None:
        cached = _first(usage, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_content_token_count")
    return Usage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the entries of a mapping, or the attributes of an object of a client library."""
    return value if isinstance(value, Mapping) else mapping_or_empty(getattr(value, "__dict__", None))


def _first(counts: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = counts.get(name)
        # Some servers report -1 or null while they do not know the count.
        if is_integer(value) and value >= 0:
            return value
    return None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    # Content in parts, for example [{"type": "text", "text": "…"}]. Parts without text are reasoning or images.
    return "".join(text_or_empty(part.get("text")) for part in mappings_in(content))
