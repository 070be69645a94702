"""Mask secrets in messages: servers echo keys, and URLs contain them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from rageval_hooks.privacy.secrets import mask_secrets
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.text.formatting import shown

__all__ = ["Redactor"]

_MASK = "***"
_SHORTEST_SECRET = 4
_LONGEST_MESSAGE = 300
# Characters that a message and the prompt must share to count as a quotation.
_SHORTEST_QUOTE = 12
# Looking for quotations takes a scan of the prompt for each word of the message.
_LONGEST_PROMPT = 200_000
# The "H", the "4" and the "n" of "HTTP 404: no model".
_WORD_START = re.compile(r"\b\w")


class Redactor:
    """Prepares a server's message for logs and reasons: masks secrets, joins the lines, and shortens it.

    Control characters are replaced, since logs are read on terminals.

    Args:
        secrets: known secrets. What looks like a key is masked in any case.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        long_enough = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        # The longest first, since one secret may contain another.
        self._secrets = sorted(long_enough, key=len, reverse=True)

    def __call__(self, text: str, longest: int = _LONGEST_MESSAGE, prompt: str = "") -> str:
        """Return the text without secrets.

        Args:
            text: the text.
            longest: maximum length of the result, in characters.
            prompt: a text of which nothing may be shown. Quotations of it are removed.
        """
        if len(prompt) > _LONGEST_PROMPT:
            return "(not shown: it may quote the prompt)"
        text = shown(clean_text(text))
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        text = text[: longest * 20]
        text = mask_secrets(text, _MASK, is_message=True)
        text = " ".join(text.split())
        if prompt:
            text = _without_quotations(text[: longest * 5], " ".join(prompt.split()))
        return text if len(text) <= longest else f"{text[: longest - 1]}…"

    def __repr__(self) -> str:
        """Show no secret."""
        return "<redactor>"


def _without_quotations(text: str, source: str) -> str:
    """Remove from a text what it quotes of another one."""
    shown: list[str] = []
    position = 0
    for word in _WORD_START.finditer(text):
        start = word.start()
        if start < position:
            continue
        found = source.find(text[start : start + _SHORTEST_QUOTE])
        if found < 0 or start + _SHORTEST_QUOTE > len(text):
            continue
        shown += [text[position:start], "[…]"]
        position = start + _common_prefix(text[start:], source[found : found + len(text) - start])
    return "".join([*shown, text[position:]])


def _common_prefix(one: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
