"""Words of a text, with the keys by which they are compared, and how much each of them says."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from rageval_hooks.text.numbers import CARDINALS, number_readings
from rageval_hooks.text.sentences import Span

__all__ = ["STOP_WORDS", "Blocked", "WeighedWord", "Word", "blank_marks", "fold", "stem", "weighed_words", "words"]

_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0dff\u200c\u200d"
)
# Scripts written without spaces between words, and Korean, whose endings are glued on.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003134f"
)
_LETTER: Final = rf"(?:[^\W\d_{_UNSPACED}]|[{_MARKS}])"
_TOKEN: Final = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    rf"|(?P<dotted>[^\W\d_{_UNSPACED}](?:\.[^\W\d_{_UNSPACED}])+(?!{_LETTER})\.?)"
    r"|(?P<number>\d+(?:[.,'’\u00a0\u202f]\d+)*)(?P<suffix>(?:st|nd|rd|th|s)(?![^\W_]))?"
    rf"|(?P<word>{_LETTER}+(?:['’]{_LETTER}+)*)"
)
_IGNORED: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:https?://|www\.)\S{1,2000}|\[\^?\d{1,3}(?:\s?[,;–-]\s?\d{1,3}){0,9}\]"
)
_LIST_NUMBER: Final = re.compile(r"(?m)^[ \t]*(?:[*#>-]+[ \t]*)?\(?\d{1,3}[.)](?=[\s*_])")
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
_STOP_ACRONYMS: Final = frozenset({"US", "IT", "WHO"})
_UNSPACED_STOPS: Final = frozenset("的了是在和与及也都就而着过吗呢吧はがをにでとのもへやかなだです는은이가을를의에")


class Word(NamedTuple):
    """A word of a text: where it stands and the key by which it is compared."""

    start: int
    end: int
    key: str
    kind: Literal["word", "number", "acronym", "unspaced"]


def words(text: str, start: int = 0, end: int | None = None) -> Iterator[Word]:
    """The words of ``text[start:end]``, with offsets into ``text``.

    Keys are NFKC-folded, stemmed and free of possessives; numbers are written one way (``1,000`` and ``1000``);
    scripts without spaces give character bigrams. Contracted function words ("don't") give nothing.
    """
    for found in _TOKEN.finditer(text, start, len(text) if end is None else end):
        a, b = found.span()
        kind = found.lastgroup
        if kind == "unspaced":
            run = found.group()
            if len(run) == 1:
                yield Word(a, b, run, "unspaced")
            else:
                for i in range(len(run) - 1):
                    yield Word(a + i, a + i + 2, run[i : i + 2], "unspaced")
        elif found["number"]:
            yield Word(a, b, number_readings(found["number"])[0], "number")
        elif kind == "dotted":
            raw = found.group().replace(".", "")
            if _is_acronym(raw):
                yield Word(a, b, _acronym_key(raw), "acronym")
            else:
                yield Word(a, b, fold(raw), "word")
        else:
            raw = found.group()
            if 1 < len(raw) <= 6 and _is_acronym(raw):
                yield Word(a, b, _acronym_key(raw), "acronym")
            else:
                key = _word_key(raw)
                if key:
                    yield Word(a, b, key, "word")


def fold(text: str) -> str:
    """NFKC and case folding: the form in which strings are compared."""
    return unicodedata.normalize("NFKC", text).casefold()


def _is_acronym(raw: str) -> bool:
    """Capitals alone, unless they shout a function word: "THE", "NOT"."""
    return raw.isupper() and (raw in _STOP_ACRONYMS or fold(raw) not in STOP_WORDS)


def _acronym_key(raw: str) -> str:
    """Acronyms are compared like words, but "US" and "IT" must not become stop words."""
    return raw if raw in _STOP_ACRONYMS else stem(fold(raw))


@lru_cache(maxsize=65_536)
def _word_key(raw: str) -> str:
    key = fold(raw).replace("’", "'").replace("\u200c", "").replace("\u200d", "")
    if "'" in key:
        if _CONTRACTION.search(key):
            return ""
        key = max(key.removesuffix("'s").split("'"), key=len)  # l'homme, O'Brien's
    return stem(key)


def stem(word: str) -> str:
    """Light English stemming: plural, -ed, -ing, -ly and a final e go; number words become digits.

    Words with a letter outside a-z are left alone.
    """
    if word in CARDINALS:
        return str(CARDINALS[word])
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed", "ly"):
        base = word[: -len(suffix)]
        if word.endswith(suffix) and len(base) >= 3 and any(c in "aeiouy" for c in base):
            if suffix != "ly" and base[-1] == base[-2] and base[-1] not in "lsz":
                base = base[:-1]
            word = base
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    if word.endswith("y") and len(word) > 3:
        word = word[:-1] + "i"
    return word


class WeighedWord(NamedTuple):
    """A word of the response with its weight in every mean."""

    start: int
    end: int
    key: str
    weight: float
    readable: bool
    """Latin script: MiniLM's English vocabulary can represent it."""

    @property
    def is_content(self) -> bool:
        """Not a function word."""
        return self.weight > FUNCTION_WEIGHT


NAME_WEIGHT: Final = 2.0
WORD_WEIGHT: Final = 1.0
FUNCTION_WEIGHT: Final = 0.25


def weighed_words(text: str, span: Span) -> list[WeighedWord]:
    """The words of one sentence, weighed by how much they say: an inverse document frequency in three steps.

    Names and numbers 2, other words 1, function words 0.25 (stop words, and lower-case words of one or two letters).
    A word counts as a name when it is capitalised and opens neither the sentence nor what follows a colon.

    Args:
        text: A response, its marks blanked out (:func:`blank_marks`).
        span: The sentence.
    """
    result: list[WeighedWord] = []
    end = span[0]
    opening = True
    for word in words(text, *span):
        raw = text[word.start : word.end]
        opening = opening or ":" in text[end : word.start]
        if not _is_content(word, raw):
            weight = FUNCTION_WEIGHT
        elif word.kind in ("number", "acronym") or (raw[0].isupper() and not opening):
            weight = NAME_WEIGHT
        else:
            weight = WORD_WEIGHT
        result.append(WeighedWord(word.start, word.end, word.key, weight, _LATIN.match(raw) is not None))
        opening, end = False, word.end
    return result


def blank_marks(text: str) -> str:
    """``text`` with URLs, citation marks such as ``[1]`` and list numbers turned into spaces; offsets stay."""

    def blank(found: re.Match[str]) -> str:
        return " " * len(found.group())

    return _LIST_NUMBER.sub(blank, _IGNORED.sub(blank, text))


def _is_content(word: Word, raw: str) -> bool:
    if word.kind == "unspaced":
        return not any(c in _UNSPACED_STOPS for c in raw)
    if word.kind == "word":
        return not (word.key in STOP_WORDS or fold(raw) in STOP_WORDS or (len(raw) <= 2 and raw.islower()))
    return True


class Blocked:
    """Disjoint spans, asked whether they touch another one (bisection)."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted(spans)
        self._starts = [a for a, _ in ordered]
        self._ends = [b for _, b in ordered]

    def hits(self, a: int, b: int) -> bool:
        """Whether a span overlaps one of these."""
        i = bisect_left(self._starts, b)
        return i > 0 and self._ends[i - 1] > a
