"""Computed figures: numbers of a response that two numbers of one passage give in one step.

A passage with many numbers gives nearly every number by chance. Therefore the question or the response must say what
was computed ("rose by", "in total", "a share of") or show it ("15 - 10"). Both numbers must be in the response, next to
the result, or in those lines of the passage that are about it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, permutations
from math import isclose
from typing import Final, NamedTuple

from rageval_hooks.text.facts import Fact
from rageval_hooks.text.limits import Span
from rageval_hooks.text.numbers import is_ordinal
from rageval_hooks.text.quantities import BARE, CLOCK, SHARE, WRITTEN, YEAR, Quantity, Reading, find_quantities
from rageval_hooks.text.units import CURRENCIES
from rageval_hooks.text.words import words_of

_CUE_WORDS: Final = {
    "difference": "differ(?:s|ence)?|increas(?:es?|ed|ing)|decreas(?:es?|ed|ing)|chang(?:ed?|es)|r[io]se|rising|risen|"
    "f[ae]ll|fallen|gr[eo]w[ns]?|growth|dropp?(?:ed)?|declined?|higher|lower|older|younger|longer|shorter|larger|"
    "smaller|gap|(?:more|less|fewer)(?= [^\\d.]{0,40}than)|remain(?:s|ing)|gain(?:ed)?|reduc(?:ed|tion)|"
    "sav(?:ed|ings?)|spread|range",
    "time": "years?|aged?|old|when|after|later|before|lasted|for|hours|minutes|between",
    "sum": "total|sum|together|combined|altogether|both|overall|in all|adds? up|aggregate|plus",
    "average": "average|mean",
    "ratio": "ratio|times|share|proportion|percentage|account(?:s|ed)? for|represent(?:s|ed|ing)?|ma[dk]es? up|"
    "fraction|margin|doubled|tripled",
    "share": "of|or|means|equals",
}
_CUES: Final = {
    step: re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE) for step, words in _CUE_WORDS.items()
}
# "15 - 10", "= 5", "10 x 2"
_OPERATION: Final = re.compile(r"\d[)%]?\s?[-+−–*/×÷x]\s?[($€£]?\d|=\s?[-−(]?[$€£]?\d")
# A sentence, or the row of a table.
_LINE: Final = re.compile(r"[^\n]+?(?:[.!?](?=\s)|\n|\Z)")
RATIO: Final = "ratio"
"""The dimension of what two numbers of one dimension give."""

_MAX_LINES: Final = 3
_MAX_OPERANDS: Final = 10
_MAX_FACTS: Final = 20
_MAX_PASSAGE: Final = 50_000
_MAX_YEARS: Final = 150


class Computed(NamedTuple):
    """A number of the response that two numbers of one passage give.

    Attributes:
        fact: the number.
        operands: the two numbers, as they are written.
        step: "sum", "difference", "difference in years", "average", "ratio", "share" or "percentage change".
    """

    fact: Fact
    operands: tuple[str, str]
    step: str


class _Operand(NamedTuple):
    text: str
    value: float
    dimension: str
    column: int


class _Line(NamedTuple):
    words: frozenset[str]
    operands: list[_Operand]


def find_computed(
    missing: Sequence[Fact], response: str, sentences: Sequence[Span], query: str, passages: Sequence[str]
) -> list[Computed]:
    """Return those of some facts that were computed.

    Args:
        missing: facts that no passage has.
        response: the response.
        sentences: its sentences.
        query: the question, which may say what is computed.
        passages: the passages.
    """
    numbers = [(fact, fact.values) for fact in missing if fact.kind == "number"]
    numbers = [(fact, values) for fact, values in numbers if values][:_MAX_FACTS]
    read = [text for text in passages if len(text) <= _MAX_PASSAGE]
    found = []
    for fact, values in numbers:
        at = next((at for at, (start, end) in enumerate(sentences) if start <= fact.start < end), 0)
        start, end = sentences[at]
        first = sentences[max(0, at - 1)][0]
        asked = f"{query} {response[start:end]}"
        is_shown = _OPERATION.search(response, first, end) is not None
        steps = {step for step, cue in _CUES.items() if is_shown or cue.search(asked)}
        shown = _operands(response, (one for one in find_quantities(response) if first <= one.start < end))
        hits = (_first_result(fact, values, steps, _pairs(_lines(text), shown, asked)) for text in read if steps)
        found += [hit for hit in [next(filter(None, hits), None)] if hit]
    return found


# The passages of a few turns: several numbers of an answer ask for the same ones.
@lru_cache(maxsize=64)
def _lines(text: str) -> list[_Line]:
    """Return the lines of a passage that have numbers."""
    quantities, lines = find_quantities(text), []
    starts = [quantity.start for quantity in quantities]
    for found in _LINE.finditer(text):
        here = quantities[bisect_left(starts, found.start()) : bisect_left(starts, found.end())]
        if operands := _operands(text, here):
            words = (key for key in words_of(found.group()).content_keys if not key[0].isdigit())
            lines.append(_Line(frozenset(words), operands))
    return lines


def _operands(text: str, quantities: Iterable[Quantity]) -> list[_Operand]:
    operands: list[_Operand] = []
    for quantity in quantities:
        exact = {reading.dimension: reading for reading in reversed(quantity.readings) if reading.low == reading.high}
        if exact and quantity.kind != "indefinite":
            written = text[quantity.start : quantity.end]
            # "first", "one": every text has them.
            if is_ordinal(written) or (written.isalpha() and exact.keys() <= {WRITTEN, BARE}):
                continue
            # A unit says most, then a year. A bare number may also be an hour.
            named = min(exact, key=lambda one: (one in (WRITTEN, BARE, CLOCK, YEAR)) + (one in (WRITTEN, BARE, CLOCK)))
            dimension = BARE if named == WRITTEN else named
            operands.append(_Operand(written, exact[named].low, dimension, len(operands)))
    return operands


def _pairs(lines: Sequence[_Line], shown: Iterable[_Operand], asked: str) -> Iterator[tuple[_Operand, _Operand]]:
    """Yield the pairs of numbers of a passage that a result may come from.

    Both are in the response, in one line of the passage, or in one column of two of its lines.

    Args:
        lines: the passage.
        shown: the numbers of the response's sentence with the result, and of the one before.
        asked: the question and the response's sentence.
    """
    known = {operand.value for line in lines for operand in line.operands}
    yield from permutations([one for one in shown if one.value in known][-_MAX_OPERANDS:], 2)
    best = _best_lines(lines, asked)
    yield from chain.from_iterable(permutations(line.operands[:_MAX_OPERANDS], 2) for line in best)
    for upper, lower in permutations(best, 2):
        is_short = len(upper.operands) < 3
        yield from ((a, b) for a in upper.operands for b in lower.operands if is_short or a.column == b.column)


def _best_lines(lines: Sequence[_Line], asked: str) -> list[_Line]:
    """Return the few lines that have most of the words that are asked for; rare words count more."""
    counts = Counter(word for line in lines for word in line.words)
    wanted = frozenset(words_of(asked).content_keys)
    scores = [sum(1 / counts[word] for word in line.words & wanted) for line in lines]
    best = sorted(range(len(lines)), key=scores.__getitem__, reverse=True)[:_MAX_LINES]
    return [lines[at] for at in best if scores[at] > 0 and scores[at] >= scores[best[0]] / 3]


def _first_result(
    fact: Fact, values: Sequence[Reading], steps: Collection[str], pairs: Iterator[tuple[_Operand, _Operand]]
) -> Computed | None:
    for one, other in pairs:
        for step, value, dimension in _results(one, other, steps):
            if _states(fact, values, value, dimension):
                return Computed(fact, (one.text, other.text), step)
    return None


def _results(one: _Operand, other: _Operand, steps: Collection[str]) -> Iterator[tuple[str, float, str]]:
    """Yield what two numbers give, as (step, value, dimension)."""
    a, b = one.value, other.value
    dimensions = {one.dimension, other.dimension}
    if dimensions & {YEAR, CLOCK}:
        if "time" in steps and dimensions == {YEAR}:
            yield "difference in years", abs(a - b), YEAR
        elif "time" in steps and dimensions == {CLOCK}:
            yield "difference", abs(a - b) * 60, "time"
        return
    if "share" in steps and one.dimension == SHARE != other.dimension:
        yield "share", a * b, other.dimension
    # In a table, few of the numbers have the sign of their currency.
    units = dimensions - {BARE}
    if len(units) > 1 or not b or (len(dimensions) > 1 and not dimensions & CURRENCIES):
        return
    dimension = units.pop() if units else BARE
    if "sum" in steps:
        yield "sum", a + b, dimension
    if "average" in steps:
        yield "average", (a + b) / 2, dimension
    if "difference" in steps:
        yield (
            "difference",
            abs(a - b) * (100 if dimension == SHARE else 1),
            "points" if dimension == SHARE else dimension,
        )
    # A share of a percentage is hardly ever meant.
    if dimension == SHARE:
        return
    if "difference" in steps:
        yield "percentage change", abs(a - b) / abs(b), SHARE
    if "ratio" in steps:
        yield from (("ratio", a / b, of) for of in (SHARE, RATIO))


def _states(fact: Fact, values: Sequence[Reading], value: float, dimension: str) -> bool:
    """Return True if a number states a result, exactly or rounded to the digits that it is written with."""
    digits = re.sub(r"[^\d.]", "", fact.text).strip(".")
    decimals = len(digits.partition(".")[2])
    for reading in values:
        stated = (reading.low + reading.high) / 2
        own = BARE if reading.dimension == WRITTEN else reading.dimension
        if dimension == YEAR:
            if (
                own in (BARE, "months")
                and 2 <= value <= _MAX_YEARS
                and isclose(stated, value * reading.factor, rel_tol=1e-5)
            ):
                return True
            continue
        if dimension == RATIO:
            own = RATIO if own == BARE and not fact.units else own
        elif dimension == "points" and own == SHARE:
            own = "points"
            stated, reading = stated * 100, reading._replace(factor=1.0)
        # A number without a unit may have any, but is no percentage.
        is_comparable = own == dimension or (BARE in (own, dimension) and SHARE not in (own, dimension))
        if not value or own in (YEAR, CLOCK) or not is_comparable:
            continue
        # "24 million" where the table is in millions.
        is_plain = digits and digits.count(".") < 2 and own not in (SHARE, RATIO)
        as_written = float(digits) * reading.factor if is_plain else stated
        step = 10.0**-decimals * reading.factor
        for number in (stated, as_written):
            # One digit, or more than 5% for rounding, says too little.
            rounds = len(digits.strip("0.")) > 1 and abs(value - number) <= 0.5001 * step <= 0.05 * abs(value)
            if rounds or isclose(value, number, rel_tol=1e-6):
                return True
    return False
