"""Split a text into words, column by column."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, compress, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.threads import give_way
from rageval_hooks.text.limits import PIECE_CHARACTERS, pieces, scan, scan_at, substitute
from rageval_hooks.text.sentences import Span, sentence_spans
from rageval_hooks.text.words.readings import READINGS, UNSPACED, Kind, Reading

__all__ = [
    "Blocked",
    "Word",
    "Words",
    "blank_marks",
    "content_keys",
    "words",
    "words_by_sentence",
    "words_of",
]

# Combining marks, which belong to the letter before them: "e\u0301" is "é".
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0dff\u200c\u200d"
)
# A letter of a script with spaces between words, or a combining mark.
_LETTER: Final = rf"(?:[^\W\d_{UNSPACED}]|[{_MARKS}])"
# "U" in "U.S.": a letter without a mark. "1,000" and "3rd"
_SINGLE: Final = rf"[^\W\d_{UNSPACED}]"
_NUMERAL: Final = r"\d+(?:[.,'’\u00a0\u202f]\d+)*(?:(?:st|nd|rd|th|s)(?![^\W_]))?"
# In order: 東京 (unspaced), U.S. (dotted), 1,000 and 3rd, don't. It has one group, so that it splits a text.
_ANY_TOKEN: Final = re.compile(
    rf"([{UNSPACED}]+|{_SINGLE}(?:\.{_SINGLE})+(?!{_LETTER})\.?|{_NUMERAL}|{_LETTER}+(?:['’]{_LETTER}+)*)"
)
# A character that makes the simpler pattern below wrong: 東, or a combining mark.
_NOT_SIMPLE: Final = re.compile(rf"[{UNSPACED}{_MARKS}]")
# The same for most texts, in a third of the time. In order: don't, U.S., a lone letter (or l'homme), 1,000 and 3rd.
_SIMPLE_LETTER: Final = r"[^\W\d_]"
_SIMPLE_TOKEN: Final = re.compile(
    rf"({_SIMPLE_LETTER}{{2,}}(?:['’]{_SIMPLE_LETTER}+)*"
    rf"|{_SIMPLE_LETTER}(?:(?:\.{_SIMPLE_LETTER})+(?!{_SIMPLE_LETTER})\.?|(?:['’]{_SIMPLE_LETTER}+)*)"
    rf"|{_NUMERAL})"
)
# The same in ASCII.
_ASCII_TOKEN: Final = re.compile(_SIMPLE_TOKEN.pattern.replace(_SIMPLE_LETTER, "[A-Za-z]"), re.ASCII)
# https://example.com/page, [1], [1, 3], [^2]
_IGNORED: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:https?://|www\.)\S{1,2000}|\[\^?\d{1,3}(?:\s?[,;–-]\s?\d{1,3}){0,9}\]"
)
# "1. " or "(2) " at the beginning of a line.
_LIST_NUMBER: Final = re.compile(r"(?m)^[ \t]*(?:[*#>-]+[ \t]*)?\(?\d{1,3}[.)](?=[\s*_])")
# The columns of readings, in the order of the fields. `itemgetter` reads a column without a loop in Python.
_KEY, _KIND, _IS_CONTENT, _IS_CAPITAL, _, _MAY_BE_NUMBER, _MAY_BE_MONTH = map(itemgetter, range(7))
# Texts whose words are kept: those of a few turns, as several metrics read them.
_TEXTS_KEPT: Final = 128
# Long texts are kept until the next ones come, so that the steps of one analysis share the words.
_LONG_TEXTS_KEPT: Final = 4
_LONGEST_KEPT: Final = 300_000
# The first digit of "1869": a digit with no digit before it.
_FIRST_DIGIT: Final = re.compile(r"\d(?<!\d\d)")


class Word(NamedTuple):
    """A word of a text, with the key by which it is compared."""

    start: int
    end: int
    key: str
    kind: Kind


class Words:
    """The words of a text, column by column: most readers need one or two columns, and loops over objects are slow.

    Contracted function words ("don't") are not among them.

    Attributes:
        starts: positions in the text.
        ends: positions behind the words.
        readings: what the words say.
    """

    def __init__(self, text: str, starts: Sequence[int], ends: Sequence[int], readings: Sequence[Reading]) -> None:
        self._text = text
        self._with_contractions = starts, ends, readings
        keys = [*map(_KEY, readings)]
        if "" in keys:
            starts, ends = [*compress(starts, keys)], [*compress(ends, keys)]
            readings = [*compress(readings, keys)]
            keys = [*filter(None, keys)]
        self.starts = starts
        self.ends = ends
        self.keys: list[str] = keys
        self.readings = readings

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.keys)

    def __iter__(self) -> Iterator[Word]:
        """Yield the words one by one."""
        return map(Word, self.starts, self.ends, self.keys, self.kinds)

    def part(self, start: int, end: int) -> Words:
        """Return the words of ``text[start:end]``, if no word crosses its borders."""
        starts, ends, readings = self._with_contractions
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        return Words(self._text, starts[first:last], ends[first:last], readings[first:last])

    # Few words are numbers or months. Knowing them saves two searches through the text.

    @cached_property
    def maybe_numbers(self) -> list[Span]:
        """Where a number word may be, as (start, end); contractions are among them."""
        starts, ends, readings = self._with_contractions
        return [*compress(zip(starts, ends, strict=True), map(_MAY_BE_NUMBER, readings))]

    @cached_property
    def maybe_months(self) -> list[Span]:
        """Where the name of a month may be, as (start, end)."""
        starts, ends, readings = self._with_contractions
        return [*compress(zip(starts, ends, strict=True), map(_MAY_BE_MONTH, readings))]

    @cached_property
    def kinds(self) -> list[Kind]:
        """The kinds of the words."""
        return [*map(_KIND, self.readings)]

    @cached_property
    def capitals(self) -> list[bool]:
        """Per word, True if it begins with a capital."""
        return [*map(_IS_CAPITAL, self.readings)]

    @cached_property
    def content_keys(self) -> list[str]:
        """The keys of the words that are not function words."""
        return [*compress(self.keys, map(_IS_CONTENT, self.readings))]

    @cached_property
    def first_digits(self) -> list[int]:
        """The positions of the text's digits that follow no digit, where numbers and dates in digits begin."""
        return [found.start() for found in scan(_FIRST_DIGIT, self._text)]


def words(text: str, start: int = 0, end: int | None = None) -> Words:
    """Return the words of ``text[start:end]``, with offsets into ``text``.

    Keys are NFKC-folded, stemmed and without possessives. Numbers have one notation (``1,000`` and ``1000``). Scripts
    without spaces give character bigrams. Contracted function words ("don't") are skipped.
    """
    raws: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last in pieces(text, start, end):
        give_way()
        tokens = _tokens(text[first:last], first)
        raws += tokens[0]
        starts += tokens[1]
        ends += tokens[2]
    return Words(text, starts, ends, [*map(READINGS.__getitem__, raws)])


_Tokens = tuple[list[str], list[int], list[int]]  # words as written, their starts and their ends


def _tokens(piece: str, offset: int) -> _Tokens:
    """Return the words of a piece of text that begins at an offset."""
    pattern = _token_pattern(piece)
    # A pattern with one group splits into gaps and words by turns. The sums of their lengths are their borders.
    parts = pattern.split(piece)
    borders = [*accumulate(map(len, parts), initial=offset)]
    tokens = parts[1::2], borders[1:-1:2], borders[2:-1:2]
    return _with_bigrams(*tokens) if pattern is _ANY_TOKEN else tokens


def _token_pattern(text: str) -> re.Pattern[str]:
    """Return the fastest pattern that finds the words of a text."""
    if text.isascii():
        return _ASCII_TOKEN
    return _ANY_TOKEN if _NOT_SIMPLE.search(text) else _SIMPLE_TOKEN


def _with_bigrams(raws: Iterable[str], starts: Iterable[int], ends: Iterable[int]) -> _Tokens:
    """Return words with the character bigrams of each run without spaces; a single character is a word."""
    tokens: list[tuple[str, int, int]] = []
    for raw, start, end in zip(raws, starts, ends, strict=True):
        if len(raw) < 3 or READINGS[raw].kind != "unspaced":
            tokens.append((raw, start, end))
        else:
            tokens += [(raw[at : at + 2], start + at, start + at + 2) for at in range(len(raw) - 1)]
    return [raw for raw, _, _ in tokens], [start for _, start, _ in tokens], [end for _, _, end in tokens]


def words_of(text: str) -> Words:
    """Return the words of a whole text. Those of the last few texts of usual length are kept.

    Several metrics of a turn read the words of the same passages, one soon after the other.
    """
    if len(text) <= PIECE_CHARACTERS:
        return _kept_words(text)
    return _kept_long_words(text) if len(text) <= _LONGEST_KEPT else words(text)


# The words of a text take 16 bytes per character: at most 20 to 40 MB for a full cache of either kind.
_kept_words = lru_cache(maxsize=_TEXTS_KEPT)(words)
_kept_long_words = lru_cache(maxsize=_LONG_TEXTS_KEPT)(words)


def words_by_sentence(text: str, spans: Sequence[Span]) -> Iterator[Words]:
    """Yield the words of each sentence of a text, with offsets into the text.

    Not a list: that of 75,000 sentences is freed in one step, which holds the interpreter's lock for 20 ms.

    Args:
        text: the text, perhaps with spaces in place of marks.
        spans: its sentences.
    """
    if _may_cross(text, spans):
        yield from (words(text, *span) for span in spans)
    else:
        whole = words_of(text)
        yield from (whole.part(*span) for span in spans)


def _may_cross(text: str, spans: Iterable[Span]) -> bool:
    """Return True if a word may cross the border of two sentences."""
    # No word of a text in ASCII does. Nor does one where white space is between all sentences; "对。好" has none.
    return not text.isascii() and any(end == start for (_, end), (start, _) in pairwise(spans))


def content_keys(text: str) -> list[str]:
    """Return the keys of the words of a text that are not function words. Citation marks and URLs are not words."""
    blanked = blank_marks(text)
    # The borders of the sentences of a text in ASCII need not be known.
    if not text.isascii():
        spans = sentence_spans(text)
        if _may_cross(text, spans):
            return [*chain.from_iterable(words(blanked, *span).content_keys for span in spans)]
    return [*words_of(blanked).content_keys]


def blank_marks(text: str) -> str:
    """Return the text with URLs, citation marks such as ``[1]`` and list numbers replaced by spaces. Offsets stay."""

    def blank(found: re.Match[str]) -> str:
        return " " * len(found.group())

    # Most texts have none of these, and need not be searched for the whole.
    if "[" in text or "://" in text or "www." in text:
        text = substitute(scan(_IGNORED, text), blank, text)
    numbers = scan_at(_LIST_NUMBER, text, _line_starts(text))
    return substitute(numbers, blank, text)


def _line_starts(text: str) -> Iterator[int]:
    start = 0
    while start >= 0:
        yield start
        start = text.find("\n", start) + 1 or -1


class Blocked:
    """Disjoint spans, with a fast test for overlap (bisection)."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted(spans)
        self._starts = [a for a, _ in ordered]
        self._ends = [b for _, b in ordered]

    def hits(self, a: int, b: int) -> bool:
        """Return True if the span from ``a`` to ``b`` overlaps one of these."""
        i = bisect_left(self._starts, b)
        return i > 0 and self._ends[i - 1] > a
