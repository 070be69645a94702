"""Documents that tools found in earlier turns. The tools' messages are in the prompts of the turns that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rageval_hooks.runtime.selecting import without
from rageval_hooks.turn import Passage

__all__ = ["EarlierPassages"]

_MOST_KEYS = 2000
"""Calls or outputs of tools that are remembered."""


class EarlierPassages(Mapping[str, Sequence[Passage]]):
    """The passages that tools found, by what leads to them from a later prompt. The oldest are forgotten.

    Safe to use from any thread: each operation on the dictionary is atomic.
    """

    def __init__(self) -> None:
        self._passages: dict[str, tuple[Passage, ...]] = {}

    def __getitem__(self, key: str) -> Sequence[Passage]:
        """Return what a tool found."""
        return self._passages[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(list(self._passages))

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._passages)

    def add(self, key: str, passages: Sequence[Passage]) -> None:
        """Remember passages in addition to those that are known for a key."""
        if not key or not passages:
            return
        known = self._passages.pop(key, ())
        # Marks belong to the turn in which the tool ran.
        unmarked = [passage.model_copy(update={"in_prompt": None, "prompt_share": None}) for passage in passages]
        self._passages[key] = (*known, *without(unmarked, known))
        # Another thread may remove the same key, which does not matter.
        while len(self._passages) > _MOST_KEYS:
            self._passages.pop(next(iter(self)), None)
