"""Facts that a text states: numbers, dates, codes and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress
from typing import Final, Literal, NamedTuple

from rageval_hooks.text.dates import Date, find_ambiguous_dates, find_dates
from rageval_hooks.text.language import language_of
from rageval_hooks.text.limits import PIECE_CHARACTERS, scan_at
from rageval_hooks.text.numbers import find_numbers, is_ordinal
from rageval_hooks.text.sentences import Span, sentence_spans
from rageval_hooks.text.units import NO_UNIT, UNIT_WORDS, measure
from rageval_hooks.text.word_list import is_common
from rageval_hooks.text.words import STOP_WORDS, Blocked, Words, blank_marks, fold, words_by_sentence, words_of

# Letters of scripts with spaces between words. In 耗資1250萬元 the characters around the digits are words.
_LETTER: Final = r"[^\W\d_\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
_LETTER_OR_DIGIT: Final = rf"(?:{_LETTER}|\d)"
# "GPT-4", "B12", "COVID19" (letters, then digits) and "3M5", "747a8" (digits and letters mixed).
_CODE: Final = re.compile(
    rf"(?<![^\W_])(?:{_LETTER}{{1,12}}-?\d{{1,12}}{_LETTER_OR_DIGIT}{{0,12}}"
    rf"|\d{{1,6}}{_LETTER}{{1,6}}\d{_LETTER_OR_DIGIT}{{0,8}})(?![^\W_])"
)
# "T-" and "B" before the digits of "GPT-4" and "B12".
_AFTER_LETTER: Final = re.compile(r".?[^\W\d_]-?\Z", re.DOTALL)
_LONGEST_BEFORE_DIGIT: Final = 24
# "GPT 4" and "GPT-4" are one code.
_CODE_SEPARATOR: Final = re.compile(r"[\s-]")

TITLES: Final = frozenset(
    "mr mrs ms mx dr prof sir dame lord lady rev hon gen col capt lt sgt st jr sr "
    # As keys, which are stemmed: "princ" is the key of "prince".
    "king queen princ princess emperor empress president chancellor minister senator governor pop bishop "
    "fig figur".split()
)
"""Keys of words that are no part of a name: "Dr. Smith" is the same person as "Smith"."""

DECADE: Final = "decade"
"""The last form of a number that is a decade, for example "1990s"."""

_CAPITALISED_NOUNS: Final = "de"

# "one" is mostly a pronoun, and "zero" mostly says "none".
_VAGUE: Final = frozenset(("0", "1"))

# The label of something in the prompt, on the page or in the answer itself, before its number: "passage 2", "Step 6".
_REFERRING: Final = re.compile(
    r"(?:passages?|excerpts?|contexts?|sources?|documents?|fig(?:ure)?s?\.?|tables?|steps?|options?|questions?|answers?|"
    r"points?|items?|methods?|notes?|examples?|parts?)\s{1,3}(?:#\s?)?\Z",
    re.IGNORECASE,
)
# "2) " in "the parts are 1) the hull and 2) the mast"
_ENUMERATING: Final = re.compile(r"(?<![\w(])\d{1,2}(?=\)\s)")
# "two types", "the three main steps": a count of what the answer lists itself.
_COUNTING: Final = re.compile(
    r"(?:\s(?:main|key|major|primary|different|distinct|basic|common|general|possible|of the|of these|other|more)){0,2}"
    r"\s(?:types?|kinds?|ways?|steps?|reasons?|methods?|options?|examples?|categor(?:y|ies)|factors?|parts?|things?|"
    r"points?|groups?|forms?|aspects?|differences?|benefits?|features?|sections?|questions?|answers?|sources?|"
    r"passages?|documents?|approach(?:es)?|stages?|phases?|components?|elements?)(?![^\W_])"
    r"|\s(?:is|are|was|were|have|has|do|of them|of these)(?![^\W_])|\s?[.,;:)]|\Z"
)
_MOST_COUNTED: Final = 10
# "millions of people", "several thousand dollars"
_MAGNITUDE_ALONE: Final = re.compile(r"(?:hundred|thousand|million|billion|trillion|lakh|crore)s?", re.IGNORECASE)
# " (26" in "79 °F (26 °C)", "10 km (about 6.2 miles)": the same in another unit, which is no further fact.
_CONVERTED: Final = re.compile(
    r"\d\s?(?:[^\W\d_]{1,10}\s){0,2}(?:[^\W\d_]{1,12}|°[CF]?)?\s?\((?:about |approximately |~|≈|or )?-?\Z"
)
_CONVERTED_LENGTH: Final = 48
# " (BLS)" behind "Bureau of Labor Statistics"
_ALIAS: Final = re.compile(r"[^.;:()\n]{0,60}\((?P<letters>[A-Z]{2,6})s?\)")
# Words that are often written with a capital and name nothing.
_NO_NAMES: Final = UNIT_WORDS.union(
    "ok tv pc id url it faq diy pdf usb dvd cd am pm vs ui step option question answer section part chapter "
    "line note method bureau department earth internet web".split()
)
_REFERRING_LENGTH: Final = 16

_SHORTEST_OPENING_NAME: Final = 4
# "Tokenizing", "Preheated", "Serverless": words that are built by rule are in no list.
_WORD_ENDINGS: Final = tuple("ing ed ly ness less ful able ible tion sion ment ism ity ous ive".split())

# "Anna left" has one other word, which is too few to know the language.
_FEWEST_OTHERS: Final = 2
_ENGLISH_SHARE: Final = 0.75

# A sentence with more words in capitals may be a heading.
_MOST_IN_PROSE: Final = 2

# What may be between two words of one name: "New York", "Jean-Luc", "J. Smith", "O'Brien", "Moody's Analytics".
_INSIDE_NAME: Final = frozenset((" ", "\u00a0", "-", ". ", ".", "’", "'", "’s ", "'s "))
_SENTENCE_ENDS: Final = frozenset('.!?…"”)')

# Texts whose facts are kept: those of a few turns.
_TEXTS_KEPT: Final = 128


class Fact(NamedTuple):
    """A number, date, code or name that a text states; in comparisons, also a negation that it changes."""

    start: int
    end: int
    kind: Literal["number", "date", "code", "name", "negation"]
    text: str
    forms: tuple[str, ...]
    """Numbers and codes: the accepted spellings. Names: the keys that must all occur. Dates: empty."""
    dates: tuple[Date, ...] = ()
    """The accepted readings of a date."""
    units: frozenset[str] = NO_UNIT
    """What the unit of a number may be; empty if it has none that is known."""
    measure: str = ""
    """A number with its unit as written, for example "$5"; empty if it has no known unit."""
    alias: str = ""
    """The acronym that follows a name in brackets, in lower case: "bls" for "Bureau of Labor Statistics (BLS)"."""

    @property
    def span(self) -> Span:
        """The position in the text, as (start, end)."""
        return self.start, self.end


def find_facts(text: str, sentences: Sequence[Span] | None = None) -> list[Fact]:
    """Return the numbers, dates, codes and names that a text states, in order.

    Not counted are list numbers, citation marks, URLs, the words "zero" and "one", ordinals in words, the numbers of
    "passage 2" and "Fig. 3", the first word of a sentence (every sentence begins with a capital) unless it is in no
    list of English words, and capitals in lines that are mostly capitalised.

    Args:
        text: the text.
        sentences: its sentences, if they are already known.
    """
    if sentences is not None:
        return _new_facts(text, sentences)
    # Several metrics of a turn read the facts of the same texts.
    return list(_kept_facts(text) if len(text) <= PIECE_CHARACTERS else _new_facts(text, sentence_spans(text)))


def find_values(text: str) -> list[Fact]:
    """Return the numbers, dates and codes that a text states; see :func:`find_facts`."""
    return _values(text, blank_marks(text))


def _new_facts(text: str, sentences: Sequence[Span]) -> list[Fact]:
    masked = blank_marks(text)
    # Names come last: "March 5, 2019" is no name.
    facts = _values(text, masked)
    rest = _without(masked, facts)
    names = list(_names(rest, sentences))
    if names and language_of(text) == _CAPITALISED_NOUNS:
        names = [name for name in names if any(map(str.isupper, name.text[1:])) and " " not in name.text]
    return sorted([*facts, *names])


def _values(text: str, masked: str) -> list[Fact]:
    # Dates come first: "March 5, 2019" is one date and not two numbers.
    facts = list(_dates(text, masked))
    facts += _codes(masked, _blocked(facts))
    facts += _numbers(text, masked, _blocked(facts))
    return facts


@lru_cache(maxsize=_TEXTS_KEPT)
def _kept_facts(text: str) -> Sequence[Fact]:
    return _new_facts(text, sentence_spans(text))


def _blocked(facts: Iterable[Fact]) -> Blocked:
    return Blocked(fact.span for fact in facts)


def _without(text: str, facts: Sequence[Fact]) -> str:
    """Return a text with spaces in place of some facts."""
    if not facts:
        return text
    characters = list(text)
    for start, end in (fact.span for fact in facts):
        characters[start:end] = " " * (end - start)
    return "".join(characters)


def _dates(text: str, masked: str) -> Iterator[Fact]:
    certain = [Fact(start, end, "date", text[start:end], (), (date,)) for start, end, date in find_dates(masked)]
    yield from certain
    blocked = _blocked(certain)
    for start, end, readings in find_ambiguous_dates(masked):
        if not blocked.hits(start, end):
            yield Fact(start, end, "date", text[start:end], (), readings)


def find_codes(text: str) -> Iterator[re.Match[str]]:
    """Yield what looks like a code, for example "GPT-4" or "B12"."""
    # A letter is before a digit in every code; few digits have one.
    digits = (at for at in words_of(text).first_digits if _AFTER_LETTER.match(text, max(0, at - 2), at))
    return scan_at(_CODE, text, sorted({_code_start(text, digit) for digit in digits}))


def _code_start(text: str, digit: int) -> int:
    """Return where a code with this digit may begin: at the letters and digits before it, perhaps with a hyphen."""
    start = digit - (text[digit - 1] == "-")
    # Longer runs are no codes.
    while start > 0 and digit - start < _LONGEST_BEFORE_DIGIT and text[start - 1].isalnum():
        start -= 1
    return start


def code_key(raw: str) -> str:
    """Return the form in which codes are compared: "gpt4" for "GPT-4" and "GPT 4"."""
    return _CODE_SEPARATOR.sub("", fold(raw))


def _codes(masked: str, blocked: Blocked) -> Iterator[Fact]:
    for found in find_codes(masked):
        raw = found.group()
        # "5km" is a number with a unit, and "½5" has no letter.
        is_number = raw[0].isdigit() or not any(map(str.isalpha, raw))
        if not is_number and not blocked.hits(*found.span()):
            yield Fact(*found.span(), "code", raw, (code_key(raw),))


def _numbers(text: str, masked: str, blocked: Blocked) -> Iterator[Fact]:
    for start, end, values, is_word in find_numbers(masked):
        raw = text[start:end]
        is_vague = is_word and (values[0] in _VAGUE or is_ordinal(raw))
        if is_vague or blocked.hits(start, end):
            continue
        # "passage 2" and "Fig. 3" refer to the prompt or the page.
        if _REFERRING.search(text[max(0, start - _REFERRING_LENGTH) : start]) or _ENUMERATING.match(text, start):
            continue
        if is_word and (_is_count(values[0], text, end) or _MAGNITUDE_ALONE.fullmatch(raw)):
            continue
        forms = (*values, DECADE) if _is_plural(raw, text[end : end + 2]) else values
        found = measure(text, start, end)
        if found.units and _CONVERTED.search(text[max(0, start - _CONVERTED_LENGTH) : start]):
            continue
        written = text[found.start : found.end] if found.units else ""
        yield Fact(start, end, "number", raw, forms, units=found.units, measure=written)


def _is_count(value: str, text: str, end: int) -> bool:
    """Return True for a small number in words that counts what the answer lists: "two types", "the two are"."""
    return len(value) <= 2 and int(value) <= _MOST_COUNTED and _COUNTING.match(text, end) is not None


def _is_plural(raw: str, following: str) -> bool:
    """Return True for "1990s", "1990's" and "sixties"."""
    return raw.endswith("s") or following.lstrip("'’")[:1] == "s"


# --------------------------------------------------------------------------- names


def _names(text: str, sentences: Sequence[Span]) -> Iterator[Fact]:
    for span, found in zip(sentences, words_by_sentence(text, sentences), strict=True):
        capitals = [*compress(range(len(found)), found.capitals)]
        # Capitals say nothing in a heading, and where most words are in capitals.
        if capitals and not _is_heading(text, span, found, capitals) and not _is_shouted(text, found, capitals):
            yield from _names_in_sentence(text, found, capitals)


def _is_heading(text: str, span: Span, found: Words, capitals: Sequence[int]) -> bool:
    """Return True for a line in title case, whose capitals say nothing."""
    if len(capitals) <= _MOST_IN_PROSE or text[span[1] - 1] in _SENTENCE_ENDS:
        return False
    return len(capitals) > sum(text[start].islower() for start in found.starts)


def _is_shouted(text: str, found: Words, capitals: Sequence[int]) -> bool:
    """Return True if most words are in capitals."""
    if len(capitals) <= _MOST_IN_PROSE:
        return False
    shouted = sum(text[found.starts[at] : found.ends[at]].isupper() for at in capitals)
    return shouted > max(_MOST_IN_PROSE, len(found) / 2)


def _names_in_sentence(text: str, found: Words, capitals: Sequence[int]) -> Iterator[Fact]:
    run: list[int] = []
    previous = -1
    for at in capitals:
        is_apart = at != previous + 1
        if run and (is_apart or text[found.ends[run[-1]] : found.starts[at]] not in _INSIDE_NAME):
            yield from _name(text, found, run)
            run = []
        if _is_named(text, found, at):
            run.append(at)
        previous = at
    yield from _name(text, found, run)


def _is_named(text: str, found: Words, at: int) -> bool:
    """Return True if a word with a capital may belong to a name."""
    kind = found.kinds[at]
    if kind == "unspaced":
        return False
    raw = text[found.starts[at] : found.ends[at]]
    # "iPhone" and "NASA" are names also at the beginning of a sentence.
    has_inner_capital = any(map(str.isupper, raw[1:]))
    if not has_inner_capital and _is_opening(text, found, at) and not _is_opening_name(text, found, at):
        return False
    return kind == "acronym" or fold(raw) not in STOP_WORDS


def _is_opening(text: str, found: Words, at: int) -> bool:
    """Return True for the first word of a sentence, and for a word after a colon."""
    return at == 0 or ":" in text[found.ends[at - 1] : found.starts[at]]


def _is_opening_name(text: str, found: Words, at: int) -> bool:
    """Return True if the first word of an English sentence is surely a name: it is in no list of words."""
    raw = text[found.starts[at] : found.ends[at]]
    # Only plain words are in the lists.
    if len(raw) < _SHORTEST_OPENING_NAME or not (raw.isascii() and raw.isalpha()):
        return False
    if raw.endswith(_WORD_ENDINGS) or is_common(found.keys[at]):
        return False
    # In another language, every word is in no list.
    others = [key for start, key in zip(found.starts, found.keys, strict=True) if text[start].islower()]
    if len(others) < _FEWEST_OTHERS:
        return False
    return sum(map(_is_english, others)) >= _ENGLISH_SHARE * len(others)


def _is_english(key: str) -> bool:
    return key in STOP_WORDS or is_common(key)


def _name(text: str, found: Words, run: Sequence[int]) -> Iterator[Fact]:
    keys = tuple(key for key in map(found.keys.__getitem__, run) if key not in TITLES and len(key) > 1)
    if not keys:
        return
    start, end = found.starts[run[0]], found.ends[run[-1]]
    if len(run) == 1 and fold(text[start:end]) in _NO_NAMES:
        return
    alias = _ALIAS.match(text, end)
    letters = alias["letters"].casefold() if alias and keys[0][0] in alias["letters"].casefold() else ""
    yield Fact(start, end, "name", text[start:end], keys, alias=letters)
