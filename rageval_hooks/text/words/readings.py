"""How a written word is read, wherever it occurs: its key, and what kind of word it is."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal, NamedTuple

from rageval_hooks.text.numerals import CARDINALS, NUMBER_WORD, number_readings
from rageval_hooks.text.word_lists.month_names import MONTH_START

__all__ = [
    "FUNCTION_WEIGHT",
    "NAME_WEIGHT",
    "READINGS",
    "STOP_WORDS",
    "UNSPACED",
    "WORD_WEIGHT",
    "Kind",
    "Reading",
    "fold",
    "stem",
]

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
_LONGEST_KEPT: Final = 64
_MOST_KEPT: Final = 65_536
_VOWELS: Final = frozenset("aeiouy")
# Acronyms that are spelled like function words.
_STOP_ACRONYMS: Final = frozenset({"US", "IT", "WHO"})
_UNSPACED_STOPS: Final = frozenset("的了是在和与及也都就而着过吗呢吧はがをにでとのもへやかなだです는은이가을를의에")

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


class _Readings(dict[str, Reading]):
    """The readings of words by their spelling. Most words of a text have been read before."""

    def __missing__(self, raw: str) -> Reading:
        reading = _read(raw)
        # Very long "words" do not come back, and would fill the memory.
        if len(raw) > _LONGEST_KEPT:
            return reading
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[raw] = reading
        return reading


READINGS: Final = _Readings()
"""By the spelling of a word, its reading. Every word is there."""


def _read(raw: str) -> Reading:
    key, kind = _key_and_kind(raw)
    is_content, is_capital = _is_content(raw, key, kind), raw[0].isupper()
    return Reading(
        key=key,
        kind=kind,
        is_content=is_content,
        is_capital=is_capital,
        is_latin=_LATIN.match(raw) is not None,
        may_be_number=NUMBER_WORD.search(raw) is not None,
        may_be_month=MONTH_START.search(raw) is not None,
        weight=_weight(kind, is_content, is_capital),
        opening_weight=_weight(kind, is_content, False),
    )


def _weight(kind: Kind, is_content: bool, is_capital: bool) -> float:
    if not is_content:
        return FUNCTION_WEIGHT
    return NAME_WEIGHT if is_capital or kind in ("number", "acronym") else WORD_WEIGHT


def _key_and_kind(raw: str) -> tuple[str, Kind]:
    # Thai and other unspaced scripts have digits of their own, so scripts come before digits.
    if _UNSPACED_CHARACTER.match(raw):
        return raw, "unspaced"
    if number := _NUMBER.match(raw):
        return number_readings(number.group())[0], "number"
    if "." in raw:
        return _dotted(raw.replace(".", ""))
    if 1 < len(raw) <= _LONGEST_ACRONYM and _is_acronym(raw):
        return _acronym_key(raw), "acronym"
    return _key(raw), "word"


def _dotted(letters: str) -> tuple[str, Kind]:
    """Return the key and the kind of letters with dots, for example "U.S." (an acronym) or "e.g." (a word)."""
    if _is_acronym(letters):
        return _acronym_key(letters), "acronym"
    return fold(letters), "word"


def _is_content(raw: str, key: str, kind: Kind) -> bool:
    if kind == "unspaced":
        return _UNSPACED_STOPS.isdisjoint(raw)
    if kind != "word":
        return True
    # The key is stemmed, and only some stop words are.
    if key in STOP_WORDS or fold(raw) in STOP_WORDS:
        return False
    return len(raw) > 2 or not raw.islower()


def fold(text: str) -> str:
    """Return the text in NFKC and case-folded: the form in which strings are compared."""
    # Texts in ASCII have no other form than lower case.
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


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
