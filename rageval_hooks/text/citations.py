"""Which part of a response cites which passages: by markers in its text, or as the framework says.

Markers are ``[1]``, ``[doc-id]``, ``¹``, ``[^1]``, ``【1】`` and ``Source 1``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.narrowing import is_integer, items_or_empty, mapping_or_empty, mappings_in, text_or_empty
from rageval_hooks.text.keys import KeyedSentence
from rageval_hooks.text.limits import Span, blank, scan
from rageval_hooks.turn import Passage


@dataclass(frozen=True)
class CitedKey:
    """A citation: its name, and the passages that the name refers to.

    Attributes:
        name: as it is written.
        passages: positions of the passages that it means. Several if a document was cut into several passages; none
            for a made-up citation.
    """

    name: str
    passages: tuple[int, ...] = ()

    @property
    def identity(self) -> object:
        """Equal for two names of the same passages."""
        return self.passages or self.name


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
    citation. So is an address, a file name, and a token of the form of a known name with digits (``doc-9`` for
    ``doc-1``), if the passages have ids. ``[2019]``, ``[12:30]``, ``[10/10]``, ``[COVID-19]``, ``[sic]``, links, images
    and indexes in code are not citations. A marker
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
    names = _Names(passages, unseen)
    notes, definitions = _footnotes(response)
    # Footnotes and references say what was cited, but are no sentences of the answer.
    body = blank(response, [*definitions, (_end_without_references(response), len(response))])
    sentences = [sentence for sentence in sentences if not body[sentence.span[0]].isspace()]
    markers = _markers(response, names, notes)
    parts = _Parts(body, sentences, [span for span, _ in markers])
    for span, keys in markers:
        is_lost = body[span[0]].isspace()
        parts.add([] if is_lost else parts.sentence_of(span), keys)
    for key, places in _given(given, response, names):
        parts.add([number for place in places for number in parts.overlapping(place)], [key])
    return Citations(parts.cited(), tuple(parts.unplaced))


def citation_marks(response: str, passages: Sequence[Passage]) -> list[Span]:
    """Return the parts of a response that only cite: markers, footnote definitions and a closing list of references.

    They state nothing, so metrics of what the response states do not read them. The spans may overlap.

    Args:
        response: the response.
        passages: the passages that it may cite.
    """
    marks: list[Span] = []
    # Most responses have no character of a marker or of a definition, and need not be searched further.
    if _MARK.search(response) or "ource" in response:
        notes, marks = _footnotes(response)
        marks += (span for span, _ in _markers(response, _Names(passages), notes))
    marks.append((_end_without_references(response), len(response)))
    return [span for span in marks if span[0] < span[1]]


# --------------------------------------------------------------------------- markers in a text

_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

# A character that every marker has, except "Source 1".
_MARK: Final = re.compile(r"[\[【¹²³⁴-⁹⁰]")
# [1], [doc-7] and the label in [1](https://…). Not the label of an image, ![1](…).
_BRACKETS: Final = re.compile(r"(?<!!)\[(?P<body>[^\[\]\n]{1,200})\](?P<link>\()?")
# 【1】 and 【4†source】
_LENTICULAR: Final = re.compile(r"【(?P<number>\d{1,3})(?:†[^】\n]{0,100})?】")
# [^1], [^note]
_FOOTNOTE: Final = re.compile(r"\[\^(?P<label>[^\[\]\s]{1,40})\]")
# "word¹", "sentence.²": after a word or the end of a sentence, not the exponent of a unit or variable as in "m²".
# It begins with the digit and then looks back: few characters are such digits, which makes the search fast.
_RAISED: Final = re.compile(
    r"[¹²³⁴-⁹⁰](?:(?<=[^\W\d_]{3}.)|(?<=[.,;:!?…\"”’'»)\]].))[¹²³⁴-⁹⁰]{0,2}(?:, ?[¹²³⁴-⁹⁰]{1,3})*"
)
# Source 1, sources 1, 2 and 3
_SOURCE: Final = re.compile(r"\b[Ss]ources? (?P<numbers>\d{1,3}(?:(?:, (?:and )?| and | & )\d{1,3})*)\b")
# A fenced block of code, or `inline code`.
_CODE: Final = re.compile(
    r"^[ \t]*(?P<fence>```|~~~)(?!(?:markdown|md|te?xt)\b).*?(?:^[ \t]*(?P=fence)|\Z)|`[^`\n]+`",
    re.MULTILINE | re.DOTALL,
)
# `[1]` and `[1][2]`
_QUOTED_MARKER: Final = re.compile(r"`(?:\[[^\[\]]+\])+`")
# The definition of a footnote or of a link: "[^1]: The report." or "[1]: https://example.com".
_DEFINITION: Final = re.compile(
    r"^[ \t]*(?:\[\^(?P<label>[^\[\]\s]{1,40})\]:|\[\d{1,3}\]:(?= *(?:<?https?://|\")))"
    r"(?P<text>.*(?:\n[ \t]{2,}\S.*)*)",
    re.MULTILINE,
)
# "Sources:", "## References", "**Citations**"
_HEADING: Final = re.compile(
    r"^[ \t]*(?:#+ *|\*\*|__)?(?:sources|references|citations|footnotes|bibliography|works cited)"
    r"(?::?(?:\*\*|__)?:?)[ \t]*(?P<rest>.*)$",
    re.IGNORECASE,
)
# An entry of a list of references: "[1] The report", "- The report", "2. The report".
_ITEM: Final = re.compile(r"\A\s*(?:[-*•]\s*)?(?:\[\^?[^\[\]\n]{1,200}\]|【|[¹²³⁴-⁹⁰]|\d{1,3}[.):]\s|[-*•]\s)")


_Marker = tuple[Span, list["CitedKey"]]
"""Where a marker is, and what it cites; nothing if it is not a citation."""


def _markers(response: str, names: _Names, notes: Mapping[str, str]) -> list[_Marker]:
    """Return the markers of a response that are citations, in order, with what they cite.

    Args:
        response: the response.
        names: what names mean.
        notes: the texts of footnotes, by label.
    """
    text = response
    if "`" in text or "~~~" in text:
        # In code, brackets are indexes. A marker that is formatted as code is a marker.
        codes = (code for code in _CODE.finditer(text) if not _QUOTED_MARKER.fullmatch(code.group()))
        text = blank(text, (code.span() for code in codes))
    end, cited = 0, []
    for span, keys in sorted(_possible_markers(text, names, notes), key=lambda marker: marker[0]):
        # "[Source 1]" is found as a bracket and as a source: the bracket begins first.
        if span[0] >= end and keys:
            cited.append((span, keys))
        end = max(end, span[1])
    return cited


def _possible_markers(text: str, names: _Names, notes: Mapping[str, str]) -> Iterator[_Marker]:
    for match in scan(_FOOTNOTE, text):
        yield match.span(), [names.of_footnote(match["label"], notes)]
    for match in scan(_LENTICULAR, text):
        yield match.span(), names.of_token(match["number"])
    for match in scan(_BRACKETS, text):
        body = match["body"].strip()
        if body and not body.startswith("^"):
            # "1, 3; doc-7". The name of a passage may contain commas.
            tokens = [body] if names.is_known(body) else filter(None, map(str.strip, re.split(r"[,;]", body)))
            # The label of a link is a citation only if it is a number.
            cited = (names.of_token(token) for token in tokens if match["link"] is None or token.isdigit())
            yield (match.start(), match.end("body") + 1), [*chain.from_iterable(cited)]
    for match in scan(_RAISED, text):
        numbers = re.findall(r"[¹²³⁴-⁹⁰]+", match.group())
        raised = (names.of_raised(number.translate(_SUPERSCRIPTS)) for number in numbers)
        yield match.span(), [*chain.from_iterable(raised)]
    # "Source 1" names a passage only if the passages carry numbers.
    for match in scan(_SOURCE, text) if names.are_numbered else ():
        yield match.span(), [*chain.from_iterable(map(names.of_token, re.findall(r"\d+", match["numbers"])))]


def _footnotes(text: str) -> tuple[dict[str, str], list[Span]]:
    """Return the definitions of footnotes and link references: texts by label, and the positions of all of them."""
    matches = list(_DEFINITION.finditer(text))
    texts = {match["label"]: " ".join(match["text"].split()) for match in matches if match["label"]}
    return texts, [match.span() for match in matches]


def _end_without_references(text: str) -> int:
    """Return the position at which a closing list of references begins, or the text's length.

    Such a list is a heading, for example "Sources:", followed only by entries. It says what was cited, but not where.
    """
    end = begin = len(text)
    entries = 0
    for line in reversed(text.splitlines(keepends=True)):
        begin -= len(line)
        heading = _HEADING.fullmatch(line.rstrip())
        rest = heading["rest"].strip() if heading else ""
        # The first entry is behind the heading, or entries follow.
        if heading and (_ITEM.match(rest) if rest else entries):
            end = begin
        elif _ITEM.match(line):
            entries += 1
        elif line.strip():
            break
    return end


# --------------------------------------------------------------------------- what a name means

# "1", "12": longer numbers are years and codes.
_SHORT_NUMBER: Final = re.compile(r"[0-9]{1,3}")
# "1", "Source 1", "doc: 12", "ref #3"
_NUMBER: Final = re.compile(
    r"(?:(?:sources?|docs?|documents?|passages?|refs?|references?|contexts?)(?: ?[:#] ?| ))?(\d{1,3})", re.IGNORECASE
)
# "1-3", "1 – 3"
_RANGE: Final = re.compile(r"(\d{1,3})\s?[-–—]\s?(\d{1,3})")
# "[1900-1999]" is a period, not a hundred passages.
_MAX_RANGE: Final = 50
# "2019", "12:30", "1:02:03"
_YEAR_OR_TIME: Final = re.compile(r"\d+|\d{1,2}(?::\d{2}){1,2}")
# LlamaIndex's citation engine writes "Source 2:" before each passage.
_NUMBERED_SOURCE: Final = re.compile(r"Source (\d{1,3}):\s")

# The end of "report.pdf"; not of "e.g."
_FILE_END: Final = re.compile(r"\w\.[a-z]{2,5}\Z")
# A name of this length with letters and digits is rather a hash than a word.
_LONG_NAME: Final = 8

# Metadata that names the document of a passage, in LangChain, LlamaIndex and common loaders.
SOURCE_FIELDS: Final = ("source", "file_name", "file_path", "url", "title", "doc_id", "document_id")
_ANNOTATION_FIELDS: Final = (
    "id", "source", "source_id", "document_id", "doc_id", "url", "title", "document_title", "file_name",
)  # fmt: skip


class _Names:
    """The meaning of tokens, for the passages of a turn.

    Args:
        passages: what may be cited.
        unseen: passages that the answering model did not see.
    """

    def __init__(self, passages: Sequence[Passage], unseen: Sequence[Passage] = ()) -> None:
        self._passages = passages
        # A dict keeps the order of the positions and drops repetitions.
        self._named: dict[str, dict[int, None]] = {}
        self._add(passage.id for passage in passages)
        # Without ids, a word in brackets is a word: file names and titles look like any other text.
        self._has_ids = bool(self._named)
        for field in SOURCE_FIELDS:
            self._add(passage.metadata.get(field) for passage in passages)
        self._outlines = {outline for name in self._named for outline in _outlines(name)}
        for passage in unseen:
            # A known name without a passage is recognised as a citation, and as a made-up one.
            if passage.id:
                self._named.setdefault(passage.id, {})
        self._printed: dict[int, int] = {}
        for position, passage in enumerate(passages):
            if match := _NUMBERED_SOURCE.match(passage.text):
                self._printed.setdefault(int(match[1]), position)
        self.are_numbered = bool(self._printed)

    def _add(self, names: Iterable[object]) -> None:
        """Add one name of each passage; values that are not names are ignored."""
        for index, name in enumerate(map(text_or_empty, names)):
            if name:
                self._named.setdefault(name, {})[index] = None

    def is_known(self, token: str) -> bool:
        """Return True if a token is the name of a passage."""
        return token in self._named

    def of_annotation(self, annotation: Mapping[str, Any]) -> list[CitedKey]:
        """Return what a framework's annotation cites; empty if it does not say."""
        number = annotation.get("passage")
        if is_integer(number):
            return [self._at_place(number, str(number))]
        # LangChain keeps the fields of the provider under "extras".
        fields = {**mapping_or_empty(annotation.get("extras")), **annotation}
        names = list(filter(None, map(text_or_empty, map(fields.get, _ANNOTATION_FIELDS))))
        for name in names:
            if name in self._named:
                return [self._called(name, name)]
        quoted = " ".join(text_or_empty(fields.get("cited_text")).split())
        if quoted:
            found = [index for index, text in enumerate(self._folded_texts) if quoted in text]
            return [CitedKey(names[-1] if names else f"“{quoted[:60]}”", tuple(found[:1]))]
        # A name that no passage has is a made-up citation.
        return list(map(CitedKey, names[:1]))

    def of_name(self, name: str) -> list[CitedKey]:
        """Return what a name cites, if it is known to be a citation."""
        return self.of_token(name.strip().strip("[]")) or [CitedKey(name)]

    def of_token(self, token: str) -> list[CitedKey]:
        """Return what a token in brackets cites; nothing if it is not a citation."""
        if _SHORT_NUMBER.fullmatch(token):
            return [self._number(int(token), token)]
        if token in self._named:
            return [self._called(token, token)]
        if match := _NUMBER.fullmatch(token):
            return [self._number(int(match[1]), token)]
        if match := _RANGE.fullmatch(token):
            first, last = int(match[1]), int(match[2])
            if first <= last <= first + _MAX_RANGE:
                return [self._number(number, str(number)) for number in range(first, last + 1)]
        # "[2019]" and "[12:30]" cite nothing. A token that looks like the name of a passage is a made-up citation.
        if _YEAR_OR_TIME.fullmatch(token) or not (self._has_ids and self._looks_like_id(token)):
            return []
        return [CitedKey(token)]

    def _looks_like_id(self, token: str) -> bool:
        # "https://example.com", "report.pdf", "doc_7"; not "jane@example.com".
        is_file = "@" not in token and _FILE_END.search(token) is not None
        is_name = "_" in token and any(map(str.isalnum, token))
        if ("://" in token or is_file or is_name) and not any(map(str.isspace, token)):
            return True
        return not self._outlines.isdisjoint(_outlines(token))

    def _number(self, number: int, name: str) -> CitedKey:
        """Return the passage of a number: by its printed number, else by its id, else by its place from 1."""
        # "Source 2:" was printed in the prompt before the passage, so the model knew it by that number.
        if self._printed:
            return CitedKey(name, (self._printed[number],) if number in self._printed else ())
        return self._called(name, name) if name in self._named else self._at_place(number, name)

    def _called(self, name: str, written: str) -> CitedKey:
        return CitedKey(written, tuple(self._named[name]))

    def _at_place(self, number: int, name: str) -> CitedKey:
        return CitedKey(name, (number - 1,) if 0 < number <= len(self._passages) else ())

    @cached_property
    def _folded_texts(self) -> list[str]:
        """The passages with single spaces. Kept, since a response may have many quotations."""
        return [" ".join(passage.text.split()) for passage in self._passages]

    def of_footnote(self, label: str, notes: Mapping[str, str]) -> CitedKey:
        """Return what a footnote cites: by the text of its definition, else by its label."""
        text = notes.get(label, "").strip().strip("[]<>")
        for name in (text, label):
            if name in self._named and not name.isdigit():
                return self._called(name, label)
        # A footnote without a definition: "[^2]" means the second passage.
        is_number = label.isascii() and label.isdigit()
        return self._number(int(label), label) if is_number else CitedKey(label)

    def of_raised(self, number: str) -> list[CitedKey]:
        """Return what raised digits cite."""
        whole = self._number(int(number), number)
        if whole.passages or len(number) == 1:
            return [whole]
        # There is no passage 12, so "¹²" means the passages 1 and 2.
        digits = [self._number(int(digit), digit) for digit in number]
        return digits if all(key.passages for key in digits) else [whole]


def _outlines(name: str) -> Iterator[str]:
    """Yield the form of a name with digits: "a-9" for "doc-12", and "xxxxxxxx" for long names with letters as well."""
    if not any(map(str.isdigit, name)):
        return
    yield re.sub(r"\d+", "9", re.sub("[a-z]+", "a", re.sub("[A-Z]+", "A", name)))
    if len(name) >= _LONG_NAME and any(map(str.isalpha, name)):
        yield re.sub(r"[^\W_]", "x", name)


# --------------------------------------------------------------------------- which sentence cites


class _Parts:
    """The sentences of a response, and what each cites.

    Args:
        body: the response, with spaces for lists of references.
        sentences: its sentences.
        markers: the positions of its citation markers.
    """

    def __init__(self, body: str, sentences: Sequence[KeyedSentence], markers: Sequence[Span]) -> None:
        self._sentences = sentences
        self._starts = [sentence.span[0] for sentence in sentences]
        self._keys: list[dict[object, CitedKey]] = [{} for _ in sentences]
        self._words = words = blank(body, markers)
        # The position of the first letter or digit outside of markers; None for a sentence of markers only.
        self._begins = [
            next((at for at in range(*sentence.span) if words[at].isalnum()), None) for sentence in sentences
        ]
        # In a text without capitals, a small letter after a marker may begin a sentence. Not where the text begins with
        # a marker: "[1] says apples are blue. [2] says pears are red."
        self._is_prose = words != words.lower() or body[:1] != words[:1]
        # Citations that do not say which sentence they are for.
        self.unplaced: list[str] = []

    def add(self, numbers: Sequence[int], keys: Iterable[CitedKey]) -> None:
        """Add citations to the sentences with some numbers; without a number they are unplaced."""
        for key in keys:
            for number in numbers:
                # The first name of the same passages is kept.
                self._keys[number].setdefault(key.identity, key)
            if not numbers:
                self.unplaced.append(key.name)

    def sentence_of(self, marker: Span) -> list[int]:
        """Return the number of the sentence that a marker belongs to; empty without a sentence before it."""
        number = bisect_right(self._starts, marker[0]) - 1
        if number <= 0 or marker[0] >= self._sentences[number].span[1]:
            return [number] if number >= 0 else []
        begin = self._begins[number]
        is_leading = begin is None or marker[0] < begin
        # In "[2] says", the marker is the subject of its sentence.
        if begin is not None and self._is_prose and self._words[begin].islower():
            is_leading = is_leading and self._words[marker[1] : begin].strip() != ""
        end_before = self._sentences[number - 1].span[1]
        # A marker that leads its sentence belongs to the sentence before, if that is in the same line.
        return [number - 1 if is_leading and "\n" not in self._words[end_before : marker[0]] else number]

    def overlapping(self, place: Span) -> Iterator[int]:
        """Yield the numbers of the sentences that a piece of the response touches."""
        # Before the first sentence, the search begins with it.
        for number in range(max(0, bisect_right(self._starts, place[0]) - 1), len(self._sentences)):
            start, end = self._sentences[number].span
            if start >= place[1]:
                break
            if place[0] < end:
                yield number

    def cited(self) -> tuple[CitedPart, ...]:
        """Return the sentences that have other words than their markers."""
        parts = zip(self._sentences, self._keys, self._begins, strict=True)
        return tuple(CitedPart(sentence, tuple(keys.values())) for sentence, keys, begin in parts if begin is not None)


# --------------------------------------------------------------------------- what frameworks say


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
        # LangChain has annotations of other types, too.
        annotations = mappings_in(block.get("annotations"))
        citing = [item for item in annotations if "citation" in str(item.get("type", "citation"))]
        for annotation in citing + mappings_in(block.get("citations")):
            start, end = annotation.get("start_index"), annotation.get("end_index")
            if not isinstance(start, int) or not isinstance(end, int):
                # An annotation without a position covers its block.
                start, end = 0, len(text)
            found.append({**annotation, "start_index": offset + start, "end_index": offset + end})
        offset += len(text)
    return found


def _given(given: Any, response: str, names: _Names) -> Iterator[tuple[CitedKey, list[Span]]]:
    """Yield what a framework says is cited, and where in the response. Values of unknown types are ignored."""
    for item in items_or_empty(given):
        # A bare name says what is cited, but not where.
        entry = {"citations": [item]} if isinstance(item, str) else mapping_or_empty(item)
        places = _places(entry, response)
        several = entry.get("citations")
        for one in several if isinstance(several, (list, tuple)) else [entry]:
            keys: list[CitedKey] = []
            if isinstance(one, Mapping):
                keys = names.of_annotation(one)
            elif isinstance(one, str) or is_integer(one):
                keys = names.of_name(str(one))
            for key in keys:
                yield key, _places(mapping_or_empty(one), response) or places


def _places(item: Mapping[str, Any], response: str) -> list[Span]:
    """Return where in the response a citation is: by its positions, else by its text."""
    start = item.get("start_index", item.get("start"))
    end = item.get("end_index", item.get("end"))
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(response):
        return [(start, end)]
    text = text_or_empty(item.get("text")).strip()
    position = response.find(text) if text else -1
    return [(position, position + len(text))] if position >= 0 else []
