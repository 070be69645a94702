"""The meaning of the tokens in citations: which passages a name, a number or an address refers to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from rageval_hooks.runtime.narrowing import is_integer, mapping_or_empty, text_or_empty
from rageval_hooks.text.citations.markers import Marker
from rageval_hooks.turn import Passage

__all__ = ["CitedKey", "Names"]

# "1", "12": longer numbers are years and codes.
_SHORT_NUMBER: Final = re.compile(r"[0-9]{1,3}")
# "1", "Source 1", "doc: 12", "ref #3"
_NUMBER: Final = re.compile(
    r"(?:(?:sources?|docs?|documents?|passages?|refs?|references?|contexts?)(?: ?[:#] ?| ))?(\d{1,3})", re.IGNORECASE
)
# "1-3", "1 – 3"
_RANGE: Final = re.compile(r"(\d{1,3})\s?[-–—]\s?(\d{1,3})")
# "[1900-1999]" is a period, not a hundred passages.
_LONGEST_RANGE: Final = 50
# "2019", "12:30", "1:02:03"
_YEAR_OR_TIME: Final = re.compile(r"\d+|\d{1,2}(?::\d{2}){1,2}")
# LlamaIndex's citation engine writes "Source 2:" before each passage.
_NUMBERED_SOURCE: Final = re.compile(r"Source (\d{1,3}):\s")

# A token without white space or brackets: only these can be ids.
_ONE_TOKEN: Final = re.compile(r"[^\s\[\]]{2,}")
# What distinguishes an id from a word: "doc_7", "https://example.com", "report.pdf".
_ID_SIGN: Final = re.compile(r"[\d_]|://|\w\.[a-z]{2,5}\Z")
# The same where ids are made of words only: "pier-history".
_WORDS_ID_SIGN: Final = re.compile(r"[./:#-]")
# "https://example.com", "report.pdf"; not "jane@example.com".
_ADDRESS: Final = re.compile(r"://|\A[^@]*\w\.[a-z]{2,5}\Z")
# The "doc" of "doc-12".
_PREFIX: Final = re.compile(r"([^\W\d_]{1,100})[^\sa-zA-Z]\S{0,2000}")
_ID_WORDS: Final = frozenset("doc document source src passage ref reference context chunk snippet node file".split())
# A name of this length with letters and digits is rather a hash than a word.
_LONG_NAME: Final = 8
# Letters become "A" or "a" and a number "9": the outline of "Doc-12" is "Aaa-9".
_CAPITAL: Final = re.compile(r"[A-Z]")
_SMALL: Final = re.compile(r"[a-z]")
_DIGITS: Final = re.compile(r"\d+")
# "12" in "doc-12", but not Arabic "١٢"
_ASCII_DIGITS: Final = re.compile(r"[0-9]+")
# "d", "é", "1"; not "-" or "_"
_LETTER_OR_DIGIT: Final = re.compile(r"[^\W_]")

# Metadata that names the document of a passage, in LangChain, LlamaIndex and common loaders.
_SOURCE_FIELDS: Final = ("source", "file_name", "file_path", "url", "title", "doc_id", "document_id")
_ANNOTATION_FIELDS: Final = (
    "id", "source", "source_id", "document_id", "doc_id", "url", "title", "document_title", "file_name",
)  # fmt: skip


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


class _Shapes:
    """The form of the passages' names.

    Args:
        ids: the ids of passages.
        names: the ids and the sources.
    """

    def __init__(self, ids: Iterable[str], names: Iterable[str]) -> None:
        known = list(names)
        self._prefixes = _ID_WORDS.union(filter(None, map(_prefix, known)))
        self._outlines = {outline for name in known for outline in _outlines(name)}
        self._are_words = any(_is_words_id(name) and not _is_id_like(name) for name in ids)

    def have(self, token: str) -> bool:
        """Return True if a token looks like the name of a passage. If no passage has that name, it is made up."""
        if not _is_id_like(token):
            return self._are_words and _is_words_id(token)
        if _ADDRESS.search(token) or "_" in token:
            return True
        return _prefix(token) in self._prefixes or not self._outlines.isdisjoint(_outlines(token))


def _is_id_like(token: str) -> bool:
    return _is_one_token(token) and _ID_SIGN.search(token) is not None


def _is_words_id(token: str) -> bool:
    return _is_one_token(token) and _WORDS_ID_SIGN.search(token) is not None


def _is_one_token(token: str) -> bool:
    return _ONE_TOKEN.fullmatch(token) is not None and any(map(str.isalnum, token))


def _prefix(name: str) -> str:
    """Return the letters that a name begins with: "doc" of "doc-12"; empty for a title."""
    found = _PREFIX.fullmatch(name)
    return found[1].casefold() if found else ""


def _outlines(name: str) -> Iterator[str]:
    """Yield a name with other letters and digits: "aaa-9" for "doc-12", and "xxxxxxxx" for long names with both."""
    if not any(map(str.isdigit, name)):
        return
    yield _DIGITS.sub("9", _SMALL.sub("a", _CAPITAL.sub("A", name)))
    if len(name) >= _LONG_NAME and any(map(str.isalpha, name)):
        yield _LETTER_OR_DIGIT.sub("x", name)


class Names:
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
        ids = list(self._named)
        for field in _SOURCE_FIELDS:
            self._add(passage.metadata.get(field) for passage in passages)
        # Without ids, a word in brackets is a word: file names and titles look like any other text.
        self._shapes = _Shapes(ids, self._named) if ids else None
        for name in _texts(passage.id for passage in unseen):
            # A known name without a passage is recognised as a citation, and as a made-up one.
            self._named.setdefault(name, {})
        self._places = {number: (number - 1,) for number in range(1, len(passages) + 1)}
        self._numbers = _printed_numbers(passages)
        self.numbered = bool(self._numbers)

    def _add(self, names: Iterable[object]) -> None:
        """Add one name of each passage; values that are not names are ignored."""
        for index, name in enumerate(map(text_or_empty, names)):
            if name:
                self._named.setdefault(name, {})[index] = None

    def is_known(self, token: str) -> bool:
        """Return True if a token is the name of a passage."""
        return token in self._named

    def of_marker(self, marker: Marker, notes: Mapping[str, str]) -> list[CitedKey]:
        """Return what a marker cites; nothing if it is not a citation.

        Args:
            marker: the marker.
            notes: the texts of footnotes, by label.
        """
        if marker.kind == "footnote":
            [label] = marker.tokens
            return [self._of_footnote(label, notes)]
        read = self._of_raised if marker.kind == "raised" else self._of_token
        found: list[CitedKey] = []
        for token in marker.tokens:
            # The label of a link is a citation only if it is a number.
            if not marker.link or token.isdigit():
                found += read(token)
        return found

    def of_annotation(self, annotation: Mapping[str, Any]) -> list[CitedKey]:
        """Return what a framework's annotation cites; empty if it does not say."""
        number = annotation.get("passage")
        if is_integer(number):
            return [self._at_place(number, str(number))]
        fields = _with_extras(annotation)
        names = _texts(map(fields.get, _ANNOTATION_FIELDS))
        known = next(filter(self.is_known, names), None)
        if known is not None:
            return [self._called(known, known)]
        quoted = " ".join(text_or_empty(fields.get("cited_text")).split())
        if quoted:
            return [self._quoted(quoted, names)]
        # A name that no passage has is a made-up citation.
        return list(map(CitedKey, names[:1]))

    def of_name(self, name: str) -> list[CitedKey]:
        """Return what a name cites, if it is known to be a citation."""
        return self._of_token(name.strip().strip("[]")) or [CitedKey(name)]

    def _of_token(self, token: str) -> list[CitedKey]:
        if _SHORT_NUMBER.fullmatch(token):
            return [self._number(int(token), token)]
        if token in self._named:
            return [self._called(token, token)]
        if match := _NUMBER.fullmatch(token):
            return [self._number(int(match[1]), token)]
        if numbers := _numbers_in_range(token):
            return [self._number(number, str(number)) for number in numbers]
        # "[2019]" and "[12:30]" cite nothing.
        if _YEAR_OR_TIME.fullmatch(token):
            return []
        # A token that looks like the ids of the passages, but is not one of them, is a made-up citation.
        if self._shapes is not None and self._shapes.have(token):
            return [CitedKey(token)]
        return []

    def _number(self, number: int, name: str) -> CitedKey:
        """Return the passage of a number: by its printed number, else by its id, else by its place from 1."""
        # "Source 2:" was printed in the prompt before the passage, so the model knew it by that number.
        if self._numbers:
            return CitedKey(name, self._numbers.get(number, ()))
        if name in self._named:
            return self._called(name, name)
        return self._at_place(number, name)

    def _called(self, name: str, written: str) -> CitedKey:
        return CitedKey(written, tuple(self._named[name]))

    def _at_place(self, number: int, name: str) -> CitedKey:
        return CitedKey(name, self._places.get(number, ()))

    def _quoted(self, quoted: str, names: Sequence[str]) -> CitedKey:
        """Return the first passage that has a quoted text."""
        name = names[-1] if names else f"“{quoted[:60]}”"
        found = [index for index, text in enumerate(self._folded_texts) if quoted in text]
        return CitedKey(name, tuple(found[:1]))

    @cached_property
    def _folded_texts(self) -> list[str]:
        """The passages with single spaces. Kept, since a response may have many quotations."""
        return [" ".join(passage.text.split()) for passage in self._passages]

    def _of_footnote(self, label: str, notes: Mapping[str, str]) -> CitedKey:
        text = notes.get(label, "").strip().strip("[]<>")
        for name in (text, label):
            if name in self._named and not name.isdigit():
                return self._called(name, label)
        # A footnote without a definition: "[^2]" means the second passage.
        if _ASCII_DIGITS.fullmatch(label):
            return self._number(int(label), label)
        return CitedKey(label)

    def _of_raised(self, number: str) -> list[CitedKey]:
        whole = self._number(int(number), number)
        if whole.passages or len(number) == 1:
            return [whole]
        # There is no passage 12, so "¹²" means the passages 1 and 2.
        digits = [self._number(int(digit), digit) for digit in number]
        are_known = all(key.passages for key in digits)
        return digits if are_known else [whole]


def _texts(values: Iterable[object]) -> list[str]:
    """Return those of some values that are non-empty strings."""
    return list(filter(None, map(text_or_empty, values)))


def _printed_numbers(passages: Sequence[Passage]) -> dict[int, tuple[int, ...]]:
    """Return the positions of passages by the number that their text begins with: "Source 2:"."""
    numbers: dict[int, tuple[int, ...]] = {}
    for index, passage in enumerate(passages):
        if match := _NUMBERED_SOURCE.match(passage.text):
            numbers.setdefault(int(match[1]), (index,))
    return numbers


def _numbers_in_range(token: str) -> range:
    """Return 1, 2 and 3 for "1-3"; empty for other tokens, and for ranges that are too long to be citations."""
    match = _RANGE.fullmatch(token)
    if match is None:
        return range(0)
    first, last = int(match[1]), int(match[2])
    if last - first > _LONGEST_RANGE:
        return range(0)
    return range(first, last + 1)


def _with_extras(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an annotation. LangChain keeps those of the provider under "extras"."""
    return {**mapping_or_empty(annotation.get("extras")), **annotation}
