"""The facts that a text can support: its numbers, dates, codes and words, for look-up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.dates import Date, find_ambiguous_dates, find_dates, loose_dates
from rageval_hooks.text.facts.extraction import code_key, find_codes
from rageval_hooks.text.limits import PIECE_CHARACTERS
from rageval_hooks.text.numbers import supported_numbers
from rageval_hooks.text.word_lists.month_names import MONTHS
from rageval_hooks.text.words import STOP_WORDS, Kind, Words, fold, stem, words_of

__all__ = [
    "ANY",
    "FactIndex",
    "acronym_letters",
    "index_facts",
    "merge_indexes",
    "month_key",
    "ordinal_key",
]

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
