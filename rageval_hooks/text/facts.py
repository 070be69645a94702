"""Facts that a text states, numbers, dates, codes and names, and which of them other texts have too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from rageval_hooks.text.dates import MONTHS, Date, find_ambiguous_dates, find_dates, loose_dates, month_number
from rageval_hooks.text.numbers import find_numbers, is_ordinal, numbers_apart, supported_numbers
from rageval_hooks.text.place_names import same_place_found
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

_ACRONYM: Final = re.compile(r"((?:[^\W\d_]\.?){2,6})(?:[’']s)?")
_LONGEST_ACRONYM: Final = 6
_LINKING: Final = frozenset(" \u00a0\n-&\"'“”‘’")
"""The characters that may be between two words of a name, up to three of them."""

_TITLES: Final = frozenset(
    "mr mrs ms mx dr prof sir dame lord lady rev hon gen col capt lt sgt st jr sr "
    # As keys, which are stemmed: "princ" of "prince".
    "king queen princ princess emperor empress president chancellor minister senator governor pop bishop "
    "fig figur".split()
)
_NAME_LINKS: Final = frozenset(
    "of the de la le du des del della di da dos van von der den ter bin ibn al el y e &".split()
)
_BETWEEN_INITIALS: Final = _NAME_LINKS | frozenset("and for on in to at by with".split())
# "one" is mostly a pronoun, and "zero" mostly says "none".
_VAGUE: Final = frozenset(("0", "1"))

# A label of the prompt or the page, not a claim: "passage 2", "Fig. 3".
_REFERRING: Final = re.compile(
    r"(?:passages?|excerpts?|contexts?|sources?|documents?|fig(?:ure)?s?\.?|tables?)\s{1,3}\Z", re.IGNORECASE
)

# The code of a quarter: "q3".
_QUARTER: Final = re.compile(r"q([1-4])")


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
    """The words, the months of dates, and ordinals as ``3th``."""
    initials: frozenset[str]
    """Of names: what an acronym may stand for."""
    acronyms: frozenset[str]
    texts: tuple[str, ...]
    """What was read, for what has no words."""

    @property
    def sets(self) -> tuple[frozenset[Any], ...]:
        """All of it but the texts."""
        return self.numbers, self.dates, self.codes, self.keys, self.initials, self.acronyms


def index_facts(text: str) -> FactIndex:
    """Everything a passage can support, in the forms that :func:`unsupported_facts` looks up."""
    found = list(words(text))
    dates = loose_dates(text) | {date for _, _, date in find_dates(text)}
    for _, _, readings in find_ambiguous_dates(text):
        dates.update(readings)
    keys = {word.key for word in found}
    keys.update(_month_key(month) for _, month, _ in dates)
    numbers, ordinals = supported_numbers(text)
    keys.update(map(_ordinal_key, ordinals))
    codes = {_code(found.group()) for found in _CODE.finditer(text)}
    codes.update(_spaced_codes(text, found))
    return FactIndex(
        numbers=frozenset(numbers),
        dates=frozenset(dates),
        codes=frozenset(codes),
        keys=frozenset(keys),
        initials=frozenset(_initials(text, found)),
        acronyms=frozenset(_letters(text[w.start : w.end]) for w in found if w.kind == "acronym"),
        texts=(text,),
    )


def _month_key(month: int) -> str:
    return stem(MONTHS[month - 1].casefold())


def _ordinal_key(number: str) -> str:
    """What "first" and "1st" have in common."""
    return f"{number}th"


def _spaced_codes(text: str, found: Sequence[Word]) -> Iterator[str]:
    """Yield "GPT 4" as a code too."""
    for word, number in pairwise(found):
        if number.kind == "number" and word.kind in ("word", "acronym") and number.start - word.end <= 1:
            yield _code(text[word.start : number.end])


def _initials(text: str, found: Sequence[Word]) -> Iterator[str]:
    """Yield the initials of the names that a text may hold: of words with capitals, function words between them.

    A name may begin behind each function word: "Findings in Acute Care" gives FAC and AC.
    """
    runs: list[str] = []
    end, alone = 0, False
    for word in found:
        raw, gap = text[word.start : word.end], text[end : word.start]
        if not (_LINKING.issuperset(gap) and len(gap) <= 3) and not (alone and gap in (".", ". ")):
            runs = []
        if word.kind == "word" and _is_between(raw):
            runs = [*runs, ""] if runs and runs[-1] else runs
        elif word.kind == "word" and raw[0].isupper():
            runs = [run + raw[0] for run in runs or [""] if len(run) < _LONGEST_ACRONYM]
            yield from (run.casefold() for run in runs if len(run) > 1)
        elif gap != "-":
            runs = []
        end, alone = word.end, len(raw) == 1


def _is_between(raw: str) -> bool:
    folded = fold(raw)
    return len(raw) > 1 and (folded in _BETWEEN_INITIALS or (raw[0].isupper() and folded in STOP_WORDS))


def _letters(raw: str) -> str:
    return raw.replace(".", "").casefold()


def _acronym(text: str) -> str | None:
    """The letters of an acronym, "NATO", "U.S." or "NGOs"; None for what is none."""
    found = _ACRONYM.fullmatch(text.removesuffix("s") if text[-2:-1].isupper() else text)
    return _letters(found[1]) if found and found[1].isupper() else None


def _code(raw: str) -> str:
    return re.sub(r"[\s-]", "", fold(raw))


def find_facts(text: str, sentences: Sequence[Span] | None = None) -> list[Fact]:
    """The numbers, dates, codes and names that ``text`` states, in order.

    Not counted: list numbers, citation marks, URLs, the words "zero" and "one", ordinals in words, the numbers of
    "passage 2" and "Fig. 3", a sentence's first word (every sentence begins with a capital), and capitals in lines
    that are mostly capitalised.
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
        if blocked.hits(a, b) or (spelled and (values[0] in _VAGUE or is_ordinal(text[a:b]))):
            continue
        if _REFERRING.search(text[max(0, a - 16) : a]):
            continue
        if text[a:b].endswith("s") or text[b : b + 2].lstrip("'’")[:1] == "s":
            values += ("decade",)
        result.append(Fact(a, b, "number", text[a:b], values))
    rest = list(masked)
    for a, b in [*taken, *codes]:
        rest[a:b] = " " * (b - a)
    result.extend(_names("".join(rest), sentence_spans(text) if sentences is None else sentences))
    return sorted(result)


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
        frozenset().union(*(part.acronyms for part in parts)),
        tuple(text for part in parts for text in part.texts),
    )


def unsupported_facts(stated: Iterable[Fact], index: FactIndex) -> list[Fact]:
    """The facts that no passage has. The same fact, in whatever notation, is reported once."""
    missing: dict[tuple[object, ...], Fact] = {}
    for fact in stated:
        if not _supported(fact, index):
            missing.setdefault(_identity(fact), fact)
    return list(missing.values())


def _identity(fact: Fact) -> tuple[object, ...]:
    if fact.kind == "number":
        return fact.kind, fact.forms[0], fact.forms[-1] == "decade"
    return fact.kind, fact.forms, fact.dates


def _supported(fact: Fact, index: FactIndex) -> bool:
    if fact.kind == "date":
        return any(_date_supported(date, index) for date in fact.dates)
    if fact.kind == "number":
        if fact.forms[-1] == "decade" and fact.forms[0].endswith("0"):
            return _decade_found(fact.forms[0][:-1], index.numbers)
        apart = numbers_apart(fact.text)
        return _any_in(index.numbers, fact.forms) or (bool(apart) and all(_any_in(index.numbers, n) for n in apart))
    if fact.kind == "code":
        return any(form in index.codes or form in index.keys or _quarter_found(form, index) for form in fact.forms)
    letters = "".join(form[0] for form in fact.forms).casefold()
    if len(letters) > 2 and letters in index.acronyms:
        return True
    acronym = _acronym(fact.text)
    if acronym is not None and (acronym in index.initials or acronym in index.acronyms):
        return True
    if same_place_found(fact.forms, index.keys, index.acronyms):
        return True
    return all(_word_found(form, index) for form in fact.forms)


def _word_found(form: str, index: FactIndex) -> bool:
    if form in index.keys or _demonym_found(form, index.keys):
        return True
    return same_place_found((form,), index.keys, index.acronyms)


def _decade_found(decade: str, numbers: frozenset[str]) -> bool:
    """Return True if a text has a year of a decade: 1994 for "1990s"; "'90s" and "1990s" are the same."""
    # "90s" is written without its century, on either side.
    written = (decade, decade[-1]) if len(decade) == 3 else (decade, f"19{decade}", f"20{decade}")
    if any(form + digit in numbers for form in written[:1] for digit in "0123456789"):
        return True
    return any(form + "0" in numbers for form in written[1:])


def _quarter_found(code: str, index: FactIndex) -> bool:
    """Return True if a text has "third quarter" for "q3"."""
    found = _QUARTER.fullmatch(code)
    return found is not None and _ordinal_key(found[1]) in index.keys and "quarter" in index.keys


def _any_in(found: frozenset[str], forms: Iterable[str]) -> bool:
    return any(form in found for form in forms)


# Endings of stemmed words: "libyan", "chines" (of "Chinese"), "turkish".
_DEMONYM: Final = re.compile(r"(?:ian|ean|an|es|ish|ism|ist|ic|i)$")
_COUNTRY_ENDINGS: Final = ("", "a", "e", "y", "ia", "o", "land", "i")
_DEMONYM_ENDINGS: Final = ("ian", "ean", "an", "es", "ish")


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
    """Whether a passage has the day or month; its year may stand elsewhere, unless another one stands with it."""
    year, month, day = date
    for other_year, other_month, other_day in index.dates:
        if other_month != month or (day is not None and other_day != day):
            continue
        if year is None or other_year == year or (other_year is None and str(year) in index.numbers):
            return True
    return False


_NUMERIC_LABELS: Final = frozenset("DATE TIME PERCENT MONEY QUANTITY CARDINAL ORDINAL".split())


def entity_supported(text: str, label: str, index: FactIndex) -> bool:
    """Whether the passages have a named entity of the response.

    Numbers, dates and ordinals are compared by value, names by their words, titles such as "Dr." apart; what has no
    words that say something ("The Who", an emoji) as it is written.

    Args:
        text: the entity's text.
        label: its kind as spaCy names it.
        index: what the passages state.
    """
    if label in _NUMERIC_LABELS:
        stated = [fact for fact in find_facts("is " + text) if fact.kind != "name"]
        if stated:
            return not unsupported_facts(stated, index)
        month = month_number(text)
        if month is not None:
            return _month_supported(month, index)
    name = _entity_name(text)
    return not unsupported_facts([name], index) if name else _is_written(text, index)


def _month_supported(month: int, index: FactIndex) -> bool:
    also_a_verb = MONTHS[month - 1] == "May"
    return any(other == month for _, other, _ in index.dates) or (not also_a_verb and _month_key(month) in index.keys)


def _entity_name(text: str) -> Fact | None:
    """The words of an entity that say something; None if there are none."""
    ordinals = [(a, b, _ordinal_key(values[0])) for a, b, values, _ in find_numbers(text) if is_ordinal(text[a:b])]
    blocked = Blocked((a, b) for a, b, _ in ordinals)
    kept = [
        (word.start, word.end, word.key)
        for word in words(text)
        if not (word.key in STOP_WORDS or word.key in _TITLES or blocked.hits(word.start, word.end))
    ]
    kept = sorted(kept + ordinals)
    if not kept:
        return None
    start, end = kept[0][0], kept[-1][1]
    return Fact(start, end, "name", text[start:end], tuple(key for _, _, key in kept))


def _is_written(text: str, index: FactIndex) -> bool:
    """Whether a passage has these very characters, whatever their case."""
    parts = [re.escape(part) for part in fold(text).split()]
    if not parts:
        return True
    pattern = re.compile(r"(?<!\w)" * parts[0][0].isalnum() + r"\s+".join(parts) + r"(?!\w)" * parts[-1][-1].isalnum())
    return any(pattern.search(fold(passage)) for passage in index.texts)
