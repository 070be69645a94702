"""Words that are in the passages, but in another role: "A acquired B" for "B acquired A"."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rageval_hooks.metrics.support.faithfulness.context import Context
from rageval_hooks.metrics.support.faithfulness.line import Token, name_groups
from rageval_hooks.text.word_lists.opposites import opposites_of
from rageval_hooks.text.words import stem

__all__ = ["opposed", "swapped_roles", "unbound_names"]

_REACH: Final = 6
"""Words between a verb and the names that it joins."""

_NEIGHBOURS: Final = 4
_NEAR: Final = 8
"""Words of the response next to a word, and how near they must be to it in the passages."""

_MOST_ANCHOR_PLACES: Final = 60
_BY: Final = "by"

_LISTING: Final = frozenset(("and", "or", "nor", "with", "plus"))
# After these, a name is no object of the verb: "streams on B", "for the final season of B".
_OTHERWISE: Final = frozenset(
    "that which who when while but his her its their of in on at to for from into as than about over after "
    "before".split()
)

_NOT_JOINING: Final = _LISTING | _OTHERWISE

# "A met B" says the same as "B met A".
_SYMMETRIC: Final = frozenset(
    stem(word)
    for word in "meet met meets marry married marries wed play played plays face faced fought fight fights draw drew "
    "tie tied equal equals resemble resembled border borders neighbour neighbor partner partnered merge merged join "
    "joined date dated divorce divorced agree agreed collaborate collaborated work worked compete competed versus vs "
    "star starred include includes including call called name named know known "
    # A separate statement follows: "A said B left".
    "say said says add added reveal revealed think thought believe believed claim claimed state stated announce "
    "announced report reported write wrote".split()
)


def unbound_names(line: Sequence[Token], context: Context) -> float:
    """Sum over names of the passages the share of their neighbours that is nowhere near them there."""
    found = 0.0
    for position, token in enumerate(line):
        if token.is_name and token.key in context.places:
            neighbours = Neighbours.of(line, position, context)
            if neighbours.total:
                found += 1 - neighbours.share_near(token.key, context)
    return found


class Neighbours(NamedTuple):
    """The content words around a word of the response that the passages have, too.

    Attributes:
        weights: by their keys; nearer words weigh more.
        total: the sum of the weights.
    """

    weights: Mapping[str, float]
    total: float

    @classmethod
    def of(cls, line: Sequence[Token], position: int, context: Context) -> Neighbours:
        """Collect the neighbours of a word."""
        weights: dict[str, float] = {}
        for other in range(max(0, position - _NEIGHBOURS), min(len(line), position + _NEIGHBOURS + 1)):
            key = line[other].key
            if line[other].is_content and key != line[position].key and key in context.places:
                weights[key] = max(weights.get(key, 0.0), 1 / abs(other - position))
        return cls(weights, sum(weights.values()))

    def share_near(self, key: str, context: Context) -> float:
        """Return the largest share of the neighbours that is near one place of a word in the passages."""
        best = 0.0
        for place in context.places.get(key, ())[:_MOST_ANCHOR_PLACES]:
            found = sum(weight for other, weight in self.weights.items() if context.has_near(other, place, _NEAR))
            best = max(best, found)
            if best == self.total:
                break
        return best / self.total if self.total else 0.0


def opposed(line: Sequence[Token], context: Context) -> float:
    """Sum over words how much better their opposite fits to their neighbours in the passages."""
    found = 0.0
    keys = {token.key for token in line}
    for position, token in enumerate(line):
        others = (opposites_of(token.key) & context.places.keys()) - keys
        if others:
            neighbours = Neighbours.of(line, position, context)
            own = neighbours.share_near(token.key, context)
            best = max(neighbours.share_near(other, context) for other in others)
            found += max(0.0, best - own)
    return found


def _related(line: Sequence[Token]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield pairs of neighbouring names with words between them that relate them."""
    for one, other in pairwise(name_groups(line)):
        between = line[one[1] + 1 : other[0]]
        # "Paris and London", "Paris, London": the order says nothing.
        if all(token.key in _LISTING for token in between):
            continue
        if line[one[1]].key != line[other[1]].key:
            yield one, other


def swapped_roles(line: Sequence[Token], context: Context) -> Iterator[tuple[int, int]]:
    """Yield what a sentence says about two names and the passages say the other way round, as (start, end).

    The same verb must be between the same names, in the active or the passive voice, and the passages must not have
    the response's way, too.
    """
    for one, other in _related(line):
        between = line[one[1] + 1 : other[0]]
        verb = _joining_verb(between)
        names = (_keys(line, one), _keys(line, other))
        # "John Smith met Smith" has one name twice.
        if verb is None or not names[0].isdisjoint(names[1]):
            continue
        is_passive = any(token.key == _BY for token in between)
        if _says_reverse(verb, names, is_passive, context):
            yield line[one[0]].start, line[other[1]].end


def _joining_verb(between: Sequence[Token]) -> str | None:
    """Return the verb between two names; None if it may not join them, or joins them the same in both orders."""
    keys = [token.key for token in between]
    if len(keys) > _REACH or not _NOT_JOINING.isdisjoint(keys):
        return None
    # The first word is the verb; further ones belong to what it acts on.
    verb = next((token.key for token in between if token.is_content and not token.is_number), None)
    return None if verb in _SYMMETRIC else verb


def _keys(line: Sequence[Token], group: tuple[int, int]) -> frozenset[str]:
    return frozenset(token.key for token in line[group[0] : group[1] + 1])


def _says_reverse(
    verb: str, names: tuple[Collection[str], Collection[str]], is_passive: bool, context: Context
) -> bool:
    """Return True if the passages have a verb between two names, and only in the other roles.

    Args:
        verb: the verb.
        names: the name before it in the response, and the one after it.
        is_passive: whether the response has "by" after the verb.
        context: the passages.
    """
    reverse = False
    for place in context.some_places(verb):
        words = context.words_of(context.sentences[place])
        at = place - context.starts[context.sentences[place]]
        before, after = words[max(0, at - _REACH) : at], words[at + 1 : at + 1 + _REACH]
        # A name is the same if one of its words is: "Smith" and "John Smith".
        sides = [(not name.isdisjoint(before), not name.isdisjoint(after)) for name in map(frozenset, names)]
        if sides not in ([(True, False), (False, True)], [(False, True), (True, False)]):
            # Both names on both sides: nothing is certain, so nothing is reversed.
            if all(any(side) for side in sides):
                return False
            continue
        same_order = sides[0][0]
        same_voice = is_passive == (_BY in after)
        if same_order == same_voice:
            return False
        reverse = True
    return reverse
