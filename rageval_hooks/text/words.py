"""Words of a text: how they are split and read, the keys by which they are compared, and their weights."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.limits import PIECE_CHARACTERS, Span, blank, pieces, scan, scan_at
from rageval_hooks.text.numerals import CARDINALS, MONTH_START, NUMBER_WORD, number_readings
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.word_lists import WORD_LISTS, word_set

UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003134f"
)
"""Scripts written without spaces between words, and Korean, which attaches endings to words; for a character class."""

# 東
_UNSPACED_CHARACTER: Final = re.compile(rf"[{UNSPACED}]")
# "1,000", and the "3" of "3rd".
_NUMBER: Final = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
# "café" and "3rd", not "кафе"
_LATIN: Final = re.compile(r"[\d\u0000-\u024f\u1e00-\u1eff]*$")
# don't, we'll, they're, I've, he'd, I'm
_CONTRACTION: Final = re.compile(r"(?:n't|'ll|'re|'ve|'d|'m)$")

STOP_WORDS: Final = word_set("stop_words")
_MAX_ACRONYM_LENGTH: Final = 6
_MAX_WORD_LENGTH: Final = 64
_MAX_KEPT: Final = 65_536
_VOWELS: Final = frozenset("aeiouy")
# Acronyms that are spelled like function words.
_STOP_ACRONYMS: Final = frozenset({"US", "IT", "WHO"})
_UNSPACED_STOPS: Final = frozenset(WORD_LISTS["unspaced_stop_words"])

NAME_WEIGHT: Final = 2.0
WORD_WEIGHT: Final = 1.0
FUNCTION_WEIGHT: Final = 0.25

Kind = Literal["word", "number", "acronym", "unspaced"]


class Reading(NamedTuple):
    """What a written word says.

    Attributes:
        key: the form in which it is compared; empty for a contraction such as "don't".
        kind: its kind.
        is_content: True if it is not a function word.
        is_capital: True if it begins with a capital.
        is_latin: True for Latin script, which MiniLM's English vocabulary can represent.
        may_be_number: True if it may hold a number word, such as "twenty".
        may_be_month: True if it may hold the name of a month.
        weight: its weight in every mean.
        opening_weight: the same at the beginning of a sentence, where a capital says nothing.
    """

    key: str
    kind: Kind
    is_content: bool
    is_capital: bool
    is_latin: bool
    may_be_number: bool
    may_be_month: bool
    weight: float
    opening_weight: float


@lru_cache(maxsize=_MAX_KEPT)
def _read(raw: str) -> Reading:
    """Return what a word says. Most words of a text have been read before."""
    key, kind = _key_and_kind(raw)
    is_capital = raw[0].isupper()
    if kind == "unspaced":
        is_content = _UNSPACED_STOPS.isdisjoint(raw)
    else:
        # The key is stemmed, and only some stop words are.
        is_stop_word = key in STOP_WORDS or fold(raw) in STOP_WORDS or (len(raw) <= 2 and raw.islower())
        is_content = kind != "word" or not is_stop_word
    plain = NAME_WEIGHT if kind in ("number", "acronym") else WORD_WEIGHT
    return Reading(
        key=key,
        kind=kind,
        is_content=is_content,
        is_capital=is_capital,
        is_latin=_LATIN.match(raw) is not None,
        may_be_number=NUMBER_WORD.search(raw) is not None,
        may_be_month=MONTH_START.search(raw) is not None,
        weight=FUNCTION_WEIGHT if not is_content else NAME_WEIGHT if is_capital else plain,
        opening_weight=plain if is_content else FUNCTION_WEIGHT,
    )


def _key_and_kind(raw: str) -> tuple[str, Kind]:
    # Thai and other unspaced scripts have digits of their own, so scripts come before digits.
    if _UNSPACED_CHARACTER.match(raw):
        return raw, "unspaced"
    if number := _NUMBER.match(raw):
        return number_readings(number.group())[0], "number"
    letters = raw.replace(".", "")
    # "U.S." and "NATO", but not "THE" or "NOT": a function word in capitals.
    if (letters != raw or 1 < len(raw) <= _MAX_ACRONYM_LENGTH) and letters.isupper():
        if letters in _STOP_ACRONYMS:
            # "US" and "IT" must not become stop words.
            return letters, "acronym"
        if fold(letters) not in STOP_WORDS:
            return stem(fold(letters)), "acronym"
    # "e.g."
    return (fold(letters) if letters != raw else _key(raw)), "word"


def fold(text: str) -> str:
    """Return the text in NFKC and case-folded: the form in which strings are compared."""
    # Texts in ASCII have no other form than lower case.
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _key(raw: str) -> str:
    key = fold(raw).replace("’", "'").replace("\u200c", "").replace("\u200d", "")
    if "'" in key:
        if _CONTRACTION.search(key):
            return ""
        # The longest part is the word: "l'homme", "O'Brien's".
        key = max(key.removesuffix("'s").split("'"), key=len)
    return stem(key)


def stem(word: str) -> str:
    """Apply light English stemming: remove plural, -ed, -ing, -ly and a final e. Number words become digits.

    A word with a character outside of a-z is returned unchanged.
    """
    # snowballstemmer joins more unrelated words ("import", "important") and takes 29 µs for a word, this 0.7.
    if word in CARDINALS:
        return str(CARDINALS[word])
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    # "glass", "virus" and "basis" are not plurals.
    elif not word.endswith(("ss", "us", "is")):
        word = word.removesuffix("s")
    for suffix in ("ing", "ed", "ly"):
        base = word.removesuffix(suffix)
        # "sing" and "bed" have no suffix: what is left must be a syllable.
        if base == word or len(base) < 3 or not _VOWELS.intersection(base):
            continue
        # "stopped" doubles its consonant, "called" does not.
        doubled = base[-1] == base[-2] and base[-1] not in "lsz" and suffix != "ly"
        word = base[:-1] if doubled else base
        break
    # "make" and "making" must agree, and so must "happy" and "happily".
    if len(word) > 3:
        word = word.removesuffix("e")
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


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
# The same in ASCII, in two thirds of that.
_ASCII_TOKEN: Final = re.compile(_SIMPLE_TOKEN.pattern.replace(_SIMPLE_LETTER, "[A-Za-z]"), re.ASCII)
# https://example.com/page, [1], [1, 3], [^2]
_IGNORED: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:https?://|www\.)\S{1,2000}|\[\^?\d{1,3}(?:\s?[,;–-]\s?\d{1,3}){0,9}\]"
)
# "1. " or "(2) " at the beginning of a line.
_LIST_NUMBER: Final = re.compile(r"(?m)^[ \t]*(?:[*#>-]+[ \t]*)?\(?\d{1,3}[.)](?=[\s*_])")
# Texts whose words are kept: those of a few turns, as several metrics read them.
_TEXTS_KEPT: Final = 128
# Long texts are kept until the next ones come, so that the steps of one analysis share the words.
_LONG_TEXTS_KEPT: Final = 4
_MAX_KEPT_LENGTH: Final = 300_000
_KEY: Final = attrgetter("key")
_LINE_END: Final = re.compile(r"\n")
# The first digit of "1869": a digit with no digit before it.
_FIRST_DIGIT: Final = re.compile(r"\d(?<!\d\d)")


class Word(NamedTuple):
    """A word of a text, with the key by which it is compared."""

    start: int
    end: int
    key: str


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
        self.starts = starts
        self.ends = ends
        self.readings = readings
        self.keys = [*map(_KEY, readings)]

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.keys)

    def __iter__(self) -> Iterator[Word]:
        """Yield the words one by one."""
        return map(Word, self.starts, self.ends, self.keys)

    def part(self, start: int, end: int) -> Words:
        """Return the words of ``text[start:end]``, if no word crosses its borders."""
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, end)
        return Words(self._text, self.starts[first:last], self.ends[first:last], self.readings[first:last])

    def starts_of(self, pattern: re.Pattern[str], flag: Callable[[Reading], bool]) -> list[int]:
        """Return where matches of a pattern begin in the words of which something is true.

        Few words are numbers or months, and a search through the whole text takes far longer.
        """
        columns = zip(self.starts, self.ends, self.readings, strict=True)
        spans = [(start, end) for start, end, reading in columns if flag(reading)]
        return [found.start() for span in spans for found in pattern.finditer(self._text, *span)]

    @cached_property
    def content_keys(self) -> list[str]:
        """The keys of the words that are not function words."""
        return [reading.key for reading in self.readings if reading.is_content]

    @cached_property
    def first_digits(self) -> list[int]:
        """The positions of the text's digits that follow no digit, where numbers and dates in digits begin."""
        return [found.start() for found in scan(_FIRST_DIGIT, self._text)]


def words(text: str, start: int = 0, end: int | None = None) -> Words:
    """Return the words of ``text[start:end]``, with offsets into ``text``.

    Keys are NFKC-folded, stemmed and without possessives. Numbers have one notation (``1,000`` and ``1000``). Scripts
    without spaces give character bigrams. Contracted function words ("don't") are skipped.
    """
    starts: list[int] = []
    ends: list[int] = []
    readings: list[Reading] = []
    for first, last in pieces(text, start, end):
        piece = text[first:last]
        pattern = _SIMPLE_TOKEN if piece.isascii() or not _NOT_SIMPLE.search(piece) else _ANY_TOKEN
        # A pattern with one group splits into gaps and words by turns. The sums of their lengths are their borders.
        parts = (_ASCII_TOKEN if piece.isascii() else pattern).split(piece)
        borders = [*accumulate(map(len, parts), initial=first)]
        raws, begins, stops = parts[1::2], borders[1:-1:2], borders[2:-1:2]
        # Very long "words" do not come back, and would fill the memory.
        is_usual = max(map(len, raws), default=0) <= _MAX_WORD_LENGTH
        found = [*map(_read if is_usual else _read.__wrapped__, raws)]
        if pattern is _SIMPLE_TOKEN and all(map(_KEY, found)):
            starts += begins
            ends += stops
            readings += found
            continue
        for raw, begin, stop, reading in zip(raws, begins, stops, found, strict=True):
            if reading.kind == "unspaced" and len(raw) > 2:
                # The character bigrams of a run without spaces.
                starts += range(begin, stop - 1)
                ends += range(begin + 2, stop + 1)
                readings += [_read(raw[at : at + 2]) for at in range(len(raw) - 1)]
            elif reading.key:
                starts.append(begin)
                ends.append(stop)
                readings.append(reading)
    return Words(text, starts, ends, readings)


def words_of(text: str) -> Words:
    """Return the words of a whole text. Those of the last few texts of usual length are kept.

    Several metrics of a turn read the words of the same passages, one soon after the other.
    """
    if len(text) <= PIECE_CHARACTERS:
        return _kept_words(text)
    return _kept_long_words(text) if len(text) <= _MAX_KEPT_LENGTH else words(text)


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
    # A word crosses the border of two sentences only where no white space is between them: "对。好".
    if not text.isascii() and any(end == start for (_, end), (start, _) in pairwise(spans)):
        yield from (words(text, *span) for span in spans)
    else:
        whole = words_of(text)
        yield from (whole.part(*span) for span in spans)


def content_keys(text: str) -> list[str]:
    """Return the keys of the words of a text that are not function words. Citation marks and URLs are not words."""
    blanked = blank_marks(text)
    # The borders of the sentences of a text in ASCII need not be known.
    if text.isascii():
        return words_of(blanked).content_keys
    return [*chain.from_iterable(found.content_keys for found in words_by_sentence(blanked, sentence_spans(text)))]


def blank_marks(text: str) -> str:
    """Return the text with URLs, citation marks such as ``[1]`` and list numbers replaced by spaces. Offsets stay."""
    # Most texts have none of these, and need not be searched for the whole.
    if "[" in text or "://" in text or "www." in text:
        text = blank(text, (found.span() for found in scan(_IGNORED, text)))
    line_starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    return blank(text, (found.span() for found in scan_at(_LIST_NUMBER, text, line_starts)))


def has_words(text: str) -> bool:
    """Return True if a text has a letter or a digit; a passage without any has no score."""
    return any(map(str.isalnum, text))


class WeightedWord(NamedTuple):
    """A word of the response with its weight in every mean."""

    start: int
    end: int
    key: str
    weight: float
    readable: bool
    """True for Latin script, which MiniLM's English vocabulary can represent."""

    @property
    def is_content(self) -> bool:
        """True if the word is not a function word."""
        return self.weight > FUNCTION_WEIGHT


def weighted_words(text: str) -> list[WeightedWord]:
    """Return the words of a text that is one sentence, or a part of one, with weights; see :func:`weighted_lines`."""
    return _weighted(text, (0, len(text)), words(text))


class Line(NamedTuple):
    """A sentence with its words."""

    span: Span
    words: Sequence[WeightedWord]


def weighted_lines(text: str, spans: Sequence[Span]) -> list[Line]:
    """Return the words of each sentence with weights.

    Names and numbers weigh 2, other words 1, function words 0.25 (stop words, and lower-case words of one or two
    letters). A capitalised word counts as a name unless it opens the sentence or follows a colon.

    Args:
        text: a text, with its marks blanked (:func:`blank_marks`).
        spans: its sentences.
    """
    found = words_by_sentence(text, spans)
    return [Line(span, _weighted(text, span, words)) for span, words in zip(spans, found, strict=True)]


def _weighted(text: str, span: Span, found: Words) -> list[WeightedWord]:
    weights = [reading.weight for reading in found.readings]
    # The words that open the sentence or follow a colon.
    openings = [0]
    colon = text.find(":", *span)
    while colon >= 0:
        openings.append(bisect_right(found.starts, colon))
        colon = text.find(":", colon + 1, span[1])
    for position in openings:
        if position < len(found):
            weights[position] = found.readings[position].opening_weight
    readable = [reading.is_latin for reading in found.readings]
    return [*map(WeightedWord, found.starts, found.ends, found.keys, weights, readable)]
