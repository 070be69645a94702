"""The passages of a turn while it is read: in which order, and which copies are the same passage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rageval_hooks.turn import Passage

__all__ = ["CollectedPassages"]

Key = tuple[str | None, str]
"""Id and text of a passage."""


class CollectedPassages:
    """The passages so far, in the order in which the last step that handled them put them."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Passage] = {}
        self._keys_by_text: dict[str, Key] = {}

    @property
    def passages(self) -> list[Passage]:
        """The passages in their order."""
        return list(self._by_key.values())

    def has(self, passage: Passage) -> bool:
        """Return True if a passage, or a copy of it, is here."""
        return self._key_of(passage) in self._by_key

    def _key_of(self, passage: Passage) -> Key:
        """Return the key of a passage. A copy without an id is the same passage if its text is the same."""
        same_text = self._keys_by_text.get(passage.text)
        if same_text is not None and None in (passage.id, same_text[0]):
            return same_text
        return passage.id, passage.text

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages at the end, those that are here already excepted."""
        for passage in passages:
            key = self._key_of(passage)
            self._by_key.setdefault(key, passage)
            self._keys_by_text.setdefault(passage.text, key)

    def unknown(self, passages: Iterable[Passage]) -> list[Passage]:
        """Return those passages that are not here, each once."""
        new = CollectedPassages()
        new.add(passage for passage in passages if not self.has(passage))
        return new.passages

    def arrange(self, passages: Sequence[Passage]) -> None:
        """Put passages into the order of a list, where the first of them was. Scores of the list replace older ones.

        A reranker that returns [c, a] for [a, b, c, d] makes [c, a, b, d].
        """
        self.add(passages)
        moved = {self._key_of(passage): passage for passage in passages}
        arranged: dict[Key, Passage] = {}
        for key, known in self._by_key.items():
            if key not in moved:
                arranged[key] = known
            elif key not in arranged:
                # The first of them: all come here, and the others are skipped when the loop reaches them.
                arranged.update((key, _rescored(self._by_key[key], passage)) for key, passage in moved.items())
        self._by_key = arranged


def _rescored(known: Passage, passage: Passage) -> Passage:
    """Return a known passage with the score that a later step gave it."""
    if passage.score is None or passage.score == known.score:
        return known
    return known.model_copy(update={"score": passage.score, "metadata": {**known.metadata, **passage.metadata}})
