"""Facts that a text states, numbers, dates, codes and names, and which of them other texts have too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from rageval_hooks.text.dates import MONTHS, Date, find_ambiguous_dates, find_dates
from rageval_hooks.text.numbers import ORDINALS, find_numbers, number_readings
from rageval_hooks.text.sentences import Span, sentence_spans
from rageval_hooks.text.words import STOP_WORDS, Blocked, Word, blank_marks, fold, stem, words

__all__ = [
    "Fact",
    "FactIndex",
    "entity_supported",
    "find_facts",
    "index_facts",
    "merge_indexes",
    "unsupported_facts",
]

_CODE: Final = re.compile(
    r"(?<![^\W_])(?:[^\W\d_]{1,12}-?\d{1,12}[^\W_]{0,12}|\d{1,6}[^\W\d_]{1,6}\d[^\W_]{0,8})(?![^\W_])"
)

_TITLES: Final = frozenset("mr mrs ms mx dr prof sir dame lord lady rev hon gen col capt lt sgt st jr sr".split())
_NAME_LINKS: Final = frozenset(
    "of the de la le du des del della di da dos van von der den ter bin ibn al el y e &".split()
)


class Fact(NamedTuple):
    """A number, date, code or name that a text states."""

    start: int
    end: int
    kind: Literal["number", "date", "code", "name"]
    text: str
    forms: tuple[str, ...]
    """Numbers and codes: accepted spellings. Names: the keys that must all occur. Dates: empty."""
    dates: tuple[Date, ...] = ()
    """The accepted readings of a date."""


@dataclass(frozen=True, slots=True)
class FactIndex:
    """What a passage states, for look-up. Depends on the passage alone: cache it."""

    numbers: frozenset[str]
    dates: frozenset[Date]
    codes: frozenset[str]
    keys: frozenset[str]
    initials: frozenset[str]

    @property
    def sets(self) -> tuple[frozenset[Any], ...]:
        """All of it."""
        return self.numbers, self.dates, self.codes, self.keys, self.initials


def index_facts(text: str) -> FactIndex:
    """Everything a passage can support, in the forms that :func:`unsupported_facts` looks up."""
    numbers: set[str] = set()
    for _, _, readings, _ in find_numbers(text):
        numbers.update(readings)
    keys: set[str] = set()
    codes = {_code(found.group()) for found in _CODE.finditer(text)}
    initials: set[str] = set()
    previous: Word | None = None
    run = ""
    for word in words(text):
        keys.add(word.key)
        if word.kind == "number":
            numbers.update(number_readings(text[word.start : word.end].rstrip("stndrh")))
            if previous is not None and previous.kind in ("word", "acronym") and word.start - previous.end <= 1:
                codes.add(_code(text[previous.start : word.end]))
        raw = text[word.start : word.end]
        near = previous is not None and word.start - previous.end <= 2
        if raw[0].isupper() and word.kind == "word":
            run = run + raw[0] if near else raw[0]
            if 2 <= len(run) <= 6:
                initials.add(run.casefold())
        elif not (near and word.key in _NAME_LINKS):
            run = ""
        if word.kind == "acronym":
            initials.add(word.key.casefold())
        previous = word
    dates = {date for _, _, date in find_dates(text)}
    for _, _, readings_of_date in find_ambiguous_dates(text):
        dates.update(readings_of_date)
    return FactIndex(frozenset(numbers), frozenset(dates), frozenset(codes), frozenset(keys), frozenset(initials))


def _code(raw: str) -> str:
    return re.sub(r"[\s-]", "", fold(raw))


def find_facts(text: str, sentences: Sequence[Span] | None = None) -> list[Fact]:
    """The numbers, dates, codes and names that ``text`` states, in order.

    Left out: list numbers, citation marks, URLs, number words up to ten, ordinals in words, a sentence's first word
    (its capital says nothing), and capitals in lines that are mostly capitalised.
    """
    masked = blank_marks(text)
    result: list[Fact] = []
    taken: list[Span] = []
    for a, b, date in find_dates(masked):
        taken.append((a, b))
        result.append(Fact(a, b, "date", text[a:b], (), (date,)))
    blocked = Blocked(taken)
    for a, b, readings in find_ambiguous_dates(masked):
        if not blocked.hits(a, b):
            taken.append((a, b))
            result.append(Fact(a, b, "date", text[a:b], (), readings))
    blocked = Blocked(taken)
    codes: list[Span] = []
    for found in _CODE.finditer(masked):
        raw = found.group()
        if not blocked.hits(*found.span()) and any(c.isalpha() for c in raw) and not raw[0].isdigit():
            codes.append(found.span())
            result.append(Fact(*found.span(), "code", raw, (_code(raw),)))
    blocked = Blocked(taken + codes)
    for a, b, values, spelled in find_numbers(masked):
        if blocked.hits(a, b) or (spelled and (len(values[0]) < 2 or values[0] == "10" or _is_ordinal(text[a:b]))):
            continue
        if text[b : b + 1] == "s" or text[a:b].endswith("s"):
            values += ("decade",)
        result.append(Fact(a, b, "number", text[a:b], values))
    rest = list(masked)
    for a, b in [*taken, *codes]:
        rest[a:b] = " " * (b - a)
    result.extend(_names("".join(rest), sentence_spans(text) if sentences is None else sentences))
    return sorted(result)


def _is_ordinal(text: str) -> bool:
    return re.split(r"[\s-]", fold(text))[-1] in ORDINALS


def _names(text: str, sentences: Sequence[Span]) -> Iterator[Fact]:
    for span in sentences:
        tokens = list(words(text, *span))
        capitals = [text[t.start].isupper() for t in tokens]
        lower = sum(text[t.start].islower() for t in tokens)
        shouted = sum(text[t.start : t.end].isupper() for t in tokens)
        heading = text[span[1] - 1] not in '.!?…"”)' and sum(capitals) > max(2, lower)
        if heading or shouted > max(2, len(tokens) / 2):
            continue  # its capitals say nothing
        run: list[Word] = []
        for i, token in enumerate(tokens):
            raw = text[token.start : token.end]
            glue = text[run[-1].end : token.start] if run else ""
            breaks = bool(run) and re.fullmatch(r"[ \u00a0]|-|\. |\.|’|'|’s |'s ", glue) is None
            if breaks or not (capitals[i] or token.key in _NAME_LINKS):
                yield from _name(text, run)
                run = []
            if capitals[i] and token.kind != "unspaced":
                inner = any(c.isupper() for c in raw[1:])
                opening = i == 0 or ":" in text[tokens[i - 1].end : token.start]
                if opening and not inner:
                    continue
                if fold(raw) in STOP_WORDS and token.kind != "acronym":
                    continue
                run.append(token)
        yield from _name(text, run)


def _name(text: str, run: Sequence[Word]) -> Iterator[Fact]:
    keys = tuple(w.key for w in run if w.key not in _TITLES and len(w.key) > 1)
    if keys:
        yield Fact(run[0].start, run[-1].end, "name", text[run[0].start : run[-1].end], keys)


def merge_indexes(indexes: Iterable[FactIndex]) -> FactIndex:
    """What several passages state together."""
    parts = list(indexes)
    return FactIndex(
        frozenset().union(*(part.numbers for part in parts)),
        frozenset().union(*(part.dates for part in parts)),
        frozenset().union(*(part.codes for part in parts)),
        frozenset().union(*(part.keys for part in parts)),
        frozenset().union(*(part.initials for part in parts)),
    )


def unsupported_facts(stated: Iterable[Fact], index: FactIndex) -> list[Fact]:
    """The facts that no passage has. Facts with the same forms are reported once."""
    missing: dict[tuple[object, ...], Fact] = {}
    for fact in stated:
        if not _supported(fact, index):
            missing.setdefault((fact.kind, fact.forms, fact.dates), fact)
    return list(missing.values())


def _supported(fact: Fact, index: FactIndex) -> bool:
    if fact.kind == "date":
        return any(_date_supported(date, index) for date in fact.dates)
    if fact.kind == "number":
        if fact.forms[-1] == "decade" and fact.forms[0].endswith("0"):
            decade = fact.forms[0][:-1]
            return any(decade + digit in index.numbers for digit in "0123456789")
        return any(form in index.numbers for form in fact.forms)
    if fact.kind == "code":
        return any(form in index.codes or form in index.keys for form in fact.forms)
    if len(fact.forms) == 1 and fact.forms[0].casefold() in index.initials:
        return True
    letters = "".join(form[0] for form in fact.forms).casefold()
    if len(letters) > 2 and letters in index.initials:
        return True
    return all(form in index.keys or _demonym_found(form, index.keys) for form in fact.forms)


_DEMONYM: Final = re.compile(r"(?:ian|ean|an|ese|ish|ism|ist|ic|i)$")
_COUNTRY_ENDINGS: Final = ("", "a", "e", "y", "ia", "o", "land", "i")
_DEMONYM_ENDINGS: Final = ("ian", "ean", "an", "ese", "ish")


def _demonym_found(form: str, keys: frozenset[str]) -> bool:
    """Whether "Libyan" is found where "Libya" stands, or "England" where "English" does."""
    if len(form) < 5:
        return False
    base = _DEMONYM.sub("", form)
    if 4 <= len(base) < len(form) and any(base + ending in keys for ending in _COUNTRY_ENDINGS):
        return True
    lengths = range(max(4, len(form) - 4), len(form) + 1)
    return any(form[:n] + ending in keys for n in lengths for ending in _DEMONYM_ENDINGS)


def _date_supported(date: Date, index: FactIndex) -> bool:
    year, month, day = date
    for other_year, other_month, other_day in index.dates:
        if other_month != month or (day is not None and other_day != day):
            continue
        if year is None or other_year == year or (other_year is None and str(year) in index.numbers):
            return True
    if index.dates:
        return False
    named = stem(MONTHS[month - 1].casefold()) in index.keys
    return named and all(part is None or str(part) in index.numbers for part in (year, day))


_NUMERIC_LABELS: Final = frozenset("DATE TIME PERCENT MONEY QUANTITY CARDINAL ORDINAL".split())


def entity_supported(text: str, label: str, index: FactIndex) -> bool:
    """Whether the passages have a named entity of the response.

    Numbers and dates are compared by value, names by their words, titles such as "Dr." apart.

    Args:
        text: the entity's text.
        label: its kind as spaCy names it.
        index: what the passages state.
    """
    stated: list[Fact] = []
    if label in _NUMERIC_LABELS:
        stated = [fact for fact in find_facts("x " + text) if fact.kind != "name"]
    if not stated:
        keys = tuple(word.key for word in words(text) if word.key not in STOP_WORDS and word.key not in _TITLES)
        stated = [Fact(0, len(text), "name", text, keys)] if keys else []
    return not unsupported_facts(stated, index)
