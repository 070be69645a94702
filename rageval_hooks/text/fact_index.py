"""What a passage has, for look-up: its words by chunk, and the facts that it supports."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, product
from operator import attrgetter
from typing import Any, Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.dates import Date, find_dates, loose_dates, month_number
from rageval_hooks.text.facts import TITLES, Fact, code_key, find_codes, find_phones_and_periods, find_values
from rageval_hooks.text.limits import scan
from rageval_hooks.text.numbers import find_numbers, is_ordinal, numbers_apart, supported_numbers, table_powers
from rageval_hooks.text.numerals import MONTHS, small_number
from rageval_hooks.text.quantities import BARE, WRITTEN, Reading, find_quantities, is_found
from rageval_hooks.text.units import Unit
from rageval_hooks.text.word_lists import WORD_LISTS, word_set
from rageval_hooks.text.words import STOP_WORDS, fold, stem, words_of

CHUNK_WORDS: Final = 100
"""Words per chunk. A window is two neighbouring chunks, so that windows overlap by half."""

MAX_CHUNKS: Final = 200
"""Maximum number of chunks. A passage of more than 20,000 words gets longer chunks, so that the work stays linear."""

ANY: Final = 0
"""In the dates of an index: any year, or any day."""

# "orld " in "World Health", "rganisation for " and "o-operation and " in "Organisation for Economic Co-operation and …"
_BETWEEN_INITIALS: Final = (
    rf"[^\W_]*(?:-[a-z][^\W_]*|['’]s)?[ \u00a0\n&\"'“”‘’-]{{1,3}}(?:(?i:{'|'.join(word_set('linking_words'))}) ){{0,3}}"
)


_SETS: Final = ("numbers", "bare_numbers", "measures", "dates", "codes", "keys", "acronyms")


@dataclass(frozen=True)  # without slots, which would leave no place for the cached property
class FactIndex:
    """The facts of a text, or of several together, for look-up.

    Attributes:
        numbers: the numbers that it supports.
        bare_numbers: those that occur without a known unit.
        measures: the numbers with their units.
        dates: every date, also with :data:`ANY` in place of its year, its day, and both.
        codes: the codes.
        keys: the words, the months of dates, and ordinals as ``3th``.
        acronyms: the acronyms, in lower case and without dots.
        text: the text, for what few responses need; empty for several texts.
        parts: the indexes of the texts; empty for one text.
    """

    numbers: frozenset[str] = frozenset()
    bare_numbers: frozenset[str] = frozenset()
    measures: frozenset[tuple[str, Unit]] = frozenset()
    dates: frozenset[Date] = frozenset()
    codes: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    acronyms: frozenset[str] = frozenset()
    text: str = ""
    parts: tuple[FactIndex, ...] = ()

    @cached_property
    def quantities(self) -> Mapping[str, Sequence[Reading]]:
        """The quantities by dimension, in order; found when the first fact is in no passage as it is written."""
        readings = {*chain.from_iterable(quantity.readings for quantity in find_quantities(self.text))}
        readings.update(*(chain.from_iterable(part.quantities.values()) for part in self.parts))
        for power in table_powers(self.text):
            plain = [reading for reading in readings if reading.dimension in (WRITTEN, BARE)]
            readings.update(r._replace(low=r.low * 10**power, high=r.high * 10**power) for r in plain)
        return {dimension: [*found] for dimension, found in groupby(sorted(readings), attrgetter("dimension"))}

    @cached_property
    def plain_keys(self) -> frozenset[str]:
        """The words with accents, without them; found when the first name is in no passage as it is written."""
        return frozenset(stem(without_accents(key)) for key in self.keys if not key.isascii())

    @cached_property
    def phones_and_periods(self) -> frozenset[str]:
        """The keys of phone numbers and quarters; found when the first code is in no passage as it is written."""
        if self.parts:
            return frozenset().union(*(part.phones_and_periods for part in self.parts))
        return frozenset(key for _, _, key in find_phones_and_periods(self.text))


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """The words of each chunk of a passage, and its facts. It depends on the text only, so it can be cached."""

    chunk_starts: tuple[int, ...]
    chunks: tuple[frozenset[str], ...]
    facts: FactIndex

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return 2000 + 130 * sum(map(len, (*self.chunks, *(getattr(self.facts, name) for name in _SETS))))


def index_passage(text: str) -> PassageIndex:
    """Split a passage into chunks and collect the keys of each, and its facts."""
    found = words_of(text)
    size = max(CHUNK_WORDS, -(-len(found) // MAX_CHUNKS))
    cuts = range(0, len(found), size)
    return PassageIndex(
        chunk_starts=tuple(found.starts[i] for i in cuts),
        chunks=tuple(frozenset(found.keys[i : i + size]) for i in cuts),
        facts=index_facts(text),
    )


def index_facts(text: str) -> FactIndex:
    """Collect what a text supports, in the forms in which facts are looked up."""
    found, numbers = words_of(text), supported_numbers(text)
    dates = loose_dates(text)
    dates.update(chain.from_iterable(readings for _, _, readings in find_dates(text)))
    keys = {*found.keys, *map(_ordinal_key, numbers.ordinals)}
    keys.update(stem(MONTHS[month - 1].casefold()) for _, month, _ in dates)
    codes = {code_key(code.group()) for code in find_codes(text)}
    acronyms = set()
    for place, reading in enumerate(found.readings):
        if reading.kind not in ("acronym", "number"):
            continue
        is_next = place > 0 and found.starts[place] - found.ends[place - 1] <= 1
        if reading.kind == "acronym":
            acronyms.add(_acronym_letters(text[found.starts[place] : found.ends[place]]))
        elif is_next and found.readings[place - 1].kind in ("word", "acronym"):
            # "GPT 4" is a code too.
            codes.add(code_key(text[found.starts[place - 1] : found.ends[place]]))
    return FactIndex(
        numbers=frozenset(numbers.values),
        bare_numbers=frozenset(numbers.bare),
        measures=frozenset(numbers.measures),
        # With these forms, a look-up need not go through all dates.
        dates=frozenset(
            form
            for year, month, day in dates
            for form in ((year, month, day), (ANY, month, day), (year, month, ANY), (ANY, month, ANY))
        ),
        codes=frozenset(codes),
        keys=frozenset(keys),
        acronyms=frozenset(acronyms),
        text=text,
    )


def merge_indexes(indexes: Iterable[FactIndex]) -> FactIndex:
    """Return what several passages state together."""
    parts = tuple(indexes)
    # Copies of large sets take time, and most turns of some applications have one passage.
    if len(parts) == 1:
        return parts[0]
    sets: dict[str, Any] = {name: frozenset().union(*(getattr(part, name) for part in parts)) for name in _SETS}
    return FactIndex(**sets, parts=parts)


def _ordinal_key(number: str) -> str:
    """Return the key that "first" and "1st" have in common."""
    return f"{number}th"


def _acronym_letters(raw: str) -> str:
    """Return the letters of an acronym: "us" for "U.S."."""
    return raw.replace(".", "").casefold()


def _spelled_out(acronym: str, index: FactIndex) -> bool:
    """Return True if a text has words with these initials, with function words between them: a name or its end."""
    pattern = re.compile(r"(?<![^\W_])" + _BETWEEN_INITIALS.join(map(re.escape, acronym.upper())))
    return any(any(scan(pattern, part.text)) for part in index.parts or (index,))


_Name = tuple[str, ...]


def _place_name(text: str) -> _Name:
    if text.isupper():
        return (text,)
    return tuple(stem(fold(word)) for word in text.split() if word != "of")


_GROUPS: Final = [[_place_name(text.strip()) for text in group.split(",")] for group in WORD_LISTS["places"]]
_GROUP_OF: Final[dict[_Name, list[_Name]]] = {tuple(map(fold, name)): group for group in _GROUPS for name in group}


def _same_place_found(forms: Sequence[str], keys: Collection[str], acronyms: Collection[str]) -> bool:
    """Return True if a text has another name of the same place: "Dutch" for "Netherlands"."""
    for name in _GROUP_OF.get(tuple(map(fold, forms)), ()):
        # Abbreviations only in capitals: "us" and "la" are words as well.
        if fold(name[0]) in acronyms if name[0].isupper() else all(word in keys for word in name):
            return True
    return False


# "NATO", "U.S.", "NATO's"
_ACRONYM: Final = re.compile(r"((?:[^\W\d_]\.?){2,6})(?:[’']s)?")
# The code of a quarter or a half of a year: "q3".
_PERIOD: Final = re.compile(r"([qh])([1-4])")
_ROMAN: Final = re.compile(r"[ivx]{1,6}")
# Endings of stemmed words: "libyan", "chines" (of "Chinese"), "turkish".
_DEMONYM: Final = re.compile(r"(?:ian|ean|an|es|ish|ism|ist|ic|i)$")
_COUNTRY_ENDINGS: Final = ("", "a", "e", "y", "ia", "o", "land", "i")
_DEMONYM_ENDINGS: Final = ("ian", "ean", "an", "es", "ish")
# Letters of the shortest demonym, and of the shortest country without its ending.
_MIN_DEMONYM: Final = 5
_MIN_BASE: Final = 4

_SAY_NOTHING: Final = STOP_WORDS | TITLES
# Labels of spaCy for entities that are compared by value, not by words.
_NUMERIC_LABELS: Final = frozenset("DATE TIME PERCENT MONEY QUANTITY CARDINAL ORDINAL".split())


def unsupported_facts(stated: Iterable[Fact], index: FactIndex) -> list[Fact]:
    """Return the facts that no passage has. The same fact in another notation is returned once."""
    missing: dict[tuple[object, ...], Fact] = {}
    for fact in stated:
        if not _SUPPORTED_BY_KIND[fact.kind](fact, index):
            # The number alone may be right, and then the message must show its unit.
            shown = fact._replace(text=fact.measure) if _has_other_unit(fact, index) else fact
            forms = fact.forms[:1] or fact.values if fact.kind == "number" else fact.forms
            missing.setdefault((fact.kind, forms, fact.dates), shown)
    return list(missing.values())


def _date_supported(fact: Fact, index: FactIndex) -> bool:
    """Return True if a passage has the day or month. Its year may be elsewhere if no other year is next to the day."""
    for year, month, day_or_none in fact.dates:
        day = day_or_none or ANY
        has_year_apart = (None, month, day) in index.dates and str(year) in index.numbers
        if has_year_apart or (ANY if year is None else year, month, day) in index.dates:
            return True
    return False


def _number_supported(fact: Fact, index: FactIndex) -> bool:
    if not index.numbers.isdisjoint(fact.forms) and not _has_other_unit(fact, index):
        return True
    # "12 737" may be two numbers, and then both must be there.
    apart = numbers_apart(fact.text)
    if apart and not any(map(index.numbers.isdisjoint, apart)):
        return True
    return any(is_found(value, index.quantities.get(value.dimension, ())) for value in fact.values)


def _has_other_unit(fact: Fact, index: FactIndex) -> bool:
    """Return True if the passages have a number, but each time with another unit: "$5" for "5 euros"."""
    if not fact.units or not index.bare_numbers.isdisjoint(fact.forms) or index.numbers.isdisjoint(fact.forms):
        return False
    return index.measures.isdisjoint(product(fact.forms, fact.units))


def _code_supported(fact: Fact, index: FactIndex) -> bool:
    for form in fact.forms:
        # "third quarter" for "q3", and "September" where the passages name no quarter
        if period := _PERIOD.fullmatch(form):
            word, months = ("quarter", 3) if period[1] == "q" else ("half", 6)
            if {_ordinal_key(period[2]), word} <= index.keys:
                return True
            last = int(period[2]) * months
            dated = not index.dates.isdisjoint((ANY, month, ANY) for month in range(last - months + 1, last + 1))
            named = {f"{period[1]}{number}" for number in "1234"}
            if dated and named.isdisjoint(index.codes) and named.isdisjoint(index.phones_and_periods):
                return True
        if form in index.codes or form in index.keys or form in index.phones_and_periods:
            return True
    return False


def _name_supported(fact: Fact, index: FactIndex) -> bool:
    # "European Central Bank" is found by "ECB" ...
    letters = "".join(form[0] for form in fact.forms).casefold()
    if fact.alias in index.acronyms or (len(letters) > 2 and letters in index.acronyms):
        return True
    # ... and the other way round: "NATO", "U.S.", "NGOs".
    acronym = _ACRONYM.fullmatch(fact.text.removesuffix("s") if fact.text[-2:-1].isupper() else fact.text)
    if acronym and acronym[1].isupper():
        own = _acronym_letters(acronym[1])
        if own in index.acronyms or _spelled_out(own, index):
            return True
    # "USA" is "United States", which no rule about letters finds.
    if _same_place_found(fact.forms, index.keys, index.acronyms):
        return True
    return all(_word_found(form, index) for form in fact.forms)


def _word_found(form: str, index: FactIndex) -> bool:
    # "XII" is 12.
    if _ROMAN.fullmatch(form) and str(small_number(form)) in index.numbers:
        return True
    if not index.plain_keys.isdisjoint((form, stem(without_accents(form)))):
        return True
    # "Indian" is of "India", whose name without its ending is too short for the rule.
    if (
        form in index.keys
        or form.removesuffix("n") in index.keys
        or form.removesuffix("sm") in index.keys
        or _demonym_found(form, index.keys)
    ):
        return True
    return _same_place_found((form,), index.keys, index.acronyms)


def without_accents(text: str) -> str:
    """Return a text without accents: "pokemon" for "pokémon"."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def _demonym_found(form: str, keys: frozenset[str]) -> bool:
    """Return True if a text has "Libya" for "Libyan", or "English" for "England"."""
    # Short words have endings by chance: "iran" is not a form of "ir".
    if len(form) < _MIN_DEMONYM:
        return False
    base = _DEMONYM.sub("", form)
    countries = product([base], _COUNTRY_ENDINGS) if _MIN_BASE <= len(base) < len(form) else ()
    # The other way round, up to four letters of the country's name are not in its demonym.
    shortest = max(_MIN_BASE, len(form) - 4)
    demonyms = product((form[:length] for length in range(shortest, len(form) + 1)), _DEMONYM_ENDINGS)
    return not keys.isdisjoint(map("".join, chain(countries, demonyms)))


_SUPPORTED_BY_KIND: Final[Mapping[str, Callable[[Fact, FactIndex], bool]]] = {
    "date": _date_supported,
    "number": _number_supported,
    "code": _code_supported,
    "name": _name_supported,
}


def entity_supported(text: str, label: str, index: FactIndex) -> bool:
    """Return True if the passages have a named entity of the response.

    Numbers, dates and ordinals are compared by value, names by their words without titles such as "Dr.". An entity
    without content words ("The Who") is compared as it is written.

    Args:
        text: the entity's text.
        label: its kind as spaCy names it.
        index: what the passages state.
    """
    if label in _NUMERIC_LABELS:
        # The word before it keeps the entity from being read as the number of a list.
        # A plain number that the passages have needs no reading.
        if text.isdecimal() and text in index.numbers:
            return True
        stated = find_values("is " + text)
        if stated:
            return not unsupported_facts(stated, index)
        # "may" is mostly a verb, so the word alone proves nothing.
        month = month_number(text)
        if month is not None:
            return (ANY, month, ANY) in index.dates
    name = _entity_name(text)
    if name is not None:
        return not unsupported_facts([name], index)
    # "the who" must not be found in "the whole".
    pattern = re.compile(r"(?<!\w)" + r"\s+".join(map(re.escape, fold(text).split())) + r"(?!\w)")
    return any(pattern.search(fold(part.text)) for part in index.parts or (index,))


def _entity_name(text: str) -> Fact | None:
    """Return the content words and ordinals of an entity as a name; None if it has none."""
    # "21st" is one key, not the number and its ending.
    found = find_numbers(text)
    ordinals = [(n.start, n.end, _ordinal_key(n.readings[0])) for n in found if is_ordinal(text[n.start : n.end])]
    kept = [*ordinals]
    for word in words_of(text):
        is_ordinals = any(start <= word.start < end for start, end, _ in ordinals)
        if word.key not in _SAY_NOTHING and not is_ordinals:
            kept.append((word.start, word.end, word.key))
    if not kept:
        return None
    kept.sort()
    start, end = kept[0][0], kept[-1][1]
    return Fact(start, end, "name", text[start:end], tuple(key for _, _, key in kept))
