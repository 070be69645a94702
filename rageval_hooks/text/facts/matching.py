"""Which facts of a response other texts state too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain, product
from typing import Final

from rageval_hooks.text.dates import Date, month_number
from rageval_hooks.text.facts.extraction import DECADE, TITLES, Fact, find_values
from rageval_hooks.text.facts.index import ANY, FactIndex, acronym_letters, month_key, ordinal_key
from rageval_hooks.text.facts.place_names import same_place_found
from rageval_hooks.text.numbers import find_numbers, is_ordinal, measure_key, numbers_apart
from rageval_hooks.text.numerals import is_decimal
from rageval_hooks.text.word_lists.month_names import MONTHS
from rageval_hooks.text.words import STOP_WORDS, Blocked, fold, words_of

__all__ = ["entity_supported", "unsupported_facts"]

# "NATO", "U.S.", "NATO's"
_ACRONYM: Final = re.compile(r"((?:[^\W\d_]\.?){2,6})(?:[’']s)?")
# The code of a quarter: "q3".
_QUARTER: Final = re.compile(r"q([1-4])")
# Endings of stemmed words: "libyan", "chines" (of "Chinese"), "turkish".
_DEMONYM: Final = re.compile(r"(?:ian|ean|an|es|ish|ism|ist|ic|i)$")
_COUNTRY_ENDINGS: Final = ("", "a", "e", "y", "ia", "o", "land", "i")
_DEMONYM_ENDINGS: Final = ("ian", "ean", "an", "es", "ish")
# Letters of the shortest demonym, and of the shortest country without its ending.
_SHORTEST_DEMONYM: Final = 5
_SHORTEST_BASE: Final = 4

_MOST_ROUNDED: Final = 2_000
_LONGEST_ROUNDED: Final = 20
"""Numbers of a text, and their digits, that are compared with a rounded one."""

_SAY_NOTHING: Final = STOP_WORDS | TITLES
# Labels of spaCy for entities that are compared by value, not by words.
_NUMERIC_LABELS: Final = frozenset("DATE TIME PERCENT MONEY QUANTITY CARDINAL ORDINAL".split())


def unsupported_facts(stated: Iterable[Fact], index: FactIndex) -> list[Fact]:
    """Return the facts that no passage has. The same fact in another notation is returned once."""
    missing: dict[tuple[object, ...], Fact] = {}
    for fact in stated:
        if not _SUPPORTED_BY_KIND[fact.kind](fact, index):
            missing.setdefault(_identity(fact), fact)
        elif _has_other_unit(fact, index):
            # The number alone is right, so the message must show its unit.
            missing.setdefault(_identity(fact), fact._replace(text=fact.measure))
    return list(missing.values())


def _identity(fact: Fact) -> tuple[object, ...]:
    if fact.kind == "number":
        return fact.kind, fact.forms[0], fact.forms[-1] == DECADE
    return fact.kind, fact.forms, fact.dates


# --------------------------------------------------------------------------- dates


def _date_supported(fact: Fact, index: FactIndex) -> bool:
    return any(_reading_supported(date, index) for date in fact.dates)


def _reading_supported(date: Date, index: FactIndex) -> bool:
    """Return True if a passage has the day or month. Its year may be elsewhere if no other year is next to the day."""
    year, month, day = date[0], date[1], date[2] or ANY
    if year is None:
        return (ANY, month, day) in index.dates
    has_year_apart = (None, month, day) in index.dates and str(year) in index.numbers
    return has_year_apart or (year, month, day) in index.dates


# --------------------------------------------------------------------------- numbers


def _number_supported(fact: Fact, index: FactIndex) -> bool:
    if fact.forms[-1] == DECADE and fact.forms[0].endswith("0"):
        return _decade_found(fact.forms[0][:-1], index.numbers)
    if not index.numbers.isdisjoint(fact.forms):
        return True
    # "12 737" may be two numbers, and then both must be there.
    apart = numbers_apart(fact.text)
    if apart and not any(map(index.numbers.isdisjoint, apart)):
        return True
    return len(index.numbers) <= _MOST_ROUNDED and _rounded_found(fact.forms, index.numbers)


def _rounded_found(forms: Iterable[str], numbers: Iterable[str]) -> bool:
    """Return True if a text has a number that rounds to one of some forms: "1.58 billion" for 1,577 million.

    One digit that is left of a number says too little: every text has a number that rounds to 70.
    """
    wanted = [Decimal(form).normalize() for form in forms if is_decimal(form)]
    # 2019 does not round to the year 2020.
    wanted = [value for value in wanted if len(value.as_tuple().digits) > 1 and not 1000 <= value <= 2100]
    if not wanted:
        return False
    exact = [Decimal(number) for number in numbers if is_decimal(number) and len(number) <= _LONGEST_ROUNDED]
    return any(
        value == number.quantize(Decimal((0, (1,), int(value.as_tuple().exponent))), ROUND_HALF_UP)
        for value, number in product(wanted, exact)
        if number.adjusted() - value.adjusted() in (-1, 0)
    )


def _has_other_unit(fact: Fact, index: FactIndex) -> bool:
    """Return True if the passages have a number, but each time with another unit: "$5" for "5 euros"."""
    if not fact.units or not index.bare_numbers.isdisjoint(fact.forms):
        return False
    # Where two numbers in a row support it ("12 737"), the units are not clear.
    if index.numbers.isdisjoint(fact.forms):
        return False
    measures = (measure_key(form, unit) for form, unit in product(fact.forms, fact.units))
    return index.measures.isdisjoint(measures)


def _decade_found(decade: str, numbers: frozenset[str]) -> bool:
    """Return True if a text has a year of a decade: 1994 for "1990s"; "'90s" and "1990s" are the same."""
    years = [decade + digit for digit in "0123456789"]
    # "90s" is written without its century, in the response or in the passage.
    other = [decade[-1]] if len(decade) == 3 else [f"19{decade}", f"20{decade}"]
    years += [f"{form}0" for form in other]
    return not numbers.isdisjoint(years)


# --------------------------------------------------------------------------- codes


def _code_supported(fact: Fact, index: FactIndex) -> bool:
    return any(form in index.codes or form in index.keys or _quarter_found(form, index) for form in fact.forms)


def _quarter_found(code: str, index: FactIndex) -> bool:
    """Return True if a text has "third quarter" for "q3"."""
    found = _QUARTER.fullmatch(code)
    return found is not None and {ordinal_key(found[1]), "quarter"} <= index.keys


# --------------------------------------------------------------------------- names


def _name_supported(fact: Fact, index: FactIndex) -> bool:
    # "European Central Bank" is found by "ECB" ...
    letters = "".join(form[0] for form in fact.forms).casefold()
    if fact.alias and fact.alias in index.acronyms:
        return True
    if len(letters) > 2 and letters in index.acronyms:
        return True
    # ... and the other way round.
    acronym = _acronym(fact.text)
    if acronym is not None and (acronym in index.acronyms or acronym in index.initials):
        return True
    # "USA" is "United States", which no rule about letters finds.
    if same_place_found(fact.forms, index.keys, index.acronyms):
        return True
    return all(_word_found(form, index) for form in fact.forms)


def _acronym(text: str) -> str | None:
    """Return the letters of an acronym, "NATO", "U.S." or "NGOs"; None for other texts."""
    singular = text.removesuffix("s") if text[-2:-1].isupper() else text
    found = _ACRONYM.fullmatch(singular)
    if found is None or not found[1].isupper():
        return None
    return acronym_letters(found[1])


def _word_found(form: str, index: FactIndex) -> bool:
    if form in index.keys or _demonym_found(form, index.keys):
        return True
    return same_place_found((form,), index.keys, index.acronyms)


def _demonym_found(form: str, keys: frozenset[str]) -> bool:
    """Return True if a text has "Libya" for "Libyan", or "English" for "England"."""
    # Short words have endings by chance: "iran" is not a form of "ir".
    if len(form) < _SHORTEST_DEMONYM:
        return False
    base = _DEMONYM.sub("", form)
    countries = product([base], _COUNTRY_ENDINGS) if _SHORTEST_BASE <= len(base) < len(form) else ()
    # The other way round, up to four letters of the country's name are not in its demonym.
    shortest = max(_SHORTEST_BASE, len(form) - 4)
    bases = [form[:length] for length in range(shortest, len(form) + 1)]
    demonyms = product(bases, _DEMONYM_ENDINGS)
    return not keys.isdisjoint(map("".join, chain(countries, demonyms)))


_SUPPORTED_BY_KIND: Final[Mapping[str, Callable[[Fact, FactIndex], bool]]] = {
    "date": _date_supported,
    "number": _number_supported,
    "code": _code_supported,
    "name": _name_supported,
}


# --------------------------------------------------------------------------- named entities


def entity_supported(text: str, label: str, index: FactIndex) -> bool:
    """Return True if the passages have a named entity of the response.

    Numbers, dates and ordinals are compared by value, names by their words without titles such as "Dr.". An entity
    without content words ("The Who", an emoji) is compared as it is written.

    Args:
        text: the entity's text.
        label: its kind as spaCy names it.
        index: what the passages state.
    """
    if label in _NUMERIC_LABELS:
        # The word before it keeps the entity from being read as the number of a list.
        stated = find_values("is " + text)
        if stated:
            return not unsupported_facts(stated, index)
        month = month_number(text)
        if month is not None:
            return _month_supported(month, index)
    name = _entity_name(text)
    return not unsupported_facts([name], index) if name else _is_written(text, index)


def _month_supported(month: int, index: FactIndex) -> bool:
    if (ANY, month, ANY) in index.dates:
        return True
    # "may" is mostly a verb, so the word alone proves nothing.
    return MONTHS[month - 1] != "May" and month_key(month) in index.keys


def _entity_name(text: str) -> Fact | None:
    """Return the content words of an entity as a name; None if it has none."""
    ordinals = [
        (start, end, ordinal_key(values[0]))
        for start, end, values, _ in find_numbers(text)
        if is_ordinal(text[start:end])
    ]
    # "21st" is one key, not the number and its ending.
    blocked = Blocked((start, end) for start, end, _ in ordinals)
    content = [word for word in words_of(text) if word.key not in _SAY_NOTHING]
    others = [(word.start, word.end, word.key) for word in content if not blocked.hits(word.start, word.end)]
    kept = sorted(ordinals + others)
    if not kept:
        return None
    start, end = kept[0][0], kept[-1][1]
    return Fact(start, end, "name", text[start:end], tuple(key for _, _, key in kept))


def _is_written(text: str, index: FactIndex) -> bool:
    """Return True if a passage has these very characters, in any case."""
    parts = [re.escape(part) for part in fold(text).split()]
    if not parts:
        return True
    # "the who" must not be found in "the whole".
    begin = r"(?<!\w)" if parts[0][0].isalnum() else ""
    end = r"(?!\w)" if parts[-1][-1].isalnum() else ""
    pattern = re.compile(begin + r"\s+".join(parts) + end)
    return any(pattern.search(fold(passage)) for passage in index.texts)
