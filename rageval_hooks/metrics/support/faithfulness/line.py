"""The words of one sentence of a response, as small differences are looked for in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rageval_hooks.text.sequence import NOT, negations
from rageval_hooks.text.word_lists.common_words import is_common
from rageval_hooks.text.words import FUNCTION_WEIGHT, NAME_WEIGHT, Line, WeighedWord

__all__ = ["Token", "name_groups", "tokens_of"]


class Token(NamedTuple):
    """A word of a response.

    Attributes:
        key: the key by which it is compared.
        weight: its weight in groundedness.
        start: where it starts in the response.
        end: where it ends.
        is_number: True for digits.
        is_name: True for a word with a capital that is not due to the beginning of a sentence.
        is_content: True if the word is not a function word.
    """

    key: str
    weight: float
    start: int
    end: int
    is_number: bool
    is_name: bool
    is_content: bool


def tokens_of(response: str, sentence: Line) -> list[Token]:
    """Return the words of a sentence; "n't" is a separate word."""
    found = [_token(response, word, number == 0) for number, word in enumerate(sentence.words)]
    found += [_contracted_not(response, start) for start in negations(response, *sentence.span)]
    return sorted(found, key=lambda token: token.start)


def _contracted_not(response: str, position: int) -> Token:
    """Return the "not" of "didn't", which starts with its word."""
    start = position
    while start > 0 and response[start - 1].isalpha():
        start -= 1
    return Token(NOT, FUNCTION_WEIGHT, start, position + len("n't"), False, False, False)


def _token(response: str, word: WeighedWord, opens: bool) -> Token:
    is_number = response[word.start].isdigit()
    is_name = word.weight >= NAME_WEIGHT and not is_number
    if opens and word.is_content and not is_number and response[word.start].isupper():
        is_name = is_name or not is_common(word.key)
    return Token(word.key, word.weight, word.start, word.end, is_number, is_name, word.is_content)


def name_groups(line: Sequence[Token]) -> list[tuple[int, int]]:
    """Return the names of a sentence, as positions of their first and last word: "Marie Curie" is one name."""
    groups: list[tuple[int, int]] = []
    for position, token in enumerate(line):
        if not token.is_name:
            continue
        # Words that touch, or have one character between them, are one name.
        if groups and groups[-1][1] == position - 1 and token.start - line[position - 1].end <= 1:
            groups[-1] = (groups[-1][0], position)
        else:
            groups.append((position, position))
    return groups
