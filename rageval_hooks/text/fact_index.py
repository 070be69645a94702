"""The facts that a text can support, for look-up, and which facts of a response other texts state too."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from itertools import chain, product
from typing import Any, Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.dates import Date, find_ambiguous_dates, find_dates, loose_dates, month_number
from rageval_hooks.text.facts import DECADE, TITLES, Fact, code_key, find_codes, find_values
from rageval_hooks.text.limits import PIECE_CHARACTERS
from rageval_hooks.text.numbers import find_numbers, is_ordinal, measure_key, numbers_apart, supported_numbers
from rageval_hooks.text.numerals import is_decimal
from rageval_hooks.text.word_list import MONTHS
from rageval_hooks.text.words import STOP_WORDS, Blocked, Kind, Words, fold, stem, words_of

ANY: Final = 0
"""In the dates of an index: any year, or any day."""

LONGEST_ACRONYM: Final = 6
"""Letters of the longest acronym that is compared with initials."""

_TEXTS_KEPT: Final = 128
"""Texts of usual length whose initials are kept: those of a few turns."""

_LINKING: Final = frozenset(" \u00a0\n-&\"'“”‘’")
"""The characters that may be between two words of a name."""

_MOST_LINKING: Final = 3
_LINKING_WORDS: Final = frozenset(
    "of the de la le du des del della di da dos van von der den ter bin ibn al el y e & "
    "and for on in to at by with".split()
)


# Without slots, which would leave no place for the cached property.
@dataclass(frozen=True)
class FactIndex:
    """The facts of a passage, for look-up. They depend on the passage only, so they can be cached."""

    numbers: frozenset[str]
    bare_numbers: frozenset[str]
    """The numbers that occur without a known unit."""
    measures: frozenset[str]
    """The numbers with their units, as :func:`~rageval_hooks.text.numbers.measure_key` writes them."""
    dates: frozenset[Date]
    """Every date, also with :data:`ANY` in place of its year, its day, and both."""
    codes: frozenset[str]
    keys: frozenset[str]
    """The words, the months of dates, and ordinals as ``3th``."""
    acronyms: frozenset[str]
    texts: tuple[str, ...]
    """The texts, for what few responses need: initials, and entities without words."""

    @property
    def sets(self) -> tuple[frozenset[Any], ...]:
        """All fields except the texts."""
        numbers = (self.numbers, self.bare_numbers, self.measures)
        return (*numbers, self.dates, self.codes, self.keys, self.acronyms)

    @cached_property
    def initials(self) -> frozenset[str]:
        """The initials of names, for which an acronym may stand. They are found when the first acronym asks for them.

        Found once, since a response may have as many acronyms as there are passages.
        """
        return _union(map(_initials_of, self.texts))


_NOTHING: Final[frozenset[Any]] = frozenset()
_EMPTY: Final = FactIndex(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, ())


def index_facts(text: str) -> FactIndex:
    """Collect what a passage can support, in the forms in which facts are looked up."""
    found = words_of(text)
    dates = _all_dates(text)
    numbers = supported_numbers(text)
    keys = set(found.keys)
    keys.update(month_key(month) for _, month, _ in dates)
    keys.update(map(ordinal_key, numbers.ordinals))
    codes = {code_key(code.group()) for code in find_codes(text)}
    codes.update(_spaced_codes(text, found))
    return FactIndex(
        numbers=frozenset(numbers.values),
        bare_numbers=frozenset(numbers.bare),
        measures=frozenset(numbers.measures),
        dates=frozenset(form for date in dates for form in _date_forms(date)),
        codes=frozenset(codes),
        keys=frozenset(keys),
        acronyms=frozenset(_acronyms(text, found)),
        texts=(text,),
    )


def merge_indexes(indexes: Iterable[FactIndex]) -> FactIndex:
    """Return what several passages state together."""
    parts = list(indexes)
    # Copies of large sets take time, and most turns of some applications have one passage.
    if len(parts) == 1:
        return parts[0]
    # The sets of the parts, field by field.
    columns = zip(_EMPTY.sets, *(part.sets for part in parts), strict=True)
    numbers, bare, measures, dates, codes, keys, acronyms = map(_union, columns)
    texts = tuple(chain.from_iterable(part.texts for part in parts))
    return FactIndex(numbers, bare, measures, dates, codes, keys, acronyms, texts)


def _union(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    return frozenset().union(*sets)


def _all_dates(text: str) -> set[Date]:
    dates = loose_dates(text)
    dates.update(date for _, _, date in find_dates(text))
    for _, _, readings in find_ambiguous_dates(text):
        dates.update(readings)
    return dates


def _date_forms(date: Date) -> tuple[Date, ...]:
    """Return the date, and what else it is found by. With this, a look-up need not go through all dates."""
    year, month, day = date
    return date, (ANY, month, day), (year, month, ANY), (ANY, month, ANY)


def month_key(month: int) -> str:
    """Return the key of a month's name."""
    return stem(MONTHS[month - 1].casefold())


def ordinal_key(number: str) -> str:
    """Return the key that "first" and "1st" have in common."""
    return f"{number}th"


def acronym_letters(raw: str) -> str:
    """Return the letters of an acronym: "us" for "U.S."."""
    return raw.replace(".", "").casefold()


def _acronyms(text: str, words: Words) -> Iterator[str]:
    # Most texts have none.
    if "acronym" not in words.kinds:
        return
    for start, end, kind in zip(words.starts, words.ends, words.kinds, strict=True):
        if kind == "acronym":
            yield acronym_letters(text[start:end])


def _spaced_codes(text: str, words: Words) -> Iterator[str]:
    """Yield "GPT 4" as a code too."""
    numbers = (place for place, kind in enumerate(words.kinds) if kind == "number" and place > 0)
    for place in numbers:
        is_adjacent = words.starts[place] - words.ends[place - 1] <= 1
        if is_adjacent and words.kinds[place - 1] in ("word", "acronym"):
            yield code_key(text[words.starts[place - 1] : words.ends[place]])


def _initials_of(text: str) -> frozenset[str]:
    # A turn has several indexes with the same passages.
    return _kept_initials(text) if len(text) <= PIECE_CHARACTERS else frozenset(_initials(text, words_of(text)))


@lru_cache(maxsize=_TEXTS_KEPT)
def _kept_initials(text: str) -> frozenset[str]:
    return frozenset(_initials(text, words_of(text)))


def _initials(text: str, words: Words) -> Iterator[str]:
    """Yield the initials of the names that a text may hold: words with capitals, with function words between them.

    A name may begin after each function word: "Findings in Acute Care" gives FAC and AC.
    """
    # The initials of the names that the last words may belong to; an empty one begins with the next word.
    runs: list[str] = [""]
    is_outside = True
    for place, is_capital in enumerate(words.capitals):
        # Outside of a name, a word without a capital changes nothing; most words are such.
        if is_outside and not is_capital:
            continue
        if not _is_linked(text, words, place):
            runs = [""]
        raw, kind = text[words.starts[place] : words.ends[place]], words.kinds[place]
        if _is_linking_word(kind, raw):
            # Another name may begin here.
            runs = list(dict.fromkeys([*runs, ""]))
        elif kind == "word" and is_capital:
            runs = _continued(runs, raw[0])
            yield from (run.casefold() for run in runs if len(run) > 1)
        elif _gap_before(text, words, place) != "-":
            runs = [""]
        is_outside = runs == [""]


def _continued(runs: Sequence[str], initial: str) -> list[str]:
    """Return the initials with one more. Names with more initials than any acronym are dropped."""
    longer = [run + initial for run in runs if len(run) < LONGEST_ACRONYM]
    return longer or [initial]


def _gap_before(text: str, words: Words, place: int) -> str:
    """Return the characters between a word and the one before it."""
    return text[words.ends[place - 1] if place else 0 : words.starts[place]]


def _is_linked(text: str, words: Words, place: int) -> bool:
    """Return True if a word may continue a name with the word before it: "New York", "J. Smith"."""
    gap = _gap_before(text, words, place)
    if len(gap) <= _MOST_LINKING and _LINKING.issuperset(gap):
        return True
    follows_initial = place > 0 and words.ends[place - 1] - words.starts[place - 1] == 1
    return follows_initial and gap in (".", ". ")


@lru_cache(maxsize=4_096)
def _is_linking_word(kind: Kind, raw: str) -> bool:
    """Return True for a word without an initial in acronyms: "of" in "Bank of England", "The" in a title."""
    # "A" may be an initial.
    if kind != "word" or len(raw) == 1:
        return False
    folded = fold(raw)
    return folded in _LINKING_WORDS or (raw[0].isupper() and folded in STOP_WORDS)


# Each line is one place: names, adjectives, peoples. Capitals alone are an abbreviation.
_PLACES: Final = """
United Kingdom, Great Britain, Britain, British, UK, GB
United States, United States of America, America, American, US, USA
European Union, EU
United Nations, UN
United Arab Emirates, Emirati, UAE
Soviet Union, Soviet, USSR
Los Angeles, LA
New York City, NYC
Germany, German
France, French
Netherlands, Holland, Dutch
Spain, Spanish, Spaniard
Portugal, Portuguese
England, English
Scotland, Scottish, Scots
Wales, Welsh
Ireland, Irish
Denmark, Danish, Dane
Sweden, Swedish, Swede
Norway, Norwegian
Finland, Finnish, Finn
Iceland, Icelandic
Poland, Polish, Pole
Czech Republic, Czechia, Czech
Slovakia, Slovak
Slovenia, Slovene, Slovenian
Greece, Greek
Turkey, Turkish, Turk
Cyprus, Cypriot
Switzerland, Swiss
Thailand, Thai
Philippines, Filipino, Philippine
Peru, Peruvian
Argentina, Argentine, Argentinian
Afghanistan, Afghan
New Zealand, NZ
"""

Name = tuple[str, ...]


def _name(text: str) -> Name:
    if text.isupper():
        return (text,)
    return tuple(stem(fold(word)) for word in text.split() if word != "of")


_GROUPS: Final[list[list[Name]]] = [
    [_name(text.strip()) for text in line.split(",")] for line in _PLACES.strip().splitlines()
]
_GROUP_OF: Final[dict[Name, list[Name]]] = {
    tuple(fold(word) for word in name): group for group in _GROUPS for name in group
}


def same_place_found(forms: Sequence[str], keys: Collection[str], acronyms: Collection[str]) -> bool:
    """Return True if a text has another name of the same place: "Dutch" for "Netherlands", "UK" for "United Kingdom".

    Args:
        forms: the keys of the name's words.
        keys: the keys of the text's words.
        acronyms: the text's abbreviations, in lower case.
    """
    group = _GROUP_OF.get(tuple(fold(form) for form in forms))
    if group is None:
        return False
    return any(_is_found(name, keys, acronyms) for name in group)


def _is_found(name: Name, keys: Collection[str], acronyms: Collection[str]) -> bool:
    if name[0].isupper():
        # Only in capitals: "us" and "la" are words as well.
        return fold(name[0]) in acronyms
    return all(word in keys for word in name)


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
    # "Indian" is of "India", whose name without its ending is too short for the rule.
    if form in index.keys or form.removesuffix("n") in index.keys or _demonym_found(form, index.keys):
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
