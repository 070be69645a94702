"""Citation markers in a text: ``[1]``, ``[1, 3]``, ``[doc-id]``, ``¹``, ``[^1]``, ``【1】``, ``Source 1``."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.sentences import Span

__all__ = ["Marker", "find_markers", "footnotes", "without_references"]

_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

# A Markdown link keeps its own number, as in "[1](https://…)"; its words are no citation. Nor is an image.
_BRACKETS: Final = re.compile(r"(?<!!)\[(?P<body>[^\[\]\n]{1,200})\](?P<link>\()?")
_LENTICULAR: Final = re.compile(r"【(?P<number>\d{1,3})(?:†[^】\n]{0,100})?】")
_FOOTNOTE: Final = re.compile(r"\[\^(?P<label>[^\[\]\s]{1,40})\]")
# Behind a word or the end of a sentence; not the exponent of a unit or a variable.
_RAISED: Final = re.compile(r"(?:(?<=[^\W\d_]{3})|(?<=[.,;:!?…\"”’'»)\]]))[¹²³⁴-⁹⁰]{1,3}(?:, ?[¹²³⁴-⁹⁰]{1,3})*")
_SOURCE: Final = re.compile(r"\b[Ss]ources? (?P<numbers>\d{1,3}(?:(?:, (?:and )?| and | & )\d{1,3})*)\b")

_CODE: Final = re.compile(
    r"^[ \t]*(?P<fence>```|~~~)(?!(?:markdown|md|te?xt)\b).*?(?:^[ \t]*(?P=fence)|\Z)|`[^`\n]+`",
    re.MULTILINE | re.DOTALL,
)
_QUOTED_MARKER: Final = re.compile(r"`(?:\[[^\[\]]+\])+`")

_DEFINITION: Final = re.compile(
    r"^[ \t]*(?:\[\^(?P<label>[^\[\]\s]{1,40})\]:|\[\d{1,3}\]:(?= *(?:<?https?://|\")))"
    r"(?P<text>.*(?:\n[ \t]{2,}\S.*)*)",
    re.MULTILINE,
)
_HEADING: Final = re.compile(
    r"^[ \t]*(?:#+ *|\*\*|__)?(?:sources|references|citations|footnotes|bibliography|works cited)"
    r"(?::?(?:\*\*|__)?:?)[ \t]*(?P<rest>.*)$",
    re.IGNORECASE,
)
_ITEM: Final = re.compile(r"\s*(?:[-*•]\s*)?(?:\[\^?[^\[\]\n]{1,200}\]|【|[¹²³⁴-⁹⁰]|\d{1,3}[.):]\s|[-*•]\s)")


@dataclass(frozen=True)
class Marker:
    """Where a text cites something.

    Attributes:
        span: where the marker stands, as (start, end).
        tokens: what is cited, as written: ``"1"``, ``"doc-7"``.
        kind: ``bracket``, ``footnote``, ``raised`` or ``source``.
        link: whether it is the label of a Markdown link.
    """

    span: Span
    tokens: tuple[str, ...]
    kind: str
    link: bool = False


def find_markers(text: str, is_known: Callable[[str], bool], *, numbered: bool = False) -> Iterator[Marker]:
    """Yield what could be a citation, by its place; whether it is one, is decided by what its tokens mean.

    Args:
        text: the text.
        is_known: whether a token is the name of a passage: such a name may hold commas.
        numbered: whether the passages carry numbers, so that "Source 1" names one.
    """
    text = _CODE.sub(_blanked, text)
    found = sorted([*_bracketed(text, is_known), *_raised(text)], key=lambda marker: marker.span)
    if numbered:
        starts = [marker.span[0] for marker in found]
        for match in _SOURCE.finditer(text):
            before = bisect_right(starts, match.start()) - 1
            if before < 0 or found[before].span[1] <= match.start():  # not within "[Source 1]"
                numbers = tuple(re.findall(r"\d+", match["numbers"]))
                found.append(Marker(match.span(), numbers, "source"))
    return iter(sorted(found, key=lambda marker: marker.span))


def _blanked(code: re.Match[str]) -> str:
    """Return spaces for code, where brackets are indexes; a marker that is set as code is one all the same."""
    return code.group() if _QUOTED_MARKER.fullmatch(code.group()) else " " * len(code.group())


def _bracketed(text: str, is_known: Callable[[str], bool]) -> Iterator[Marker]:
    for match in _FOOTNOTE.finditer(text):
        yield Marker(match.span(), (match["label"],), "footnote")
    for match in _LENTICULAR.finditer(text):
        yield Marker(match.span(), (match["number"],), "bracket")
    for match in _BRACKETS.finditer(text):
        body, end = match["body"].strip(), match.end("body") + 1
        if not body or body.startswith("^"):
            continue
        tokens = (body,) if is_known(body) else tuple(filter(None, map(str.strip, re.split(r"[,;]", body))))
        yield Marker((match.start(), end), tokens, "bracket", link=match["link"] is not None)


def _raised(text: str) -> Iterator[Marker]:
    for match in _RAISED.finditer(text):
        numbers = re.findall(r"[¹²³⁴-⁹⁰]+", match.group())
        yield Marker(match.span(), tuple(number.translate(_SUPERSCRIPTS) for number in numbers), "raised")


def footnotes(text: str) -> tuple[dict[str, str], list[Span]]:
    """Return the definitions of footnotes and link references: texts by label, and where all of them stand."""
    matches = list(_DEFINITION.finditer(text))
    texts = {match["label"]: " ".join(match["text"].split()) for match in matches if match["label"]}
    return texts, [match.span() for match in matches]


def without_references(text: str) -> int:
    """Return where a closing list of references begins; the text's length if there is none.

    It is a heading such as "Sources:" behind which nothing but entries comes; they say what was cited, not for what.
    """
    end = begin = len(text)
    entries = 0
    for line in reversed(text.splitlines(keepends=True)):
        begin -= len(line)
        heading = _HEADING.fullmatch(line.rstrip())
        rest = heading["rest"].strip() if heading else ""
        if heading and (_ITEM.match(rest) or (not rest and entries)):
            end = begin
        elif _ITEM.match(line):
            entries += 1
        elif line.strip():
            break
    return end
