"""Which part of a response cites which passages: by markers in its text, or as the framework says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rageval_hooks.runtime.narrowing import is_integer, items_or_empty, mapping_or_empty, mappings_in, text_or_empty
from rageval_hooks.text.citation_markers import CitedKey, Names, find_markers, footnotes, may_cite, without_references
from rageval_hooks.text.keys import KeyedSentence
from rageval_hooks.text.sentences import Span
from rageval_hooks.turn import Passage


def annotations_from_blocks(content: Any) -> list[dict[str, Any]]:
    """Return the citation annotations of a chat message for ``metadata["citations"]``.

    Args:
        content: the message's content blocks in LangChain's form: mappings with ``text`` and ``annotations`` (or
            ``citations`` in the form of Anthropic's API). Anything else has no annotations.

    Returns:
        The annotations, with positions in the whole text of the message.
    """
    found: list[dict[str, Any]] = []
    offset = 0
    for item in items_or_empty(content):
        # A bare string is a block of text without annotations.
        block = {"text": item} if isinstance(item, str) else mapping_or_empty(item)
        text = block.get("text")
        if not isinstance(text, str):
            continue
        found += [{**annotation, **_moved(annotation, offset, len(text))} for annotation in _annotations(block)]
        offset += len(text)
    return found


def _annotations(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the citations of a block: LangChain's annotations, and the citations of Anthropic's API."""
    # LangChain has annotations of other types, too.
    annotations = mappings_in(block.get("annotations"))
    citing = [item for item in annotations if "citation" in str(item.get("type", "citation"))]
    return citing + mappings_in(block.get("citations"))


def _moved(annotation: Mapping[str, Any], offset: int, length: int) -> dict[str, int]:
    """Return an annotation's position in the message. An annotation without a position covers its block."""
    start, end = annotation.get("start_index"), annotation.get("end_index")
    if isinstance(start, int) and isinstance(end, int):
        return {"start_index": offset + start, "end_index": offset + end}
    return {"start_index": offset, "end_index": offset + length}


@dataclass(frozen=True)
class CitedPart:
    """A sentence of the response with what it cites, without repetitions."""

    sentence: KeyedSentence
    keys: tuple[CitedKey, ...] = ()


@dataclass(frozen=True)
class Citations:
    """The parts of a response.

    Attributes:
        parts: its sentences, without lists of references.
        unplaced: citations that do not say which part they are for.
    """

    parts: tuple[CitedPart, ...]
    unplaced: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """True if any part cites anything."""
        return any(part.keys for part in self.parts)


def find_citations(
    response: str,
    sentences: Sequence[KeyedSentence],
    passages: Sequence[Passage],
    given: Any = None,
    unseen: Sequence[Passage] = (),
) -> Citations:
    """Return what each sentence of a response cites.

    In the text, ``[n]`` is the passage that begins with "Source n:", as LlamaIndex's citation engine numbers them, else
    the one with the ``id`` n, else the n-th passage from 1. Any other token in brackets is exactly a passage's
    ``id``, or the ``source`` of its metadata (file name, URL, title). A number that no passage has is a made-up
    citation. So is a token that looks like an id, an address or a file, if the passages have ids. ``[2019]``,
    ``[12:30]``, ``[10/10]``, ``[COVID-19]``, ``[sic]``, links, images and indexes in code are not citations. A marker
    at the beginning of a sentence belongs to the sentence before it in the same line, unless it is the subject, as in
    "[2] says".

    Args:
        response: the response.
        sentences: its sentences.
        passages: what may be cited.
        given: citations from a framework: a list of mappings. Each says what is cited (``passage``: its number from 1;
            or ``id``, ``source``, ``url``, ``title`` …; or ``cited_text``, which the passage has) and where
            (``start_index`` and ``end_index`` in the response, or ``text``, a piece of the response). These are the
            fields of LangChain's citation annotations. A mapping may have several under ``citations``.
        unseen: passages that the answering model did not see. Citing one by its ``id`` is a made-up citation.
    """
    names = Names(passages, unseen)
    notes, definitions = footnotes(response)
    # Footnotes and references say what was cited, but are no sentences of the answer.
    lost = _Spans([*definitions, (without_references(response), len(response) + 1)])
    body = [sentence for sentence in sentences if lost.find(sentence.span[0]) is None]
    markers = _markers(response, names, notes)
    parts = _Parts(response, body, [span for span, _ in markers])
    for span, keys in markers:
        is_lost = lost.find(span[0]) is not None
        cited_in = [] if is_lost else parts.at(span)
        for key in keys:
            parts.add(cited_in, key)
    for key, places in _given(given, response, names):
        cited_in = list(chain.from_iterable(map(parts.overlapping, places)))
        parts.add(cited_in, key)
    return Citations(parts.cited(), tuple(parts.unplaced))


def _markers(response: str, names: Names, notes: Mapping[str, str]) -> list[tuple[Span, list[CitedKey]]]:
    """Return the markers of a response that are citations, with what they cite."""
    found: list[tuple[Span, list[CitedKey]]] = []
    for marker in find_markers(response, names.is_known, numbered=names.numbered):
        keys = names.of_marker(marker, notes)
        if keys:
            found.append((marker.span, keys))
    return found


def citation_marks(response: str, passages: Sequence[Passage]) -> list[Span]:
    """Return the parts of a response that only cite: markers, footnote definitions and a closing list of references.

    They state nothing, so metrics of what the response states do not read them. The spans may overlap.

    Args:
        response: the response.
        passages: the passages that it may cite.
    """
    marks: list[Span] = []
    if may_cite(response):
        notes, marks = footnotes(response)
        marks += (span for span, _ in _markers(response, Names(passages), notes))
    marks.append((without_references(response), len(response)))
    return [span for span in marks if span[0] < span[1]]


class _Spans:
    """Disjoint spans in order, found by bisection."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = [span for span in spans if span[0] < span[1]]
        self._starts = [start for start, _ in self._spans]

    def find(self, position: int) -> int | None:
        """Return the number of the span that a position is in."""
        number = self.before(position)
        if number is None or position >= self._spans[number][1]:
            return None
        return number

    def before(self, position: int) -> int | None:
        """Return the number of the last span that begins at or before a position."""
        number = bisect_right(self._starts, position) - 1
        return number if number >= 0 else None


class _Parts:
    """The sentences of a response, and what each cites.

    Args:
        response: the response.
        sentences: its sentences.
        markers: the positions of its citation markers.
    """

    def __init__(self, response: str, sentences: Sequence[KeyedSentence], markers: Sequence[Span]) -> None:
        self._response = response
        self._sentences = sentences
        self._spans = _Spans(sentence.span for sentence in sentences)
        self._keys: list[dict[object, CitedKey]] = [{} for _ in sentences]
        self._words = words = _blanked(response, markers)
        self._subject_lines = _Spans(_subject_lines(response, words))
        # The position of the first letter or digit outside of markers; None for a sentence of markers only.
        self._begins = [_first_word(words, sentence.span) for sentence in sentences]
        # Citations that do not say which sentence they are for.
        self.unplaced: list[str] = []

    def add(self, numbers: Sequence[int], key: CitedKey) -> None:
        """Add a citation to the sentences with some numbers; without a number it is unplaced."""
        for number in numbers:
            # The first name of the same passages is kept.
            self._keys[number].setdefault(key.identity, key)
        if not numbers:
            self.unplaced.append(key.name)

    def at(self, marker: Span) -> list[int]:
        """Return which sentence a marker belongs to; empty without a sentence before it."""
        number = self._spans.before(marker[0])
        if number is None:
            return []
        is_inside = self._spans.find(marker[0]) is not None
        if is_inside and self._belongs_before(marker, number):
            number -= 1
        return [number]

    def _belongs_before(self, marker: Span, number: int) -> bool:
        """Return True if a marker leads its sentence, and the sentence before is in the same line."""
        if number == 0 or not self._leads(marker, self._begins[number]):
            return False
        end_before = self._sentences[number - 1].span[1]
        return "\n" not in self._response[end_before : marker[0]]

    def _leads(self, marker: Span, begin: int | None) -> bool:
        """Return True if a marker is before the first word of its sentence, and not its subject."""
        # A sentence of markers only has no first word.
        if begin is None:
            return True
        return marker[0] < begin and not self._is_subject(marker, begin)

    def _is_subject(self, marker: Span, begin: int) -> bool:
        """Return True if a marker is the subject of its sentence, as in "[2] says"."""
        between = self._words[marker[1] : begin]
        in_lower_case = self._words[begin].islower() and not between.strip()
        return in_lower_case and self._subject_lines.find(marker[0]) is not None

    def overlapping(self, place: Span) -> Iterable[int]:
        """Return which sentences a piece of the response touches."""
        # Before the first sentence, the search begins with it.
        first = self._spans.before(place[0]) or 0
        for number in range(first, len(self._sentences)):
            start, end = self._sentences[number].span
            if start >= place[1]:
                break
            if place[0] < end:
                yield number

    def cited(self) -> tuple[CitedPart, ...]:
        """Return the sentences that have other words than their markers."""
        return tuple(
            CitedPart(sentence, tuple(keys.values()))
            for sentence, keys, begin in zip(self._sentences, self._keys, self._begins, strict=True)
            if begin is not None
        )


def _first_word(words: str, span: Span) -> int | None:
    """Return the position of the first letter or digit of a span; None if it has none."""
    return next((at for at in range(*span) if words[at].isalnum()), None)


def _subject_lines(response: str, words: str) -> Iterator[Span]:
    """Yield the lines in which a marker before a lower-case word is a subject: with a capital, or a marker first."""
    start = 0
    for line in response.split("\n"):
        first, end = start + len(line) - len(line.lstrip()), start + len(line)
        if any(map(str.isupper, words[start:end])) or words[first:end][:1] == " ":
            yield start, end
        start = end + 1


def _blanked(text: str, spans: Iterable[Span]) -> str:
    """Return a text with spaces in place of some spans."""
    pieces, position = [], 0
    for start, end in spans:
        # Spans may overlap, and one may be inside another.
        if end > position:
            pieces += [text[position:start], " " * (end - max(start, position))]
            position = end
    return "".join([*pieces, text[position:]])


def _given(given: Any, response: str, names: Names) -> Iterator[tuple[CitedKey, list[Span]]]:
    """Yield what a framework says is cited, and where in the response. Values of unknown types are ignored."""
    for item in items_or_empty(given):
        # A bare name says what is cited, but not where.
        entry = {"citations": [item]} if isinstance(item, str) else item
        if isinstance(entry, Mapping):
            yield from _of_mapping(entry, response, names)


def _of_mapping(item: Mapping[str, Any], response: str, names: Names) -> Iterator[tuple[CitedKey, list[Span]]]:
    """Yield what one mapping says: one citation, or several for the same place under ``citations``."""
    places = _places(item, response)
    several = item.get("citations")
    if not isinstance(several, (list, tuple)):
        several = [item]
    for one in several:
        own = _places(mapping_or_empty(one), response)
        for key in _keys_of(one, names):
            yield key, own or places


def _keys_of(citation: object, names: Names) -> list[CitedKey]:
    """Return what one citation of a framework names: in a mapping, by a name, or by a number."""
    if isinstance(citation, Mapping):
        return names.of_annotation(citation)
    if isinstance(citation, str) or is_integer(citation):
        return names.of_name(str(citation))
    return []


def _places(item: Mapping[str, Any], response: str) -> list[Span]:
    """Return where in the response a citation is: by its positions, else by its text."""
    start = item.get("start_index", item.get("start"))
    end = item.get("end_index", item.get("end"))
    has_position = isinstance(start, int) and isinstance(end, int)
    if has_position and 0 <= start < end <= len(response):
        return [(start, end)]
    text = text_or_empty(item.get("text")).strip()
    if not text or text not in response:
        return []
    position = response.index(text)
    return [(position, position + len(text))]
