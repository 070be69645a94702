"""Facts that a text states: numbers, dates, codes and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from rageval_hooks.text.dates import Date, find_ambiguous_dates, find_dates
from rageval_hooks.text.language import language_of
from rageval_hooks.text.limits import scan
from rageval_hooks.text.numbers import find_numbers, is_ordinal
from rageval_hooks.text.sentences import Span, sentence_spans
from rageval_hooks.text.units import NO_UNIT, measure
from rageval_hooks.text.word_lists.common_words import is_common
from rageval_hooks.text.words import STOP_WORDS, Blocked, Word, blank_marks, fold, words, words_of

__all__ = ["DECADE", "TITLES", "Fact", "code_key", "find_codes", "find_facts"]

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

# The label of something in the prompt or on the page, before its number: "passage 2", "Fig. 3".
_REFERRING: Final = re.compile(
    r"(?:passages?|excerpts?|contexts?|sources?|documents?|fig(?:ure)?s?\.?|tables?)\s{1,3}\Z", re.IGNORECASE
)
_REFERRING_LENGTH: Final = 16

_SHORTEST_OPENING_NAME: Final = 4
# "Tokenizing", "Preheated", "Serverless": words that are built by rule are in no list.
_WORD_ENDINGS: Final = tuple("ing ed ly ness less ful able ible tion sion ment ism ity ous ive".split())

# "Anna left" has one other word, which is too few to know the language.
_FEWEST_OTHERS: Final = 2
_ENGLISH_SHARE: Final = 0.75

# What may be between two words of one name: "New York", "Jean-Luc", "J. Smith", "O'Brien", "Moody's Analytics".
_INSIDE_NAME: Final = frozenset((" ", "\u00a0", "-", ". ", ".", "’", "'", "’s ", "'s "))
_SENTENCE_ENDS: Final = frozenset('.!?…"”)')


class Fact(NamedTuple):
    """A number, date, code or name that a text states; in comparisons, also a role or a negation that it changes."""

    start: int
    end: int
    kind: Literal["number", "date", "code", "name", "role", "negation"]
    text: str
    forms: tuple[str, ...]
    """Numbers and codes: the accepted spellings. Names: the keys that must all occur. Dates: empty."""
    dates: tuple[Date, ...] = ()
    """The accepted readings of a date."""
    units: frozenset[str] = NO_UNIT
    """What the unit of a number may be; empty if it has none that is known."""
    measure: str = ""
    """A number with its unit as written, for example "$5"; empty if it has no known unit."""

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
    masked = blank_marks(text)
    # Dates come first and names last: "March 5, 2019" is one date and neither two numbers nor a name.
    facts = list(_dates(text, masked))
    facts += _codes(masked, _blocked(facts))
    facts += _numbers(text, masked, _blocked(facts))
    rest = _without(masked, facts)
    names = _names(rest, sentence_spans(text) if sentences is None else sentences)
    if language_of(text) == _CAPITALISED_NOUNS:
        names = (name for name in names if any(map(str.isupper, name.text[1:])) and " " not in name.text)
    facts += names
    return sorted(facts)


def _blocked(facts: Iterable[Fact]) -> Blocked:
    return Blocked(fact.span for fact in facts)


def _without(text: str, facts: Iterable[Fact]) -> str:
    """Return a text with spaces in place of some facts."""
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
    return scan(_CODE, text) if _may_have_code(text) else iter(())


def _may_have_code(text: str) -> bool:
    """Return True if a letter is before a digit, as in every code. Most texts need not be searched further."""
    return any(map(_AFTER_LETTER.match, (text[max(0, digit - 2) : digit] for digit in words_of(text).first_digits)))


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
        if _REFERRING.search(text[max(0, start - _REFERRING_LENGTH) : start]):
            continue
        forms = (*values, DECADE) if _is_plural(raw, text[end : end + 2]) else values
        found = measure(text, start, end)
        written = text[found.start : found.end] if found.units else ""
        yield Fact(start, end, "number", raw, forms, units=found.units, measure=written)


def _is_plural(raw: str, following: str) -> bool:
    """Return True for "1990s", "1990's" and "sixties"."""
    return raw.endswith("s") or following.lstrip("'’")[:1] == "s"


# --------------------------------------------------------------------------- names


def _names(text: str, sentences: Sequence[Span]) -> Iterator[Fact]:
    for span in sentences:
        tokens = list(words(text, *span))
        if not _is_heading(text, span, tokens) and not _is_shouted(text, tokens):
            yield from _names_in_sentence(text, tokens)


def _is_heading(text: str, span: Span, tokens: Sequence[Word]) -> bool:
    """Return True for a line in title case, whose capitals say nothing."""
    if text[span[1] - 1] in _SENTENCE_ENDS:
        return False
    capitals = sum(text[token.start].isupper() for token in tokens)
    return capitals > max(2, sum(text[token.start].islower() for token in tokens))


def _is_shouted(text: str, tokens: Sequence[Word]) -> bool:
    """Return True if most words are in capitals."""
    shouted = sum(text[token.start : token.end].isupper() for token in tokens)
    return shouted > max(2, len(tokens) / 2)


def _names_in_sentence(text: str, tokens: Sequence[Word]) -> Iterator[Fact]:
    run: list[Word] = []
    for position, token in enumerate(tokens):
        begins_capital = text[token.start].isupper()
        if not begins_capital or (run and text[run[-1].end : token.start] not in _INSIDE_NAME):
            yield from _name(text, run)
            run = []
        if begins_capital and _is_named(text, tokens, position):
            run.append(token)
    yield from _name(text, run)


def _is_named(text: str, tokens: Sequence[Word], position: int) -> bool:
    """Return True if a word with a capital may belong to a name."""
    token = tokens[position]
    if token.kind == "unspaced":
        return False
    raw = text[token.start : token.end]
    # "iPhone" and "NASA" are names also at the beginning of a sentence.
    has_inner_capital = any(map(str.isupper, raw[1:]))
    if not has_inner_capital and _is_opening(text, tokens, position) and not _is_opening_name(text, tokens, position):
        return False
    return token.kind == "acronym" or fold(raw) not in STOP_WORDS


def _is_opening(text: str, tokens: Sequence[Word], position: int) -> bool:
    """Return True for the first word of a sentence, and for a word after a colon."""
    return position == 0 or ":" in text[tokens[position - 1].end : tokens[position].start]


def _is_opening_name(text: str, tokens: Sequence[Word], position: int) -> bool:
    """Return True if the first word of an English sentence is surely a name: it is in no list of words."""
    raw = text[tokens[position].start : tokens[position].end]
    # Only plain words are in the lists.
    if len(raw) < _SHORTEST_OPENING_NAME or not (raw.isascii() and raw.isalpha()):
        return False
    if raw.endswith(_WORD_ENDINGS) or is_common(tokens[position].key):
        return False
    # In another language, every word is in no list.
    others = [token.key for token in tokens if text[token.start].islower()]
    if len(others) < _FEWEST_OTHERS:
        return False
    return sum(map(_is_english, others)) >= _ENGLISH_SHARE * len(others)


def _is_english(key: str) -> bool:
    return key in STOP_WORDS or is_common(key)


def _name(text: str, run: Sequence[Word]) -> Iterator[Fact]:
    keys = tuple(word.key for word in run if word.key not in TITLES and len(word.key) > 1)
    if keys:
        start, end = run[0].start, run[-1].end
        yield Fact(start, end, "name", text[start:end], keys)
