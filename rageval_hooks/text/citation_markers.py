"""Citation markers in a text (``[1]``, ``[doc-id]``, ``¹``, ``[^1]``, ``【1】``, ``Source 1``), and what they cite."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.narrowing import is_integer, mapping_or_empty, text_or_empty
from rageval_hooks.text.limits import scan
from rageval_hooks.text.sentences import Span
from rageval_hooks.turn import Passage

_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

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

# A character that every marker has, except "Source 1".
_MARK: Final = re.compile(r"[\[【¹²³⁴-⁹⁰]")

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


@dataclass(frozen=True)
class Marker:
    """A citation marker in a text.

    Attributes:
        span: the marker's position, as (start, end).
        tokens: the cited names as written, for example ``"1"`` or ``"doc-7"``.
        kind: ``bracket``, ``footnote``, ``raised`` or ``source``.
        link: True if it is the label of a Markdown link.
    """

    span: Span
    tokens: tuple[str, ...]
    kind: str
    link: bool = False


def may_cite(text: str) -> bool:
    """Return True if a text has a character of a marker or of a definition. Most need not be searched further."""
    return _MARK.search(text) is not None or "ource" in text


def find_markers(text: str, is_known: Callable[[str], bool], *, numbered: bool = False) -> Iterator[Marker]:
    """Yield what could be a citation, in order. The caller decides by the meaning of the tokens.

    Args:
        text: the text.
        is_known: returns True if a token is the name of a passage. Such a name may contain commas.
        numbered: True if the passages carry numbers, so that "Source 1" names one.
    """
    if "`" in text or "~~~" in text:
        text = _CODE.sub(_blanked, text)
    found = sorted([*_bracketed(text, is_known), *_raised(text)], key=lambda marker: marker.span)
    if numbered:
        starts = [marker.span[0] for marker in found]
        for match in scan(_SOURCE, text):
            before = bisect_right(starts, match.start()) - 1
            # "[Source 1]" was found already, as a bracket.
            if before < 0 or found[before].span[1] <= match.start():
                numbers = tuple(re.findall(r"\d+", match["numbers"]))
                found.append(Marker(match.span(), numbers, "source"))
    return iter(sorted(found, key=lambda marker: marker.span))


def _blanked(code: re.Match[str]) -> str:
    """Return spaces for code, in which brackets are indexes. A marker formatted as code stays."""
    return code.group() if _QUOTED_MARKER.fullmatch(code.group()) else " " * len(code.group())


def _bracketed(text: str, is_known: Callable[[str], bool]) -> Iterator[Marker]:
    for match in scan(_FOOTNOTE, text):
        yield Marker(match.span(), (match["label"],), "footnote")
    for match in scan(_LENTICULAR, text):
        yield Marker(match.span(), (match["number"],), "bracket")
    for match in scan(_BRACKETS, text):
        body, end = match["body"].strip(), match.end("body") + 1
        if not body or body.startswith("^"):
            continue
        tokens = (body,) if is_known(body) else _split_tokens(body)
        yield Marker((match.start(), end), tokens, "bracket", link=match["link"] is not None)


def _split_tokens(body: str) -> tuple[str, ...]:
    """Return the tokens in "1, 3; doc-7"."""
    return tuple(filter(None, map(str.strip, re.split(r"[,;]", body))))


def _raised(text: str) -> Iterator[Marker]:
    for match in scan(_RAISED, text):
        numbers = re.findall(r"[¹²³⁴-⁹⁰]+", match.group())
        yield Marker(match.span(), tuple(number.translate(_SUPERSCRIPTS) for number in numbers), "raised")


def footnotes(text: str) -> tuple[dict[str, str], list[Span]]:
    """Return the definitions of footnotes and link references: texts by label, and the positions of all of them."""
    matches = list(_DEFINITION.finditer(text))
    texts = {match["label"]: " ".join(match["text"].split()) for match in matches if match["label"]}
    return texts, [match.span() for match in matches]


def without_references(text: str) -> int:
    """Return the position at which a closing list of references begins, or the text's length.

    Such a list is a heading, for example "Sources:", followed only by entries. It says what was cited, but not where.
    """
    end = begin = len(text)
    entries = 0
    for line in reversed(text.splitlines(keepends=True)):
        begin -= len(line)
        heading = _HEADING.fullmatch(line.rstrip())
        if heading and _begins_list(heading["rest"].strip(), entries):
            end = begin
        elif _ITEM.match(line):
            entries += 1
        elif line.strip():
            break
    return end


def _begins_list(rest: str, entries: int) -> bool:
    """Return True if a list of references begins with a heading: the first entry is behind it, or entries follow."""
    if not rest:
        return entries > 0
    return _ITEM.match(rest) is not None


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
