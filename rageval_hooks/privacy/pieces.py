"""Pieces of secrets: messages and quotations cut a text before it is redacted, and no redactor recognises the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

_PIECE = "<REDACTED>"
_MIN_ANYWHERE = 6
_MIN_AT_CUT = 4
_MAX_LENGTH = 200
"""Of a secret, from each end: a private key has thousands of characters."""

_BEFORE_CUT = re.compile(r"(?:\.\.\.|…|[\"'`”’»\n]|$)")
_AFTER_CUT = re.compile(r"(?:\.\.\.|…|[\"'`“‘«\n]|^)$")
# 2019, and a word such as "mail" or "Correct": harmless as a piece.
_YEAR = re.compile(r"(?:19|20)\d\d")


def removed(text: str, redacted: str) -> Iterator[str]:
    """Yield what a redactor has removed from a text."""
    if text == redacted:
        return
    lines, left = text.splitlines(), redacted.splitlines()
    if len(lines) == len(left) > 1:
        for line, rest in zip(lines, left, strict=True):
            yield from removed(line, rest)
        return
    words, others = (list(re.finditer(r"\S+", part)) for part in (text, redacted))
    matcher = SequenceMatcher(None, [word[0] for word in words], [word[0] for word in others], autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind == "equal" or start == end:
            continue
        found = text[words[start].start() : words[end - 1].end()]
        other = redacted[others[other_start].start() : others[other_end - 1].end()] if other_start < other_end else ""
        # "amex,378282246310005,1229" and "amex,<CREDIT_CARD>,1229"
        while found and other and found[0] == other[0]:
            found, other = found[1:], other[1:]
        while found and other and found[-1] == other[-1]:
            found, other = found[:-1], other[:-1]
        # Two secrets may be next to each other.
        yield from (part for part in {found, *found.split()} if len(part) >= _MIN_ANYWHERE)


def mask_pieces(text: str, secrets: Iterable[str]) -> str:
    """Mask the beginnings and ends of secrets: of six characters anywhere, of four where the text was cut."""
    shown, position = "", 0
    for start, end in sorted(span for secret in secrets for span in _pieces(text, secret)):
        if start >= position:
            shown += text[position:start] + _PIECE
        position = max(position, end)
    return shown + text[position:]


def _pieces(text: str, secret: str) -> Iterator[tuple[int, int]]:
    head, tail = secret[:_MAX_LENGTH], secret[-_MAX_LENGTH:]
    for found in re.finditer(rf"(?<!\w){re.escape(head[:_MIN_AT_CUT])}", text):
        start, end = found.start(), found.end()
        while end < len(text) and text[start : end + 1] == head[: end + 1 - start]:
            end += 1
        if _is_secret(text[start:end], is_cut=_BEFORE_CUT.match(text, end) is not None):
            yield start, start + len(text[start:end].rstrip())
    for found in re.finditer(rf"{re.escape(tail[-_MIN_AT_CUT:])}(?!\w)", text):
        start, end = found.start(), found.end()
        while start and text[start - 1 : end] == tail[start - 1 - end :]:
            start -= 1
        if _is_secret(text[start:end], is_cut=_AFTER_CUT.search(text[max(0, start - 3) : start]) is not None):
            yield start, end


def _is_secret(piece: str, *, is_cut: bool) -> bool:
    piece = piece.strip(" .,:;@/-")
    if _YEAR.fullmatch(piece) or (piece.isalpha() and (piece.islower() or piece.istitle())):
        return False
    return len(piece) >= (_MIN_AT_CUT if is_cut else _MIN_ANYWHERE)
