"""Holds a streamed answer back, sentence by sentence, until it is checked."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any, Final

from rageval_hooks.guard.answers import answer_in, bare_chunk, split_chunk
from rageval_hooks.guard.options import GuardOptions
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans

__all__ = ["HeldStream"]

_ENDS: Final = frozenset(".!?…。！？｡．।॥؟۔։\n\r")
"""Characters without which no sentence ends."""


class HeldStream:
    """The part of a streamed answer that is not checked yet.

    Chunks wait here in their order. A chunk with the end of one sentence and the beginning of the next is split if it
    is a string or a message with a plain text; another one waits for the next sentence too.

    Args:
        options: the options of the guard, for the keys of mappings.
    """

    def __init__(self, options: GuardOptions) -> None:
        self._keys = options.answer_keys
        self._chunks: deque[tuple[Any, str]] = deque()
        self._waiting = ""
        self.released = ""
        self._known_ends = False

    def add(self, chunk: Any) -> None:
        """Add a chunk at the end of the stream."""
        text = answer_in(chunk, self._keys) or ""
        self._chunks.append((chunk, text))
        self._waiting += text
        self._known_ends = self._known_ends or not _ENDS.isdisjoint(text)

    def unheld(self) -> list[Any]:
        """Take out the chunks at the front that have no text, such as those with the documents of a chain."""
        free = []
        while self._chunks and not self._chunks[0][1]:
            free.append(self._chunks.popleft()[0])
        return free

    def next_end(self, *, final: bool = False) -> int | None:
        """Return how many characters of the held text the next part to be checked has; None if none is complete.

        A sentence is complete when the next one has begun. A line that only leads to what follows is no part by itself:
        The passages do not support "The handbook says:" by itself.

        Args:
            final: True if the stream has ended, so that everything is complete.
        """
        whole = self.whole_end()
        if whole is None:
            return None
        # Most chunks are in the middle of a sentence: splitting the text for each would take quadratic time.
        if not final and not self._known_ends:
            return None
        spans = sentence_spans(self._waiting)
        for (start, end), following in pairwise(spans):
            if not _leads_on(self._waiting[start:end]):
                return following[0]
        return whole if final else None

    def whole_end(self) -> int | None:
        """Return how many characters the held text has; None if it is blank."""
        return len(self._waiting) if self._waiting.strip() else None

    def part(self, end: int) -> str:
        """Return the next part, which is what is checked."""
        return self._waiting[:end].strip()

    def release(self, end: int) -> list[Any]:
        """Take out the chunks, or parts of them, that have the next part of the text."""
        out = []
        left = end
        while self._chunks:
            chunk, text = self._chunks[0]
            if len(text) > left:
                before, after = split_chunk(chunk, self._keys, left)
                out += before
                self._chunks[0] = (after, text[left:])
                break
            out.append(self._chunks.popleft()[0])
            left -= len(text)
        self.released += self._waiting[:end]
        self._waiting = self._waiting[end:]
        self._known_ends = not _ENDS.isdisjoint(self._waiting)
        return out

    def ending(self, text: str) -> Any:
        """Return the chunk that ends a blocked stream, in the form of the chunks that are held back."""
        # After sentences that were shown, the fallback is a separate paragraph.
        text = f"\n\n{text}" if self.released else text
        chunk = next(chunk for chunk, held in self._chunks if held)
        return bare_chunk(chunk, self._keys, text)

    def rest(self) -> list[Any]:
        """Take out all chunks, whether or not their text is checked."""
        left = [chunk for chunk, _ in self._chunks]
        self._chunks.clear()
        return left


def _leads_on(sentence: str) -> bool:
    """Return True if a sentence only announces the next: "Here is what I found:"."""
    return sentence.rstrip(" *_").endswith(":") and not find_facts(sentence, [(0, len(sentence))])
