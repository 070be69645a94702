"""Words of a text, the keys by which they are compared, and their weights."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, Literal, NamedTuple

from rageval_hooks.text.limits import scan, substitute
from rageval_hooks.text.numbers import CARDINALS
from rageval_hooks.text.numerals import number_readings
from rageval_hooks.text.sentences import Span, sentence_spans

__all__ = [
    "FUNCTION_WEIGHT",
    "NAME_WEIGHT",
    "STOP_WORDS",
    "Blocked",
    "WeighedWord",
    "Word",
    "blank_marks",
    "content_keys",
    "fold",
    "stem",
    "weighed_words",
    "words",
    "words_of",
]

# Combining marks, which belong to the letter before them: "e\u0301" is "é".
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0dff\u200c\u200d"
)
# Scripts written without spaces between words, and Korean, which attaches endings to words.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003134f"
)
_LETTER: Final = rf"(?:[^\W\d_{_UNSPACED}]|[{_MARKS}])"
# Examples of the groups: 東京 (unspaced), U.S. (dotted), 1,000 and 3rd (number, suffix), don't (word).
_ANY_TOKEN: Final = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    rf"|(?P<dotted>[^\W\d_{_UNSPACED}](?:\.[^\W\d_{_UNSPACED}])+(?!{_LETTER})\.?)"
    r"|(?P<number>\d+(?:[.,'’\u00a0\u202f]\d+)*)(?P<suffix>(?:st|nd|rd|th|s)(?![^\W_]))?"
    rf"|(?P<word>{_LETTER}+(?:['’]{_LETTER}+)*)"
)
# The same for a text in ASCII, which most texts are: U.S., 1,000 and 3rd, don't. It takes a third of the time.
_ASCII_TOKEN: Final = re.compile(
    r"(?P<dotted>[A-Za-z](?:\.[A-Za-z])+(?![A-Za-z])\.?)"
    r"|(?P<number>[0-9]+(?:[.,'][0-9]+)*)(?P<suffix>(?:st|nd|rd|th|s)(?![A-Za-z0-9]))?"
    r"|(?P<word>[A-Za-z]+(?:'[A-Za-z]+)*)"
)
# https://example.com/page, [1], [1, 3], [^2]
_IGNORED: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:https?://|www\.)\S{1,2000}|\[\^?\d{1,3}(?:\s?[,;–-]\s?\d{1,3}){0,9}\]"
)
# "1. " or "(2) " at the beginning of a line.
_LIST_NUMBER: Final = re.compile(r"(?m)^[ \t]*(?:[*#>-]+[ \t]*)?\(?\d{1,3}[.)](?=[\s*_])")
# don't, we'll, they're, I've, he'd, I'm
_CONTRACTION: Final = re.compile(r"(?:n't|'ll|'re|'ve|'d|'m)$")
_LATIN: Final = re.compile(r"[\d\u0000-\u024f\u1e00-\u1eff]*$")

STOP_WORDS: Final = frozenset(
    "a an the this that these those here there it its itself he him his himself she her hers herself they them their "
    "theirs themselves we us our ours ourselves you your yours yourself yourselves i me my mine myself one ones "
    "who whom whose which what when where why how whether "
    "and or but nor so yet if then else than as because since while although though unless until "
    "of in on at by for with without within from to into onto upon about above below over under between among through "
    "during before after against toward towards across along around via per "
    "is am are was were be been being do does did doing done have has had having will would shall should can could may "
    "might must cannot let "
    "not no yes also too very just only even both each every either neither any some such same other others another "
    "more most much many few less least own all up down out off again further once ever never often always usually "
    "however therefore thus hence moreover furthermore additionally etc eg ie pm well like etc".split()
)
_LONGEST_ACRONYM: Final = 6
_LONGEST_CACHED: Final = 64
_LONGEST_KEPT: Final = 8_000
_VOWELS: Final = frozenset("aeiouy")
# Acronyms that are spelled like function words.
_STOP_ACRONYMS: Final = frozenset({"US", "IT", "WHO"})
_UNSPACED_STOPS: Final = frozenset("的了是在和与及也都就而着过吗呢吧はがをにでとのもへやかなだです는은이가을를의에")


Kind = Literal["word", "number", "acronym", "unspaced"]
_Reading = tuple[str, Kind]


class Word(NamedTuple):
    """A word of a text, with the key by which it is compared."""

    start: int
    end: int
    key: str
    kind: Kind


def words(text: str, start: int = 0, end: int | None = None) -> Iterator[Word]:
    """Yield the words of ``text[start:end]``, with offsets into ``text``.

    Keys are NFKC-folded, stemmed and without possessives. Numbers have one notation (``1,000`` and ``1000``). Scripts
    without spaces give character bigrams. Contracted function words ("don't") are skipped.
    """
    for found in scan(_ASCII_TOKEN if text.isascii() else _ANY_TOKEN, text, start, end):
        begin, stop = found.span()
        # The most frequent group comes first. "suffix" is a part of a number.
        if found.lastgroup == "word":
            key, kind = _reading(found.group())
            if key:
                yield Word(begin, stop, key, kind)
        elif found.lastgroup == "unspaced":
            yield from _bigrams(found.group(), begin)
        elif found.lastgroup == "dotted":
            yield _dotted_word(found.group(), begin, stop)
        else:
            yield Word(begin, stop, number_readings(found["number"])[0], "number")


def words_of(text: str) -> Sequence[Word]:
    """Return the words of a whole text. Those of the last few texts of usual length are kept.

    Several metrics of a turn read the words of the same passages, one soon after the other.
    """
    return _kept_words(text) if len(text) <= _LONGEST_KEPT else list(words(text))


@lru_cache(maxsize=32)
def _kept_words(text: str) -> Sequence[Word]:
    return tuple(words(text))


def _bigrams(run: str, begin: int) -> Iterator[Word]:
    """Yield the character bigrams of a run without spaces; a single character is a word."""
    if len(run) == 1:
        yield Word(begin, begin + 1, run, "unspaced")
    for offset in range(len(run) - 1):
        yield Word(begin + offset, begin + offset + 2, run[offset : offset + 2], "unspaced")


def _dotted_word(raw: str, begin: int, stop: int) -> Word:
    """Return the word for letters with dots, for example "U.S." (an acronym) or "e.g." (a word)."""
    letters = raw.replace(".", "")
    if _is_acronym(letters):
        return Word(begin, stop, _acronym_key(letters), "acronym")
    return Word(begin, stop, fold(letters), "word")


def _reading(raw: str) -> _Reading:
    """Return the key and the kind of a word; the key is empty for a contraction such as "don't"."""
    # Very long "words" do not come back, and would fill the memory of the cache.
    return _cached_reading(raw) if len(raw) <= _LONGEST_CACHED else _new_reading(raw)


def _new_reading(raw: str) -> _Reading:
    if 1 < len(raw) <= _LONGEST_ACRONYM and _is_acronym(raw):
        return _acronym_key(raw), "acronym"
    return _key(raw), "word"


_cached_reading = lru_cache(maxsize=65_536)(_new_reading)


def fold(text: str) -> str:
    """Return the text in NFKC and case-folded: the form in which strings are compared."""
    return unicodedata.normalize("NFKC", text).casefold()


def _is_acronym(raw: str) -> bool:
    """Return True for capitals only, unless they are a function word in capitals, for example "THE" or "NOT"."""
    if not raw.isupper():
        return False
    return raw in _STOP_ACRONYMS or fold(raw) not in STOP_WORDS


def _acronym_key(raw: str) -> str:
    """Return the key of an acronym. It is compared like a word, but "US" and "IT" must not become stop words."""
    return raw if raw in _STOP_ACRONYMS else stem(fold(raw))


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
    if word in CARDINALS:
        return str(CARDINALS[word])
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    word = _without_suffix(_singular(word))
    # "make" and "making" must agree, and so must "happy" and "happily".
    if len(word) > 3:
        word = word.removesuffix("e")
    if len(word) > 3 and word.endswith("y"):
        word = word[:-1] + "i"
    return word


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    # "glass", "virus" and "basis" are not plurals.
    if word.endswith(("ss", "us", "is")):
        return word
    return word.removesuffix("s")


def _without_suffix(word: str) -> str:
    for suffix in ("ing", "ed", "ly"):
        base = word.removesuffix(suffix)
        # "sing" and "bed" have no suffix: what is left must be a syllable.
        if base == word or len(base) < 3 or not _VOWELS.intersection(base):
            continue
        doubled = base[-1] == base[-2] and base[-1] not in "lsz"
        # "stopped" doubles its consonant, "called" does not.
        return base[:-1] if doubled and suffix != "ly" else base
    return word


class WeighedWord(NamedTuple):
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


NAME_WEIGHT: Final = 2.0
WORD_WEIGHT: Final = 1.0
FUNCTION_WEIGHT: Final = 0.25


def weighed_words(text: str, span: Span) -> list[WeighedWord]:
    """Return the words of one sentence with weights: a coarse inverse document frequency.

    Names and numbers weigh 2, other words 1, function words 0.25 (stop words, and lower-case words of one or two
    letters). A capitalised word counts as a name unless it opens the sentence or follows a colon.

    Args:
        text: a response, with its marks blanked (:func:`blank_marks`).
        span: the sentence.
    """
    result: list[WeighedWord] = []
    end = span[0]
    opening = True
    for word in words(text, *span):
        raw = text[word.start : word.end]
        opening = opening or ":" in text[end : word.start]
        weight = _weight(word, raw, opening)
        result.append(WeighedWord(word.start, word.end, word.key, weight, _LATIN.match(raw) is not None))
        opening, end = False, word.end
    return result


def content_keys(text: str) -> list[str]:
    """Return the keys of the words of a text that are not function words. Citation marks and URLs are not words."""
    blanked = blank_marks(text)
    if text.isascii():
        # No word crosses the border of two sentences here, so that the borders need not be known.
        found: Iterable[Word] = words_of(blanked)
    else:
        found = chain.from_iterable(words(blanked, *span) for span in sentence_spans(text))
    return [word.key for word in found if _is_content(word, blanked[word.start : word.end])]


def _weight(word: Word, raw: str, opening: bool) -> float:
    if not _is_content(word, raw):
        return FUNCTION_WEIGHT
    if word.kind in ("number", "acronym"):
        return NAME_WEIGHT
    # The capital of an opening word says nothing.
    is_name = raw[0].isupper() and not opening
    return NAME_WEIGHT if is_name else WORD_WEIGHT


def blank_marks(text: str) -> str:
    """Return the text with URLs, citation marks such as ``[1]`` and list numbers replaced by spaces. Offsets stay."""

    def blank(found: re.Match[str]) -> str:
        return " " * len(found.group())

    return substitute(_LIST_NUMBER, blank, substitute(_IGNORED, blank, text))


def _is_content(word: Word, raw: str) -> bool:
    if word.kind == "unspaced":
        return _UNSPACED_STOPS.isdisjoint(raw)
    if word.kind != "word":
        return True
    # The key is stemmed, and only some stop words are.
    if word.key in STOP_WORDS or _is_stop_word(raw):
        return False
    return len(raw) > 2 or not raw.islower()


@lru_cache(maxsize=65_536)
def _is_short_stop_word(raw: str) -> bool:
    return fold(raw) in STOP_WORDS


def _is_stop_word(raw: str) -> bool:
    return len(raw) <= _LONGEST_CACHED and _is_short_stop_word(raw)


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
