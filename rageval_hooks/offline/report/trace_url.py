"""The address of a trace in the backend that has it."""

from __future__ import annotations

import re

from rageval_hooks.errors import ConfigurationError

__all__ = ["check_trace_url"]

_PLACEHOLDER = "{trace_id}"


def check_trace_url(url: str | None) -> None:
    """Check the address of traces.

    Raises:
        ConfigurationError: it is not an http address with ``{trace_id}`` in it.
    """
    if url is None:
        return
    if (
        not re.match(r"https?://", url) or _PLACEHOLDER not in url
    ):  # "http://localhost:6006/redirects/traces/{trace_id}"
        raise ConfigurationError(
            f"--trace-url is {url[:200]!r}: give an http address with {_PLACEHOLDER} in it, such as"
            f" http://localhost:6006/redirects/traces/{_PLACEHOLDER}"
        )
