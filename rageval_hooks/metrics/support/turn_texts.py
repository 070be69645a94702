"""The texts of a turn as metrics read them: its response, and the passages that the answering model saw or not."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, starmap
from typing import Final

from rageval_hooks.metrics.support.grounding import groundedness
from rageval_hooks.metrics.support.question_fit import PassageSentence, read_sentences
from rageval_hooks.models.cache import MemoryCache
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.score import Target
from rageval_hooks.text.citations import SOURCE_FIELDS, citation_marks
from rageval_hooks.text.fact_index import (
    FactIndex,
    PassageIndex,
    index_facts,
    index_passage,
    merge_indexes,
    unsupported_facts,
)
from rageval_hooks.text.facts import Fact, find_facts
from rageval_hooks.text.formatting import shorten
from rageval_hooks.text.limits import Span, blank
from rageval_hooks.text.reading import Reading, claims_nothing, find_own_dates, read_answer
from rageval_hooks.text.refusals import asks_back, declines
from rageval_hooks.text.words import Line, blank_marks, weighted_lines
from rageval_hooks.turn import Passage, Turn

_SUPPORTED: Final = 0.75
"""Share of a sentence's words that an unseen passage must have. By words, so that it costs no model."""

# In ids that a store has made: "3f2b8c1e-5d60-4b7e-…" or "01ARZ3NDEKTSV4RRFFQ69G5FAV".
_GENERATED_ID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|(?=[^\W_]{0,15}\d)[^\W_]{16}")
_LAST_PART: Final = re.compile(r"([^/\\]*[^/\\\s])[/\\\s]*\Z")

# What passages say is kept across turns: a knowledge base has few passages that are retrieved often.
_indexes: MemoryCache[PassageIndex] = MemoryCache(32 * 2**20)
_sentences: MemoryCache[list[PassageSentence]] = MemoryCache(32 * 2**20)


def cached_index(text: str) -> PassageIndex:
    """Return the words and facts of a passage; from the process's cache if an earlier turn had the passage."""
    found = _indexes.get(text)
    if found is None:
        found = index_passage(text)
        _indexes.put(text, found, found.size + sys.getsizeof(text))
    return found


def cached_sentences(text: str) -> list[PassageSentence]:
    """Return the sentences of a passage; from the process's cache if an earlier turn had the passage."""
    found = _sentences.get(text)
    if found is None:
        found = read_sentences(text)
        size = 500 + sum(800 + 100 * len(sentence.about) for sentence in found)
        _sentences.put(text, found, size + sys.getsizeof(text))
    return found


class TurnTexts:
    """A turn, its response, and its passages by their positions in ``turn.passages``.

    Args:
        turn: the turn.

    Attributes:
        turn: the turn.
        response: the text of its response.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.response = ResponseText(turn)

    @cached_property
    def prompt_positions(self) -> list[int]:
        """Positions of the passages that the answering model saw."""
        return [position for position, passage in enumerate(self.turn.passages) if passage.seen_by_model]

    @cached_property
    def unseen_positions(self) -> list[int]:
        """Positions of the passages that were retrieved, but not in the prompt."""
        return [position for position, passage in enumerate(self.turn.passages) if not passage.seen_by_model]

    @cached_property
    def prompt_passages(self) -> Sequence[Passage]:
        """The passages that the answering model saw."""
        return self.turn.prompt_passages

    @cached_property
    def unseen_passages(self) -> Sequence[Passage]:
        """The passages that were retrieved, but not in the prompt."""
        return [self.turn.passages[position] for position in self.unseen_positions]

    @cached_property
    def passage_indexes(self) -> list[PassageIndex]:
        """The words and facts of every passage."""
        return [cached_index(passage.text) for passage in self.turn.passages]

    @cached_property
    def query_facts(self) -> FactIndex:
        """The facts that the query states."""
        return index_facts(self.turn.query)

    @cached_property
    def claims_nothing(self) -> bool:
        """True if the response declines, or only introduces and closes, without a number or name of its own."""
        # A question such as "Do you mean the edition of 2019?" states none of its facts.
        if not self.response.claims_nothing or not self.response.facts or self.response.asks_back:
            return self.response.claims_nothing
        # "Sorry, the documents do not mention the pier" repeats a word of the question, and claims nothing.
        known = merge_indexes([self.query_facts, *(index.facts for index in self.passage_indexes)])
        return not unsupported_facts(self.response.facts, known)

    def passage_name(self, position: int) -> str:
        """Return how an explanation names a passage: by an id that people read, else by its number and its source."""
        passage = self.turn.passages[position]
        if passage.id and not _GENERATED_ID.search(passage.id):
            return passage.id
        texts = (passage.metadata.get(field) for field in SOURCE_FIELDS)
        # "https://harbour.example/docs/pier.md" and "C:\\docs\\pier.md" become "pier.md".
        names = (_LAST_PART.search(text) for text in texts if isinstance(text, str))
        source = next((name[1] for name in names if name is not None), None)
        return f"number {position + 1}" if source is None else f"{position + 1} ({shorten(source)})"

    def target(self, position: int) -> Target:
        """Return the target of a score that is about one passage."""
        return Target(kind="passage", index=position, id=self.turn.passages[position].id)

    @cached_property
    def unseen_support(self) -> dict[Span, tuple[str, ...]]:
        """By sentence of the response, the name of a passage that supports it by its words and was not in the prompt.

        Most turns have no unseen passage, and then it is empty.
        """
        if not self.unseen_positions:
            return {}
        indexes = [cached_index(passage.text) for passage in self.unseen_passages]
        # By words only: embedding passages that do not count would make every such turn slower.
        found = groundedness(self.response.blanked, self.response.lines, indexes)
        return {
            sentence.span: (self.passage_name(self.unseen_positions[sentence.passage]),)
            for sentence in found.sentences
            if sentence.score >= _SUPPORTED
        }


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
    def reading(self) -> Reading:
        """The response as it is read: as prose, Markdown or JSON."""
        return read_answer(self.original)

    @cached_property
    def marks(self) -> list[Span]:
        """Where the response only cites, has markup or talks about its sources, as (start, end)."""
        found = self._citations + self.reading.silent
        dates = find_own_dates(self.original)
        if dates and not any(" as of " in passage.text.lower() for passage in self._turn.passages):
            found += dates
        return found

    @cached_property
    def _citations(self) -> list[Span]:
        return citation_marks(self.original, self._turn.passages)

    @cached_property
    def blanked(self) -> str:
        """The response with spaces for all that only cites; offsets are those of the original."""
        return blank(self.reading.text, self.marks)

    @cached_property
    def said(self) -> str:
        """The response without all that only cites, for models that read it whole."""
        return _cut(self.original, self.marks)

    @cached_property
    def said_positions(self) -> list[int]:
        """For each character of :attr:`said`, its position in the original."""
        return _kept_positions(self.original, self.marks)

    @cached_property
    def has_words(self) -> bool:
        """True if there is a letter or a digit to judge."""
        return any(map(str.isalnum, self.blanked))

    @cached_property
    def sentences(self) -> list[Span]:
        """The sentences, as (start, end) in the original; a marker belongs to the sentence that it follows."""
        return self.reading.sentences

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
        return weighted_lines(self.stated, self._claims or self.sentences)

    @cached_property
    def _claims(self) -> list[Span]:
        written, said = self.original, self.blanked
        return [(a, b) for a, b in self.sentences if not claims_nothing(written[a:b], said[a:b])]

    @cached_property
    def claims_nothing(self) -> bool:
        """True if the response only declines, or no sentence of it claims anything."""
        return self.declines or self.asks_back or not self._claims

    @cached_property
    def declines(self) -> bool:
        """True if the response, by its wording, only declines to answer."""
        return declines(self._without_citations)

    @cached_property
    def asks_back(self) -> bool:
        """True if the response asks the user what is meant, instead of answering."""
        return not self.declines and asks_back(self._without_citations)

    @cached_property
    def _without_citations(self) -> str:
        # A refusal in JSON is one, too.
        found = self.reading.silent if self.original.lstrip()[:1] in ("{", "[", "`", "<") else []
        return _cut(self.reading.text, self._citations + found)

    @cached_property
    def facts(self) -> list[Fact]:
        """The numbers, dates, codes and names that the response states."""
        # Without marks these are the sentences of the text, and its facts may have been found before.
        return find_facts(self.blanked, self.sentences if self.marks else None)


def _cut(text: str, spans: Iterable[Span]) -> str:
    """Return a text without some spans, and without the spaces that led to them: "so [1]." becomes "so."."""
    return "".join(text[start:end] for start, end in _kept_spans(text, spans)).strip()


def _kept_positions(text: str, spans: Iterable[Span]) -> list[int]:
    """Return the positions of the characters that :func:`_cut` keeps."""
    kept = [*chain.from_iterable(starmap(range, _kept_spans(text, spans)))]
    visible = [place for place, position in enumerate(kept) if not text[position].isspace()]
    return kept[visible[0] : visible[-1] + 1] if visible else []


def _kept_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    position = 0
    for start, end in sorted(spans):
        if start > position:
            glued = text[end : end + 1].isalnum()  # "see [1]below": the space still separates two words
            before = text[position:start]
            yield (position, position + len(before if glued else before.rstrip(" \u00a0")))
        position = max(position, end)
    yield position, len(text)
