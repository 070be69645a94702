"""How much text is read: in one step, and at most.

Python's regular expressions hold the interpreter's lock during each search, so other threads of the application wait.
Long texts are therefore searched in pieces (:func:`scan`, :func:`substitute`). Above the limits for a whole turn, a
local metric is skipped with a reason. A text is never cut silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")

Span = tuple[int, int]
"""A part of a text, as (start, end)."""

MAX_RESPONSE_CHARACTERS: Final = 300_000
"""Maximum length of a response for local metrics, about 75,000 tokens."""

MAX_PASSAGES: Final = 1_000
"""Maximum number of passages of a turn for local metrics."""

MAX_PASSAGE_CHARACTERS: Final = 1_000_000
"""Maximum length of all passages together, for metrics that compare words."""

MAX_EMBEDDED_CHARACTERS: Final = 300_000
"""Maximum length of all texts of a turn together, for metrics that use embeddings: about 300 windows of the model."""

MAX_QUERY_CHARACTERS: Final = 20_000
"""Maximum length of a query, since each of its concepts is embedded."""

MAX_COUNTED_CHARACTERS: Final = 2_000_000
"""Maximum length of the texts whose tokens are counted. The tokens of longer texts are estimated from their length."""

PIECE_CHARACTERS: Final = 20_000
"""Maximum number of characters that one call of a regular expression searches: less than 20 ms."""

_LOOKBACK: Final = 2_000
_TEXTS_KEPT: Final = 128


def kept(read: Callable[[str], T]) -> Callable[[str], T]:
    """Keep what a function finds in the last texts of usual length: several metrics of a turn read the same texts."""
    kept_read = lru_cache(maxsize=_TEXTS_KEPT)(read)
    return lambda text: kept_read(text) if len(text) <= PIECE_CHARACTERS else read(text)


def pieces(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield ``text[start:end]`` in pieces of at most :data:`PIECE_CHARACTERS`, as (start, end).

    A piece ends after a line break, else after a space. A run of 2,000 characters without any of these is cut anywhere.
    """
    end = len(text) if end is None else end
    while end - start > PIECE_CHARACTERS:
        limit = start + PIECE_CHARACTERS
        window = (limit - _LOOKBACK, limit)
        cut = text.rfind("\n", *window) + 1 or text.rfind(" ", *window) + 1 or limit
        yield start, cut
        start = cut
    yield start, end


def scan(pattern: re.Pattern[str], text: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
    """Return the matches of a pattern as ``pattern.finditer`` does, and search long texts in pieces.

    A match never crosses the border of two pieces. Positions are those of the whole text.
    """
    end = len(text) if end is None else end
    # Most texts are one piece. Without a generator around it, a match costs half as much.
    if end - start <= PIECE_CHARACTERS:
        return pattern.finditer(text, start, end)
    return _scan_pieces(pattern, text, start, end)


def _scan_pieces(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    for piece in pieces(text, start, end):
        yield from pattern.finditer(text, *piece)


def scan_at(pattern: re.Pattern[str], text: str, positions: Iterable[int]) -> Iterator[re.Match[str]]:
    """Return the matches that :func:`scan` finds, for a pattern that can begin only at some positions.

    A try at each of a few positions takes far less time than a search through the whole text.

    Args:
        pattern: the pattern.
        text: the text.
        positions: where matches may begin, in order; there may be more of them than matches.
    """
    borders = pieces(text)
    # Most texts are one piece.
    end = len(text) if len(text) <= PIECE_CHARACTERS else next(borders)[1]
    done = 0
    for position in positions:
        while position >= end and end < len(text):
            _, end = next(borders)
        found = pattern.match(text, position, end) if position >= done else None
        if found:
            yield found
            done = found.end()


def blank(text: str, spans: Iterable[Span]) -> str:
    """Return a text with spaces in place of some spans; line breaks stay, since they separate sentences."""
    characters: list[str] | None = None
    for start, end in spans:
        characters = characters or list(text)
        characters[start:end] = (" " if character != "\n" else "\n" for character in text[start:end])
    return text if characters is None else "".join(characters)
