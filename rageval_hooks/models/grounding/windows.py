"""Cut texts to what a model reads at once: answers between sentences, passages packed into windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rageval_hooks.models.grounding.model import Source, Span
from rageval_hooks.text.sentences import sentence_spans

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Measure", "Window", "pack", "pieces"]

_SEAM = 2
"""Tokens that joining two texts may add."""


@dataclass(frozen=True, slots=True)
class Window:
    """Passages, or parts of them, that the model reads together.

    Attributes:
        sources: the texts, each with the position of its passage.
    """

    sources: tuple[Source, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts alone."""
        return tuple(text for _, text in self.sources)

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of its passages, each once."""
        return tuple(dict.fromkeys(position for position, _ in self.sources))


class Measure:
    """Counts tokens and finds where they begin.

    Args:
        tokenizer: the model's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def cut(self, text: str, size: int) -> list[Span]:
        """Cut a text into parts of at most ``size`` tokens, at the starts of words where a word is short enough."""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        parts: list[Span] = []
        start = token = 0
        while len(offsets) - token > size:
            end_token = _before_word(text, offsets, token, token + size)
            end = offsets[end_token][0]
            parts.append((start, end))
            start, token = end, end_token
        parts.append((start, len(text)))
        return parts


def _before_word(text: str, offsets: Sequence[Span], first: int, last: int) -> int:
    """Return the last token up to ``last`` that begins a word; ``last`` itself if the whole part is one word."""
    for token in range(last, first, -1):
        start = offsets[token][0]
        begins_word = text[start].isspace() or text[start - 1 : start].isspace()
        if begins_word and start > offsets[first][0]:
            return token
    return last


def pieces(text: str, sentences: Sequence[Span], size: int, measure: Measure) -> list[Span]:
    """Return the sentences of a text, with those of more than ``size`` tokens cut into several pieces."""
    found: list[Span] = []
    for start, end in sentences:
        sentence = text[start:end]
        # A token has at least one character, so most sentences need not be tokenized.
        if len(sentence) <= size or measure.count(sentence) <= size:
            found.append((start, end))
            continue
        found += [(start + first, start + last) for first, last in measure.cut(sentence, size)]
    return found


def pack(sources: Sequence[Source], size: int, measure: Measure, overhead: int = _SEAM) -> list[Window]:
    """Pack passages into windows of at most ``size`` tokens, in their order.

    A passage is cut only if it is longer than a window, between its sentences where that is possible.

    Args:
        sources: the passages.
        size: the most tokens of a window.
        measure: counts tokens.
        overhead: tokens that the template adds to each text.
    """
    windows: list[list[Source]] = [[]]
    room = size
    for position, text, tokens in _units(sources, size - overhead, measure):
        needed = tokens + overhead
        if needed > room and windows[-1]:
            windows.append([])
            room = size
        windows[-1].append((position, text))
        room -= needed
    return [Window(tuple(window)) for window in windows if window]


def _units(sources: Sequence[Source], size: int, measure: Measure) -> Iterator[tuple[int, str, int]]:
    """Yield each passage, or its parts, with the number of tokens."""
    for position, text in sources:
        tokens = measure.count(text)
        if tokens <= size:
            yield position, text, tokens
            continue
        yield from ((position, part, measure.count(part)) for part in _parts(text, size, measure.count, measure))


def _parts(text: str, size: int, count: Callable[[str], int], measure: Measure) -> Iterator[str]:
    """Cut a long passage: as many whole sentences as fit, one part after the other."""
    begin = end = used = 0
    for start, stop in pieces(text, sentence_spans(text), size, measure):
        tokens = count(text[start:stop]) + _SEAM
        if used and used + tokens > size:
            yield text[begin:end].strip()
            begin, used = start, 0
        end = stop
        used += tokens
    if used:
        yield text[begin:end].strip()
