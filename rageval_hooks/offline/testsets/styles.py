"""Styles of questions, as the judge is asked to write them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rageval_hooks.errors import UnknownNameError

__all__ = ["STYLES", "resolve_styles"]

STYLES: dict[str, str] = {
    "factual": "asks for one fact that the passage states, in a plain sentence",
    "paraphrased": (
        "asks for one fact that the passage states, in other words than the passage's own: synonyms, another sentence "
        "structure; only names and numbers stay"
    ),
    "multi-part": "asks, in one sentence, for two facts from different sentences of the passage",
    "keyword": "is two to six words as one types them into a search field: no sentence, no question mark",
    "reasoning": "needs a step of thought: a comparison, a sum or a consequence of things that the passage says",
    "yes-no": "can be answered by yes or no; the reference answer says which, and why",
    "scenario": "is asked by a person who tells his situation in a sentence, and what he wants to know, in the next",
}
"""Style → what a question of it is like."""


def resolve_styles(given: Iterable[str]) -> tuple[str, ...]:
    """Return the styles that are wanted; each item may name several, with commas between them.

    Raises:
        UnknownNameError: there is no such style.
    """
    words = chain.from_iterable(item.split(",") for item in given)
    # Styles take turns, so that a repeated one would be asked for twice as often by mistake.
    names = list(dict.fromkeys(filter(None, map(_style, words))))
    for name in names:
        if name not in STYLES:
            raise UnknownNameError("style", name, STYLES)
    return tuple(names) or ("factual",)


def _style(word: str) -> str:
    return word.strip().lower().replace("_", "-")
