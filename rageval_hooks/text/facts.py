"""Facts that a text states: numbers, dates, codes and names."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from itertools import chain
from typing import Final, Literal, NamedTuple

from rageval_hooks.text.dates import Date, find_dates
from rageval_hooks.text.language import english_words, language_of
from rageval_hooks.text.limits import Span, blank, kept, scan, scan_at
from rageval_hooks.text.numbers import find_numbers, is_ordinal
from rageval_hooks.text.numerals import MAGNITUDES, small_number
from rageval_hooks.text.quantities import YEAR, Quantity, Reading, find_quantities, hedge_of, with_precision
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.units import CURRENCY_CODES, NO_UNIT, UNIT_WORDS, Unit
from rageval_hooks.text.word_lists import word_set
from rageval_hooks.text.words import STOP_WORDS, Words, blank_marks, fold, words_by_sentence, words_of

# Letters of scripts with spaces between words. In 耗資1250萬元 the characters around the digits are words.
_LETTER: Final = r"[^\W\d_\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
_LETTER_OR_DIGIT: Final = rf"(?:{_LETTER}|\d)"
# "GPT-4", "B12", "COVID19" (letters, then digits) and "3M5", "747a8" (digits and letters mixed).
_CODE: Final = re.compile(
    rf"(?<![^\W_])(?:{_LETTER}{{1,12}}-?\d{{1,12}}{_LETTER_OR_DIGIT}{{0,12}}"
    rf"|\d{{1,6}}{_LETTER}{{1,6}}\d{_LETTER_OR_DIGIT}{{0,8}})(?![^\W_])"
)
# "GPT-" and "B" before the first digit of "GPT-4" and "B12".
_CODE_HEAD: Final = re.compile(r"[^\W_]{1,24}(?<=[^\W\d_])-?\Z")
_MAX_CODE_HEAD_LENGTH: Final = 25
# "GPT 4" and "GPT-4" are one code.
_CODE_SEPARATOR: Final = re.compile(r"[\s-]")

TITLES: Final = word_set("titles")
"""Keys of words that are no part of a name: "Dr. Smith" is the same person as "Smith"."""

_CAPITALISED_NOUNS: Final = "de"

# "one" is mostly a pronoun, and "zero" mostly says "none".
_VAGUE: Final = frozenset(("0", "1"))

# The label of something in the prompt, on the page or in the answer itself, before its number: "passage 2", "Step 6".
_REFERRING: Final = re.compile(
    r"(?:passages?|excerpts?|contexts?|sources?|documents?|fig(?:ure)?s?\.?|tables?|steps?|options?|questions?|answers?|"
    r"points?|items?|methods?|notes?|examples?|parts?)\s{1,3}(?:#\s?|ids? |no\.? |numbers? )?\Z",
    re.IGNORECASE,
)
_REFERRING_LENGTH: Final = 24
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
_MAX_COUNTED: Final = 20
# "24/7" says always.
_NO_FACT: Final = re.compile(r".{0,3}?(?<!\d)24[/x]7(?!\d)")
# "millions of people", "several thousand dollars"
_MAGNITUDE_ALONE: Final = re.compile(rf"(?:{'|'.join(MAGNITUDES)})s?", re.IGNORECASE)
# " (26" in "79 °F (26 °C)", "10 km (about 6.2 miles)": the same in another unit, which is no further fact.
_CONVERTED: Final = re.compile(
    r"\d\s?(?:[^\W\d_]{1,10}\s){0,2}(?:[^\W\d_]{1,12}|°[CF]?)?\s?\((?:about |approximately |~|≈|or )?-?\Z"
)
_CONVERTED_LENGTH: Final = 48
# " (BLS)" behind "Bureau of Labor Statistics"
_ALIAS: Final = re.compile(r"[^.;:()\n]{0,60}\((?P<letters>[A-Z]{2,6})s?\)")
# "vinyl sulphone (VS)": an abbreviation that the text itself introduces is no further fact.
_ALIAS_BEHIND: Final = re.compile(r" \((?P<letters>[A-Z][A-Za-z]{1,6}?)s?\)")
_NAME_BEFORE: Final = re.compile(r"(?<![^\W_])[^.;:()\n]{2,60}\Z")
_MAX_NAME_BEFORE: Final = 60
# Words that are often written with a capital and name nothing.
_NO_NAMES: Final = UNIT_WORDS | word_set("no_names")

_MIN_OPENING_NAME: Final = 4
# "Tokenizing", "Preheated", "Serverless": words that are built by rule are in no list.
_WORD_ENDINGS: Final = tuple("ing ed ly ness less ful able ible tion sion ment ism ity ous ive ship ers".split())

# "Anna left" has one other word, which is too few to know the language.
_MIN_OTHERS: Final = 2
_ENGLISH_SHARE: Final = 0.75

# A sentence with more words in capitals may be a heading.
_MAX_IN_PROSE: Final = 2

# What may be between two words of one name: "New York", "Jean-Luc", "J. Smith", "O'Brien", "Moody's Analytics".
_INSIDE_NAME: Final = frozenset((" ", "\u00a0", "-", ". ", ".", "’", "'", "’s ", "'s "))
_SENTENCE_ENDS: Final = frozenset('.!?…"”)')


class Fact(NamedTuple):
    """A number, date, code or name that a text states; in comparisons, also a negation that it changes."""

    start: int
    end: int
    kind: Literal["number", "date", "code", "name", "negation"]
    text: str
    forms: tuple[str, ...]
    """Numbers and codes: the accepted spellings. Names: the keys that must all occur. Dates: empty. So too for a number
    that means nothing by itself ("one in two")."""
    dates: tuple[Date, ...] = ()
    """The accepted readings of a date."""
    units: frozenset[Unit] = NO_UNIT
    """What the unit of a number may be; empty if it has none that is known."""
    measure: str = ""
    """A number with its unit as written, for example "$5"; empty if it has no known unit."""
    quantities: tuple[Quantity, ...] = ()
    """What a number says in its text."""
    source: str = ""
    """The text of a number."""
    alias: str = ""
    """The acronym that follows a name in brackets, in lower case: "bls" for "Bureau of Labor Statistics (BLS)"."""

    @property
    def values(self) -> tuple[Reading, ...]:
        """What a number accepts in other notations; most numbers are found as they are written."""
        return tuple(chain.from_iterable(with_precision(quantity, self.source) for quantity in self.quantities))

    def says_the_same(self, other: Fact) -> bool:
        """Return True if two numbers or dates have the same value, wherever they are."""
        if (self.forms, self.dates) != (other.forms, other.dates):
            return False
        return self.quantities == other.quantities or self.values == other.values

    @property
    def measure_end(self) -> int:
        """The position behind it and its unit."""
        return max(self.end, self.start + len(self.measure) - (self.measure.find(self.text) if self.measure else 0))


def find_facts(text: str, sentences: Sequence[Span] | None = None) -> list[Fact]:
    """Return the numbers, dates, codes and names that a text states, in order.

    Not counted are list numbers, citation marks, URLs, the words "zero" and "one", ordinals in words, the numbers of
    "passage 2" and "Fig. 3", the first word of a sentence (every sentence begins with a capital) unless it is in no
    list of English words, and capitals in lines that are mostly capitalised.

    Args:
        text: the text.
        sentences: its sentences, if they are already known.
    """
    return list(_facts(text)) if sentences is None else _new_facts(text, sentences)


def _new_facts(text: str, sentences: Sequence[Span]) -> list[Fact]:
    masked = blank_marks(text)
    facts = _values(text, masked)
    # Names come last: "March 5, 2019" is no name, and "GB" in "5 GB" is none.
    names = list(_names(blank(masked, ((fact.start, fact.measure_end) for fact in facts)), sentences))
    if names:
        own = {found["letters"] for found in scan(_ALIAS_BEHIND, masked) if _is_introduced(masked, found)}
        names = [name for name in names if name.text.removesuffix("s") not in own]
    if names and language_of(text) == _CAPITALISED_NOUNS:
        names = [name for name in names if any(map(str.isupper, name.text[1:])) and " " not in name.text]
    return sorted([*facts, *names])


def _is_introduced(text: str, alias: re.Match[str]) -> bool:
    """Return True if the words before an abbreviation have its letters in order, from a first letter on."""
    start, letters = alias.start(), alias["letters"]
    name = _NAME_BEFORE.search(text, max(0, start - _MAX_NAME_BEFORE), start)
    words = name.group().casefold().split()[-len(letters) - 2 :] if name else []
    for first, word in enumerate(words):
        rest = iter(" ".join(words[first:]))
        if word[0] == letters[0].casefold() and all(letter in rest for letter in letters.casefold()):
            return True
    return False


@kept
def _facts(text: str) -> Sequence[Fact]:
    return _new_facts(text, sentence_spans(text))


def find_values(text: str) -> list[Fact]:
    """Return the numbers, dates and codes that a text states; see :func:`find_facts`."""
    return _values(text, blank_marks(text))


def _values(text: str, masked: str) -> list[Fact]:
    # Dates come first: "March 5, 2019" is one date and not two numbers.
    facts: list[Fact] = []
    taken: set[int] = set()
    for start, end, readings in find_dates(masked):
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            facts.append(Fact(start, end, "date", text[start:end], (), readings))
    for start, end, key in find_phones_and_periods(masked):
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            facts.append(Fact(start, end, "code", text[start:end], (key,)))
    for found in find_codes(masked):
        raw = found.group()
        # "5km" is a number with a unit, "FY22" and "mid-1990" are years, and "½5" has no letter.
        is_number = raw[0].isdigit() or not any(map(str.isalpha, raw)) or raw.startswith(("FY", "CY", "mid-", "Mid-"))
        if not is_number and taken.isdisjoint(range(*found.span())):
            taken.update(range(*found.span()))
            facts.append(Fact(*found.span(), "code", raw, (code_key(raw),)))
    return facts + list(_numbers(text, masked, taken))


def find_codes(text: str) -> Iterator[re.Match[str]]:
    """Yield what looks like a code, for example "GPT-4" or "B12"."""
    # A letter is before a digit in every code; few digits have one.
    starts = set()
    for digit in words_of(text).first_digits:
        if digit and (text[digit - 1] == "-" or text[digit - 1].isalpha()):
            head = _CODE_HEAD.search(text, max(0, digit - _MAX_CODE_HEAD_LENGTH), digit)
            if head:
                starts.add(head.start())
    return scan_at(_CODE, text, sorted(starts))


# "+44 (0)20 7946 0018", "0800 123 4567", "(555) 123-4567", "555.123.4567"
_PHONE: Final = re.compile(
    r"(?<![\w.,+-])(?:(?:\+\d|\(?0\d|\(\d{3}\))[\d ().-]{5,18}\d|\d{3}[-.]\d{3}[-.]\d{4})(?![^\W_]|[.,]\d)"
)
_PHONE_DIGITS: Final = range(8, 16)
# "third quarter of 2021", "first half of fiscal year 2020"; "3Q21", "1H 2020"
_PERIOD: Final = re.compile(
    r"(?<![^\W_])(?:(?P<ordinal>first|second|third|fourth|[1-4](?:st|nd|rd|th))[ -](?P<name>quarter|half)"
    r"(?=,? (?:of )?(?:the )?(?:fiscal )?(?:year )?(?:FY ?)?\d{2})|(?P<number>[1-4])(?P<letter>[QH])(?= ?['’]?\d{2}))",
    re.IGNORECASE,
)


def find_phones_and_periods(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, key) of phone numbers and of quarters and halves of a year.

    The key of a phone number is its last nine digits: "+44 20 7946 0018" and "020 7946 0018" are one.
    """
    for found in scan(_PHONE, text):
        digits = "".join(filter(str.isdigit, found.group()))
        if len(digits) in _PHONE_DIGITS:
            yield *found.span(), digits[-9:]
    for found in scan(_PERIOD, text):
        letter = (found["name"] or found["letter"])[0].casefold()
        yield *found.span(), letter + str(small_number(found["ordinal"] or found["number"]))


def code_key(raw: str) -> str:
    """Return the form in which codes are compared: "gpt4" for "GPT-4" and "GPT 4"."""
    return _CODE_SEPARATOR.sub("", fold(raw))


def _numbers(text: str, masked: str, taken: Set[int]) -> Iterator[Fact]:
    quantities = find_quantities(masked)
    # "one in two", "half past three", "two and a half hours": one fact, whatever numbers are in it.
    composed = [quantity for quantity in quantities if quantity.kind == "composed"]
    for quantity in composed:
        if taken.isdisjoint(range(quantity.start, quantity.end)):
            written = text[quantity.start : quantity.end]
            yield Fact(quantity.start, quantity.end, "number", written, (), quantities=(quantity,), source=masked)
    inside = {at for quantity in composed for at in range(quantity.start, quantity.end)}.union(taken)
    numbers = find_numbers(masked)
    starts = [number.start for number in numbers]
    covering: defaultdict[int, list[Quantity]] = defaultdict(list)
    for quantity in quantities:
        for at in starts[bisect_left(starts, quantity.start) : bisect_left(starts, quantity.end)]:
            covering[at].append(quantity)
    for number in numbers:
        start, end, forms, found = number.start, number.end, number.readings, number.measure
        raw = text[start:end]
        if start in inside or (end - 1) in inside or _NO_FACT.match(text, max(0, start - 3)):
            continue
        # "passage 2" and "Fig. 3" refer to the prompt or the page.
        if _REFERRING.search(text[max(0, start - _REFERRING_LENGTH) : start]) or _ENUMERATING.match(text, start):
            continue
        if number.spelled and (forms[0] in _VAGUE or is_ordinal(raw) or _MAGNITUDE_ALONE.fullmatch(raw)):
            continue
        if len(forms[0]) < 3 and forms[0].isdigit() and int(forms[0]) <= _MAX_COUNTED:
            listed = _listed(text, start, end)
            if int(forms[0]) in listed or (number.spelled and listed <= {0, 1} and _COUNTING.match(text, end)):
                continue
        before = text[max(0, start - _CONVERTED_LENGTH) : start]
        if found.units and "(" in before and _CONVERTED.search(before):
            continue
        written = text[found.start : found.end] if found.units else ""
        around = tuple(covering[start])
        years = [r for quantity in around for r in quantity.readings if r.dimension == YEAR]
        # "1870s" is not the year, and "over 2000" may be none.
        is_wide = any(r.high - r.low > 1 for r in years) or any(hedge_of(q, masked) for q in around if years)
        fact = Fact(
            start, end, "number", raw, forms, units=found.units, measure=written, quantities=around, source=masked
        )
        is_decade = is_wide and any(value.dimension == YEAR and value.high - value.low > 1 for value in fact.values)
        yield fact._replace(forms=()) if is_decade else fact


_MAX_LIST: Final = 4_000
_MAX_LIST_BEFORE: Final = 240
# ": ", " - ", " (", ", namely ", ", Anna" and "." before a list, not far behind its count.
_LIST_START: Final = re.compile(
    r"[^.!?\n:;,]{0,80}?"
    r"(?::|\s(?:are|were)\s|\s[-–—]\s|, (?:namely|including|such as)|,(?= [\"“]?[A-Z])|\s\(|\.(?=\s*\n))\s*"
)
# "A, B and C", and " are the " between them and a count
_LIST_BEFORE: Final = re.compile(r"(?P<items>[^.!?\n:]{1,150}(?:,| and )[^.!?\n:]{1,80})\Z")
_LIST_VERB: Final = re.compile(r" (?:are|were|form|as)(?: (?:the|its|their|our|all))?\s\Z")
_MAX_LIST_VERB: Final = 12
# "- ", "* ", "1. ", "(2) " at the beginning of a line; "1) " in a line
_LIST_ITEM: Final = re.compile(r"(?m)^ {0,3}(?:[-*•+]|\(?\d{1,2}[.)])\s")
_INLINE_ITEM: Final = re.compile(r"(?<![\w(])\(?(?:\d{1,2}|[a-h])[.)]\s")
_LIST_END: Final = re.compile(r"[.!?)](?=\s|\Z)|\n")
_COMMA: Final = re.compile(r"[,;] (?:(?:and|or|und|et|y|e) )?")
_CONJUNCTION: Final = re.compile(r"[,;] (?:(?:and|or|und|et|y|e) )?| (?:and|or|&|und|et|y|e) ")


def _listed(text: str, start: int, end: int) -> set[int]:
    """Return how many items the list around a count may have: 2 in "two plans: A and B"."""
    # The verb is looked for first: few numbers have one, and the search for a list takes far longer.
    verb = _LIST_VERB.search(text, max(0, start - _MAX_LIST_VERB), start)
    before = verb and _LIST_BEFORE.search(text[max(0, start - _MAX_LIST_BEFORE) : verb.start()])
    if before:
        return _items(before["items"])
    opening = _LIST_START.match(text, end)
    if not opening:
        return set()
    items = text[opening.end() : opening.end() + _MAX_LIST]
    if _LIST_ITEM.match(items):
        # A list ends before the first line that is not indented and no item.
        block = re.split(r"\n\s*\n(?![ \t]|[-*•+]|\(?\d)", items, maxsplit=1)[0]
        return {len(_LIST_ITEM.findall(block))}
    close = _LIST_END.search(items)
    return _items(items[: close.start()] if close else items) | {len(_INLINE_ITEM.findall(items.partition("\n\n")[0]))}


def _items(text: str) -> set[int]:
    """Return how many items a list in a sentence may have, which may go on behind it."""
    line = " ".join(text.split())
    items = _CONJUNCTION.split(line)
    # The "and" of "A, B and C" is before its last item, and that of "Bed and Breakfast, C" is not.
    *most, last = _COMMA.split(line)
    first = _CONJUNCTION.search(line, line.find(" and "))
    counts = {len(items), len(most) + len(_CONJUNCTION.split(last))}
    return counts | {len(_CONJUNCTION.split(line[: first.end()]))} if first else counts


# --------------------------------------------------------------------------- names


def _names(text: str, sentences: Sequence[Span]) -> Iterator[Fact]:
    for span, found in zip(sentences, words_by_sentence(text, sentences), strict=True):
        capitals = [at for at, reading in enumerate(found.readings) if reading.is_capital]
        # Capitals say nothing in a heading, and where most words are in capitals.
        if len(capitals) > _MAX_IN_PROSE:
            small = sum(text[start].islower() for start in found.starts)
            if len(capitals) > small and text[span[1] - 1] not in _SENTENCE_ENDS:
                continue
            shouted = sum(text[found.starts[at] : found.ends[at]].isupper() for at in capitals)
            if shouted > max(_MAX_IN_PROSE, len(found) / 2):
                continue
        run: list[int] = []
        for at in capitals:
            # Two capitals belong to one name if no word and no full stop is between them.
            gap = text[found.ends[run[-1]] : found.starts[at]] if run else ""
            # Spaces alone may stand for markup within a name: "Carl <b>Carlsson</b>".
            if run and gap.strip(" ") and gap not in _INSIDE_NAME:
                yield from _name(text, found, run)
                run = []
            if _is_named(text, found, at):
                run.append(at)
        yield from _name(text, found, run)


def _is_named(text: str, found: Words, at: int) -> bool:
    """Return True if a word with a capital may belong to a name."""
    raw, kind = text[found.starts[at] : found.ends[at]], found.readings[at].kind
    if kind == "unspaced" or raw.lstrip("KTM") in CURRENCY_CODES or (kind != "acronym" and fold(raw) in STOP_WORDS):
        return False
    # The first word of a sentence, and a word after a colon.
    is_opening = at == 0 or ":" in text[found.ends[at - 1] : found.starts[at]]
    # "iPhone" and "NASA" are names also at the beginning of a sentence.
    return not is_opening or any(map(str.isupper, raw[1:])) or _is_opening_name(text, found, at)


def _is_opening_name(text: str, found: Words, at: int) -> bool:
    """Return True if the first word of an English sentence is surely a name: it is in no list of words."""
    raw = text[found.starts[at] : found.ends[at]]
    # Only plain words are in the lists.
    if len(raw) < _MIN_OPENING_NAME or not (raw.isascii() and raw.isalpha()):
        return False
    if raw.endswith(_WORD_ENDINGS) or found.keys[at] in english_words():
        return False
    # In another language, every word is in no list.
    others = [key for start, key in zip(found.starts, found.keys, strict=True) if text[start].islower()]
    english = sum(key in STOP_WORDS or key in english_words() for key in others)
    return len(others) >= _MIN_OTHERS and english >= _ENGLISH_SHARE * len(others)


def _name(text: str, found: Words, run: Sequence[int]) -> Iterator[Fact]:
    keys = tuple(key for key in map(found.keys.__getitem__, run) if key not in TITLES and len(key) > 1)
    if not keys:
        return
    start, end = found.starts[run[0]], found.ends[run[-1]]
    if len(run) == 1 and fold(text[start:end]) in _NO_NAMES:
        return
    alias = _ALIAS.match(text, end)
    letters = alias["letters"].casefold() if alias else ""
    yield Fact(
        start, end, "name", " ".join(text[start:end].split()), keys, alias=letters if keys[0][0] in letters else ""
    )
