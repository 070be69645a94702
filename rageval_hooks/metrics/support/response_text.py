"""The text of a response as metrics read it: without what only cites, and without what claims nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, starmap

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.asides import claims_nothing, find_asides
from rageval_hooks.text.citations import citation_marks
from rageval_hooks.text.facts import Fact, find_facts
from rageval_hooks.text.limits import Span, blank
from rageval_hooks.text.refusals import declines
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import Line, blank_marks, weighed_lines
from rageval_hooks.turn import Turn


class ResponseText:
    """A response, its sentences, and the same without citation markers.

    A marker such as ``[1]`` is no part of what the response says, and neither is "according to passage 1". Left in, "1"
    is read as a number that no passage has, and models score another text.

    Args:
        turn: the turn.
    """

    def __init__(self, turn: Turn) -> None:
        # White space at the end changes no score. Offsets stay valid, and what was found in a text is found once.
        self.original = turn.response.rstrip()
        self._turn = turn

    @cached_property
    def marks(self) -> list[Span]:
        """Where the response only cites or talks about its sources, as (start, end)."""
        return self._citations + find_asides(self.original)

    @cached_property
    def _citations(self) -> list[Span]:
        return citation_marks(self.original, self._turn.passages)

    @cached_property
    def blanked(self) -> str:
        """The response with spaces for all that only cites; offsets are those of the original."""
        return blank(self.original, self.marks) if self.marks else self.original

    @cached_property
    def said(self) -> str:
        """The response without all that only cites, for models that read it whole."""
        if not self.marks:
            return self.original.strip()
        return cut(self.original, self.marks)

    @cached_property
    def said_positions(self) -> list[int]:
        """For each character of :attr:`said`, its position in the original."""
        return kept_positions(self.original, self.marks)

    @cached_property
    def has_words(self) -> bool:
        """True if there is a letter or a digit to judge."""
        return any(map(str.isalnum, self.blanked))

    @cached_property
    def sentences(self) -> list[Span]:
        """The sentences, as (start, end) in the original; a marker belongs to the sentence that it follows."""
        return sentence_spans(self.original)

    @cached_property
    def sentence_texts(self) -> list[str]:
        """The claim of each sentence; empty for one that only cites."""
        return [" ".join(self.blanked[start:end].split()) for start, end in self.sentences]

    @cached_property
    def stated(self) -> str:
        """The response with spaces for URLs and list numbers, too; offsets are those of the original."""
        return blank_marks(self.blanked)

    @cached_property
    def lines(self) -> list[Line]:
        """The words with their weights of each sentence that claims something; offsets are those of the original.

        If no sentence does, those of all: a refusal with a number of its own is judged as it is.
        """
        return weighed_lines(self.stated, self._claims or self.sentences)

    @cached_property
    def _claims(self) -> list[Span]:
        texts = ((span, self.original[slice(*span)], self.blanked[slice(*span)]) for span in self.sentences)
        return [span for span, written, said in texts if not claims_nothing(written, said)]

    @cached_property
    def claims_nothing(self) -> bool:
        """True if the response only declines, or no sentence of it claims anything."""
        return self.declines or not self._claims

    @cached_property
    def declines(self) -> bool:
        """True if the response, by its wording, only declines to answer."""
        return declines(cut(self.original, self._citations))

    @cached_property
    def facts(self) -> list[Fact]:
        """The numbers, dates, codes and names that the response states."""
        # Without marks these are the sentences of the text, and its facts may have been found before.
        return find_facts(self.blanked, self.sentences if self.marks else None)


def cut(text: str, spans: Iterable[Span]) -> str:
    """Return a text without some spans, and without the spaces that led to them: "so [1]." becomes "so."."""
    return "".join(text[start:end] for start, end in _kept_spans(text, spans)).strip()


def kept_positions(text: str, spans: Iterable[Span]) -> list[int]:
    """Return the positions of the characters that :func:`cut` keeps."""
    kept = [*chain.from_iterable(starmap(range, _kept_spans(text, spans)))]
    first, last = 0, len(kept)
    while first < last and text[kept[first]].isspace():
        first += 1
    while last > first and text[kept[last - 1]].isspace():
        last -= 1
    return kept[first:last]


def _kept_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    position = 0
    for start, end in sorted(spans):
        if start > position:
            glued = text[end : end + 1].isalnum()  # "see [1]below": the space still separates two words
            before = text[position:start]
            yield position, position + len(before if glued else before.rstrip(" \u00a0"))
        position = max(position, end)
    yield position, len(text)
