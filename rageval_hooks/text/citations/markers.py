"""Citation markers in a text: ``[1]``, ``[1, 3]``, ``[doc-id]``, ``¹``, ``[^1]``, ``【1】``, ``Source 1``."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.limits import scan
from rageval_hooks.text.sentences import Span

__all__ = ["Marker", "find_markers", "footnotes", "may_cite", "without_references"]

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
