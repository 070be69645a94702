"""Small edits that make a supported answer wrong: a name, a number, a role, a negation, or the opposite of a word.

Each edited answer gets the label 0, next to the answer itself with the label 1. The names come from the row's own
passages or from those of other rows, so that half of the wrong names and numbers do occur in the passages.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["KINDS", "Source", "edited"]

# "Marie Curie", "Paris": one to three words with capitals that do not begin the text.
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,15}(?: [A-Z][a-z]{2,15}){0,2}")
# "12", "1,250", "3.5"
_NUMBER = re.compile(r"(?<![\w.,-])\d{1,4}(?:,\d{3})?(?:\.\d+)?(?![\w-]|[.,]\d)")
_SPELLED = "two three four five six seven eight nine ten".split()
_AUXILIARY = re.compile(
    r"(?<![^\W_])(is|are|was|were|has|have|had|can|could|will|would|does|do|did)(?![^\W_])(?! not|n't)"
)
_NEGATED = re.compile(r"(?<=[a-z]) not(?= [a-z])|(?<=[a-z])n't(?![a-z])")

_PAIRS = """
increase decrease, increased decreased, increasing decreasing, rose fell, rise fall, grew shrank,
higher lower, more fewer, most least, many few, before after, first last, early late, earlier later,
always never, often rarely, all none, with without, large small, larger smaller, big small, long short,
old new, older younger, high low, good bad, best worst, positive negative, strong weak, won lost,
win lose, accepted rejected, approved rejected, allowed prohibited, opened closed, began ended,
started stopped, bought sold, born buried, north south, northern southern, east west, eastern western,
male female, men women, his her, he she, father mother, son daughter, brother sister, husband wife,
public private, internal external, successful unsuccessful, improved worsened, improve worsen, hot cold,
warm cold, upper lower, major minor, right left, common rare, popular unpopular, possible impossible,
legal illegal, safe dangerous, inside outside, above below, mother father, summer winter,
morning evening, day night, black white, rich poor, full empty, same different, easy hard, wide narrow,
deep shallow, modern ancient, rural urban, domestic foreign, local national, formal informal,
thick thin, light heavy, loud quiet, sweet bitter, hard soft, dry wet, senior junior, solid liquid,
include exclude, includes excludes
"""
_OPPOSITE: dict[str, str] = {}
for _pair in _PAIRS.replace("\n", " ").strip().split(", "):
    _one, _other = _pair.split(" ")
    _OPPOSITE.setdefault(_one, _other)
    _OPPOSITE.setdefault(_other, _one)
_OPPOSED = re.compile(rf"(?<![^\W_])(?:{'|'.join(_OPPOSITE)})(?![^\W_])", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """Where other names and numbers come from.

    Attributes:
        passages: the passages of the answer.
        others: passages of other answers.
        dice: the source of chance.
    """

    passages: Sequence[str]
    others: Sequence[str]
    dice: random.Random


def edited(response: str, source: Source) -> Iterator[tuple[str, str]]:
    """Yield pairs of a kind of edit and the edited response: each kind at most once.

    Args:
        response: an answer that the passages support.
        source: where other names and numbers come from.
    """
    for kind, edit in KINDS.items():
        changed = edit(response, source)
        if changed is not None and changed != response:
            yield kind, changed


def _replaced(text: str, found: re.Match[str], by: str) -> str:
    return text[: found.start()] + by + text[found.end() :]


def _pick(pattern: re.Pattern[str], text: str, dice: random.Random) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return dice.choice(found) if found else None


def _name(response: str, source: Source) -> str | None:
    found = _pick(_NAME, response, source.dice)
    if found is None:
        return None
    texts = source.dice.choice([source.passages, source.others])
    names = [name for text in texts for name in _NAME.findall(text) if name not in response]
    return _replaced(response, found, source.dice.choice(names)) if names else None


def _number(response: str, source: Source) -> str | None:
    found = _pick(_NUMBER, response, source.dice)
    if found is None:
        spelled = _pick(re.compile(rf"\b(?:{'|'.join(_SPELLED)})\b"), response, source.dice)
        if spelled is None:
            return None
        return _replaced(response, spelled, source.dice.choice([word for word in _SPELLED if word != spelled.group()]))
    near = [number for text in source.passages for number in _NUMBER.findall(text) if number not in response]
    if near and source.dice.random() < 0.5:
        return _replaced(response, found, source.dice.choice(near))
    digits = list(found.group())
    place = source.dice.choice([place for place, digit in enumerate(digits) if digit.isdigit()])
    digits[place] = source.dice.choice([digit for digit in "123456789" if digit != digits[place]])
    return _replaced(response, found, "".join(digits))


def _role(response: str, source: Source) -> str | None:
    pairs = [(one, two) for one, two in combinations(_NAME.finditer(response), 2) if one.group() != two.group()]
    if not pairs:
        return None
    one, two = source.dice.choice(pairs)
    between = response[one.end() : two.start()]
    # "Paris and London" says the same the other way round.
    if re.fullmatch(r",? (?:and |or |& )?", between):
        return None
    return response[: one.start()] + two.group() + between + one.group() + response[two.end() :]


def _negation(response: str, source: Source) -> str | None:
    if found := _pick(_NEGATED, response, source.dice):
        return _replaced(response, found, "")
    found = _pick(_AUXILIARY, response, source.dice)
    return _replaced(response, found, found.group() + " not") if found else None


def _opposite(response: str, source: Source) -> str | None:
    found = _pick(_OPPOSED, response, source.dice)
    if found is None:
        return None
    word = found.group()
    other = _OPPOSITE[word.casefold()]
    return _replaced(response, found, other.capitalize() if word[0].isupper() else other)


Edit = Callable[[str, Source], "str | None"]
KINDS: dict[str, Edit] = {
    "name": _name,
    "number": _number,
    "role": _role,
    "negation": _negation,
    "opposite": _opposite,
}
