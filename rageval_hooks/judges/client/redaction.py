"""Keeps keys out of messages: servers echo them, and URLs hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Redactor"]

_MASK = "***"
_SHORTEST = 4
_LONGEST_MESSAGE = 300
_SHORTEST_QUOTE = 12
_WORD = re.compile(r"\b\w")
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

    def __call__(self, text: str, longest: int = _LONGEST_MESSAGE, prompt: str = "") -> str:
        """Return the text, fit to be shown.

        Args:
            text: the text.
            longest: the most characters of it.
            prompt: another text, of which nothing may be shown: what the text quotes of it is left out.
        """
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        text = text[: longest * 20]  # a megabyte is not worth a regular expression
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = " ".join(text.split())
        if prompt:
            text = _without_quotes(text[: longest * 5], " ".join(prompt.split()))
        return text if len(text) <= longest else f"{text[: longest - 1]}…"

    def __repr__(self) -> str:
        """Show nothing."""
        return "<redactor>"


def _without_quotes(text: str, source: str) -> str:
    """Leave out of a text what it quotes of another one, from 12 characters on."""
    shown: list[str] = []
    position = 0
    for word in _WORD.finditer(text):
        start, end = word.start(), word.start() + _SHORTEST_QUOTE
        if start < position or end > len(text) or (at := source.find(text[start:end])) < 0:
            continue
        while source[at : at + end + 1 - start] == text[start : end + 1] and end < len(text):
            end += 1
        shown += [text[position:start], "[…]"]
        position = end
    return "".join([*shown, text[position:]])
