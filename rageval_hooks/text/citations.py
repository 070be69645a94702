"""Which part of a response cites which passages: by markers in its text, or as the framework says."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rageval_hooks.text.keys import KeyedSentence
from rageval_hooks.text.markers import Marker, find_markers, footnotes, without_references
from rageval_hooks.text.sentences import Span
from rageval_hooks.turn import Passage

__all__ = ["Citations", "CitedKey", "CitedPart", "citation_marks", "find_citations"]

_NUMBER: Final = re.compile(
    r"(?:(?:sources?|docs?|documents?|passages?|refs?|references?|contexts?)(?: ?[:#] ?| ))?(\d{1,3})", re.IGNORECASE
)
_RANGE: Final = re.compile(r"(\d{1,3})\s?[-–—]\s?(\d{1,3})")
_LONGEST_RANGE: Final = 50
_ID_LIKE: Final = re.compile(r"(?=.*(?:[\d_]|://|\w\.[a-z]{2,5}$))(?=.*[^\W_])[^\s\[\]]{2,}")
_WORDS_ID: Final = re.compile(r"(?=.*[./:#-])(?=.*[^\W_])[^\s\[\]]{2,}")  # where ids have no digits: pier-history
_ADDRESS: Final = re.compile(r"://|\A[^@]*\w\.[a-z]{2,5}\Z")
_PREFIX: Final = re.compile(r"([^\W\d_]+)[^\sa-zA-Z]\S*")
_ID_WORDS: Final = frozenset("doc document source src passage ref reference context chunk snippet node file".split())
_LONG_NAME: Final = 8
_TIME: Final = re.compile(r"\d{1,2}(?::\d{2}){1,2}")
_NUMBERED_SOURCE: Final = re.compile(r"Source (\d{1,3}):\s")  # LlamaIndex's citation engine puts it before each node
_SOURCES: Final = ("source", "file_name", "file_path", "url", "title", "doc_id", "document_id")
_NAMES: Final = ("id", "source", "source_id", "document_id", "doc_id", "url", "title", "document_title", "file_name")


@dataclass(frozen=True)
class CitedKey:
    """What a part cites.

    Attributes:
        name: as it is written.
        passages: positions of the passages that it means: several where a document was cut into several; none for a
            made-up one.
    """

    name: str
    passages: tuple[int, ...] = ()

    @property
    def identity(self) -> object:
        """The same for two names of the same passages."""
        return self.passages or self.name


@dataclass(frozen=True)
class CitedPart:
    """A sentence of the response, with what it cites: each thing once."""

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
        """Whether any part cites anything."""
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
    the one with the ``id`` n, else the n-th passage from 1. Any other token in brackets is a passage's ``id``, or its
    metadata's ``source`` (file name, URL, title), exactly. A number that no passage has is a made-up citation, and so
    is a token that looks like an id where the passages have ids: like theirs, like an address or a file. ``[2019]``,
    ``[12:30]``, ``[10/10]``, ``[COVID-19]``, ``[sic]``, links, images and indexes in code are no citations. A marker at
    the beginning of a sentence belongs to the sentence before it in the same line, unless it is the subject, as in
    "[2] says".

    Args:
        response: the response.
        sentences: its sentences.
        passages: what may be cited.
        given: citations from a framework: a list of mappings, each with what is cited (``passage``: its number from 1;
            or ``id``, ``source``, ``url``, ``title`` …; or ``cited_text``, which the passage holds) and with where:
            ``start_index`` and ``end_index`` in the response, or ``text``, a piece of the response. These are the
            fields of LangChain's citation annotations. A mapping may hold several under ``citations``.
        unseen: passages that the answering model did not see: to cite one by its ``id`` is a made-up citation.
    """
    names = _Names(passages, unseen)
    notes, definitions = footnotes(response)
    lost = _Spans([*definitions, (without_references(response), len(response) + 1)])
    body = [sentence for sentence in sentences if lost.find(sentence.span[0]) is None]
    markers = [
        (marker.span, keys)
        for marker in find_markers(response, names.is_known, numbered=names.numbered)
        if (keys := names.of_marker(marker, notes))
    ]
    parts = _Parts(response, body, [span for span, _ in markers])
    unplaced: list[str] = []
    for span, keys in markers:
        part = parts.at(span) if lost.find(span[0]) is None else None
        for key in keys:
            if part is None:
                unplaced.append(key.name)
            else:
                parts.add(part, key)
    for key, places in _given(given, response, names):
        numbers = [number for place in places for number in parts.overlapping(place)]
        for number in numbers:
            parts.add(number, key)
        if not numbers:
            unplaced.append(key.name)
    return Citations(parts.cited(), tuple(unplaced))


def citation_marks(response: str, passages: Sequence[Passage]) -> list[Span]:
    """Return the parts of a response that only cite: markers, footnote definitions and a closing list of references.

    They state nothing, so metrics of what the response states do not read them. The spans may overlap.

    Args:
        response: the response.
        passages: the passages that it may cite.
    """
    names = _Names(passages)
    notes, definitions = footnotes(response)
    found = find_markers(response, names.is_known, numbered=names.numbered)
    marks = [marker.span for marker in found if names.of_marker(marker, notes)]
    references = (without_references(response), len(response))
    return [span for span in (*marks, *definitions, references) if span[0] < span[1]]


class _Spans:
    """Spans that do not overlap, in their order; found by bisection."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = [span for span in spans if span[0] < span[1]]
        self._starts = [start for start, _ in self._spans]

    def find(self, position: int) -> int | None:
        """Return the number of the span that a position is in."""
        number = self.before(position)
        return number if number is not None and position < self._spans[number][1] else None

    def before(self, position: int) -> int | None:
        """Return the number of the last span that begins at or before a position."""
        number = bisect_right(self._starts, position) - 1
        return number if number >= 0 else None


class _Parts:
    """The sentences of a response, and what each cites.

    Args:
        response: the response.
        sentences: its sentences.
        markers: where its citation markers stand.
    """

    def __init__(self, response: str, sentences: Sequence[KeyedSentence], markers: Sequence[Span]) -> None:
        self._response = response
        self._sentences = sentences
        self._spans = _Spans(sentence.span for sentence in sentences)
        self._keys: list[dict[object, CitedKey]] = [{} for _ in sentences]
        self._words = words = _blanked(response, markers)
        self._subject_lines = _Spans(_subject_lines(response, words))
        # Where the first letter or digit of each stands that is no marker's; None where there is none.
        self._begins = [
            next((at for at in range(*sentence.span) if words[at].isalnum()), None) for sentence in sentences
        ]

    def add(self, number: int, key: CitedKey) -> None:
        self._keys[number].setdefault(key.identity, key)

    def at(self, marker: Span) -> int | None:
        """Return which sentence a marker belongs to: the one before, where it leads a sentence in the same line."""
        number = self._spans.before(marker[0])
        if number is None or self._spans.find(marker[0]) is None:
            return number
        begin = self._begins[number]
        leading = begin is None or (marker[0] < begin and not self._is_subject(marker, begin))
        if leading and number and "\n" not in self._response[self._sentences[number - 1].span[1] : marker[0]]:
            return number - 1
        return number

    def _is_subject(self, marker: Span, begin: int) -> bool:
        """Whether a marker is what its sentence is about, as in "[2] says", and belongs to no other one."""
        between = self._words[marker[1] : begin]
        in_lower_case = self._words[begin].islower() and not between.strip()
        return in_lower_case and self._subject_lines.find(marker[0]) is not None

    def overlapping(self, place: Span) -> Iterable[int]:
        """Return which sentences a piece of the response touches."""
        first = self._spans.before(place[0])
        for number in range(first or 0, len(self._sentences)):
            start, end = self._sentences[number].span
            if start >= place[1]:
                break
            if place[0] < end:
                yield number

    def cited(self) -> tuple[CitedPart, ...]:
        """Return those sentences that are more than their markers."""
        return tuple(
            CitedPart(sentence, tuple(keys.values()))
            for sentence, keys, begin in zip(self._sentences, self._keys, self._begins, strict=True)
            if begin is not None
        )


def _subject_lines(response: str, words: str) -> Iterator[Span]:
    """Yield the lines in which a marker before a word in lower case is a subject: with capitals, or a marker first."""
    start = 0
    for line in response.split("\n"):
        first, end = start + len(line) - len(line.lstrip()), start + len(line)
        if any(map(str.isupper, words[start:end])) or words[first:end][:1] == " ":
            yield start, end
        start = end + 1


def _blanked(text: str, spans: Iterable[Span]) -> str:
    """Return a text with spaces instead of some pieces of it."""
    pieces, position = [], 0
    for start, end in spans:
        if end > position:
            pieces += [text[position:start], " " * (end - max(start, position))]
            position = end
    return "".join([*pieces, text[position:]])


class _Shapes:
    """What the names of passages look like.

    Args:
        ids: their ids.
        names: these, and their sources.
    """

    def __init__(self, ids: Iterable[str], names: Iterable[str]) -> None:
        known = list(names)
        self._prefixes = _ID_WORDS.union(filter(None, map(_prefix, known)))
        self._outlines = {outline for name in known for outline in _outlines(name)}
        self._of_words = any(_WORDS_ID.fullmatch(name) and not _ID_LIKE.fullmatch(name) for name in ids)

    def have(self, token: str) -> bool:
        """Whether a token looks like the name of a passage, so that it is a made-up one."""
        if not _ID_LIKE.fullmatch(token):
            return self._of_words and _WORDS_ID.fullmatch(token) is not None
        if _ADDRESS.search(token) or "_" in token:
            return True
        return _prefix(token) in self._prefixes or not self._outlines.isdisjoint(_outlines(token))


def _prefix(name: str) -> str:
    """The letters that a name begins with: "doc" of "doc-12"; none of a title."""
    found = _PREFIX.fullmatch(name)
    return found[1].casefold() if found else ""


def _outlines(name: str) -> Iterable[str]:
    """A name with other letters and digits: "aaa-9" of "doc-12"; of long names that mix both, "xxxxxxxx"."""
    if any(map(str.isdigit, name)):
        yield re.sub(r"\d+", "9", re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", name)))
    if len(name) >= _LONG_NAME and any(map(str.isalpha, name)) and any(map(str.isdigit, name)):
        yield re.sub(r"[^\W_]", "x", name)


class _Names:
    """What tokens mean, for the passages of a turn."""

    def __init__(self, passages: Sequence[Passage], unseen: Sequence[Passage] = ()) -> None:
        self._passages = passages
        self._named: dict[str, list[int]] = {}
        self._numbers: dict[int, int] = {}
        for index, passage in enumerate(passages):
            if passage.id:
                self._named.setdefault(passage.id, []).append(index)
            if match := _NUMBERED_SOURCE.match(passage.text):
                self._numbers.setdefault(int(match[1]), index)
        ids = list(self._named)
        for field_name in _SOURCES:
            for index, passage in enumerate(passages):
                value = passage.metadata.get(field_name)
                if isinstance(value, str) and value and index not in self._named.setdefault(value, []):
                    self._named[value].append(index)
        self._shapes = _Shapes(ids, self._named) if ids else None
        for passage in unseen:
            if passage.id:
                # A known name without a passage: it is recognised as a citation, and as a made-up one.
                self._named.setdefault(passage.id, [])
        self.numbered = bool(self._numbers)

    def is_known(self, token: str) -> bool:
        return token in self._named

    def of_marker(self, marker: Marker, notes: Mapping[str, str]) -> list[CitedKey]:
        """Return what a marker cites; nothing if it is none."""
        if marker.kind == "footnote":
            [label] = marker.tokens
            return [self._of_footnote(label, notes)]
        if marker.kind == "raised":
            return [key for token in marker.tokens for key in self._of_raised(token)]
        found: list[CitedKey] = []
        for token in marker.tokens:
            if marker.link and not token.isdigit():
                continue
            found += self._of_token(token)
        return found

    def of_annotation(self, annotation: Mapping[str, Any]) -> CitedKey | None:
        """Return what a framework's annotation cites; None if it does not say."""
        number = annotation.get("passage")
        if isinstance(number, int) and not isinstance(number, bool):
            return self._at_place(number, str(number))
        extras = annotation.get("extras")
        fields = {**(extras if isinstance(extras, Mapping) else {}), **annotation}
        named = [value for name in _NAMES if isinstance(value := fields.get(name), str) and value]
        for name in named:
            if name in self._named:
                return CitedKey(name, tuple(self._named[name]))
        quoted = fields.get("cited_text")
        if isinstance(quoted, str) and (words := " ".join(quoted.split())):
            holding = [i for i, passage in enumerate(self._passages) if words in " ".join(passage.text.split())]
            return CitedKey(named[-1] if named else f"“{words[:60]}”", tuple(holding[:1]))
        return CitedKey(named[0]) if named else None

    def of_name(self, name: str) -> list[CitedKey]:
        """Return what a name cites that is a citation for certain."""
        return self._of_token(name.strip().strip("[]")) or [CitedKey(name)]

    def _of_token(self, token: str) -> list[CitedKey]:
        if token.isascii() and token.isdigit() and len(token) <= 3:
            return [self._number(int(token), token)]
        if token in self._named:
            return [CitedKey(token, tuple(self._named[token]))]
        if match := _NUMBER.fullmatch(token):
            return [self._number(int(match[1]), token)]
        if (match := _RANGE.fullmatch(token)) and 0 <= int(match[2]) - int(match[1]) <= _LONGEST_RANGE:
            return [self._number(number) for number in range(int(match[1]), int(match[2]) + 1)]
        if token.isdigit() or _TIME.fullmatch(token):
            return []
        return [CitedKey(token)] if self._shapes and self._shapes.have(token) else []

    def _number(self, number: int, token: str | None = None) -> CitedKey:
        """Return the passage of a number: by its printed number, else by its id, else by its place from 1."""
        name = token or str(number)
        # "Source 2:" was printed in the prompt before the passage, so the model knew it by that number.
        if self._numbers:
            return CitedKey(name, (self._numbers[number],) if number in self._numbers else ())
        if name in self._named:
            return CitedKey(name, tuple(self._named[name]))
        return self._at_place(number, name)

    def _at_place(self, number: int, name: str) -> CitedKey:
        return CitedKey(name, (number - 1,) if 1 <= number <= len(self._passages) else ())

    def _of_footnote(self, label: str, notes: Mapping[str, str]) -> CitedKey:
        text = notes.get(label, "").strip().strip("[]<>")
        for name in (text, label):
            if name in self._named and not name.isdigit():
                return CitedKey(label, tuple(self._named[name]))
        return self._number(int(label), label) if label.isascii() and label.isdigit() else CitedKey(label)

    def _of_raised(self, number: str) -> list[CitedKey]:
        whole = self._number(int(number))
        if whole.passages or len(number) == 1:
            return [whole]
        digits = [self._number(int(digit)) for digit in number]
        return digits if all(key.passages for key in digits) else [whole]


def _given(given: Any, response: str, names: _Names) -> Iterable[tuple[CitedKey, list[Span]]]:
    """Yield what a framework says is cited, and where in the response; junk is passed over."""
    for item in given if isinstance(given, (list, tuple)) else ():
        if isinstance(item, str):
            yield from ((key, []) for key in names.of_name(item))
        if not isinstance(item, Mapping):
            continue
        places = _places(item, response)
        inner = item.get("citations")
        if not isinstance(inner, (list, tuple)):
            inner = [item]
        for one in inner:
            if isinstance(one, (str, int)) and not isinstance(one, bool):
                yield from ((key, places) for key in names.of_name(str(one)))
            elif isinstance(one, Mapping) and (key := names.of_annotation(one)) is not None:
                yield key, _places(one, response) or places


def _places(item: Mapping[str, Any], response: str) -> list[Span]:
    start = item.get("start_index", item.get("start"))
    end = item.get("end_index", item.get("end"))
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(response):
        return [(start, end)]
    text = item.get("text")
    if isinstance(text, str) and text.strip() and (at := response.find(text.strip())) >= 0:
        return [(at, at + len(text.strip()))]
    return []
