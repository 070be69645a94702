"""Keeps keys out of messages: servers echo them, and URLs hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit, urlunsplit

__all__ = ["Redactor", "safe_url"]

_MASK = "***"
_SHORTEST = 4
_LONGEST_MESSAGE = 300
_PATTERNS = (
    (re.compile(r"\b(?:(?:sk|pk|rk|gsk|xai|hf)[-_]|AIza)[A-Za-z0-9_*-]{8,}"), _MASK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), rf"\1 {_MASK}"),
    (
        re.compile(r"(?i)\b([\w-]*(?:key|token|secret|password|signature))(\"?\s*[=:]\s*\"?)[^\s\"'&,;]+"),
        rf"\1\2{_MASK}",
    ),
    (re.compile(r"(?<=://)[^/@\s]+@"), f"{_MASK}@"),
)


class Redactor:
    """Cleans what others wrote: masks keys, makes one line of it, and cuts it short.

    Args:
        secrets: what must not be seen, besides whatever looks like a key.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)

    def __call__(self, text: str, longest: int = _LONGEST_MESSAGE) -> str:
        """Return the text, fit to be shown."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        text = text[: longest * 20]  # a megabyte is not worth a regular expression
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = " ".join(text.split())
        return text if len(text) <= longest else f"{text[: longest - 1]}…"

    def __repr__(self) -> str:
        """Show nothing."""
        return "<redactor>"


def safe_url(url: str) -> str:
    """Return a URL without user name, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
