"""Sentences of a text: rules for prose, lists, Markdown and several scripts. Nothing of the text is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["Span", "sentence_spans"]

Span = tuple[int, int]

_OPENERS: Final = "\"'“‘«„(\\[*_¿¡「『（【《"
_CLOSERS: Final = "\"'”’»)\\]}*_」』）】》"
_WIDE_STOPS: Final = "。！？｡．"  # no space follows these
_NATIVE_STOPS: Final = "।॥؟۔։።"  # a space follows, and the script has no case

_STOP: Final = re.compile(
    rf"(?P<marks>\.(?:[ \u00a0]\.){{2,}}|[.!?…{_WIDE_STOPS}{_NATIVE_STOPS}]+)"
    rf"(?P<closers>(?:[{_CLOSERS}]|[ \u00a0\u202f]»)*)"
    r"(?P<cited>(?:[ ]?\[\^?\d{1,3}(?:[,–-] ?\d{1,3}){0,9}\]|[¹²³⁴-⁹⁰]{1,3})*)"
)
_MARKER: Final = re.compile(r"\[\^?\d{1,3}\]")
_SAYING: Final = re.compile(
    r"(?: (?:and|or) \[\^?\d{1,3}\])?"
    r"(?: (?:also|further|both|all|then|clearly|explicitly|even|does|do|did|not|has|have|had|may|might|would))*"
    r" (?:say(?:s|ing)?|said|tells?|told|shows?|show(?:ed|n)|writes?|wrote|finds?|found|gives?|gave|holds?|held|"
    r"(?:add|state|report|claim|note|mention|describe|explain|suggest|argue|confirm|contradict|support|indicate|list|"
    r"point|discusse?|propose|conclude|observe|define|cite|agree|disagree|demonstrate|prove|reveal|provide|present|"
    r"estimate|assert|maintain|warn|recommend|cover|reject|dispute|put|offer)(?:s|e?d)?|"
    r"(?:den|impl|clarif|specif|identif)(?:y|ies|ied))(?![^\W_]|-)"
)
_LIST_ITEM: Final = re.compile(r"\s*(?:[-*+•·–—>|#]|\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})[.)]{1,2}(?:\s|$)|```)")
_BREAKS: Final = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_BULLETS: Final = "•●▪‣◦"  # also in mid-line, where a list was flattened
_LINE: Final = re.compile(rf"(?:[{_BULLETS}][ \t]*)?[^{_BREAKS}{_BULLETS}]+|[{_BULLETS}]+")
_WORD_BEFORE: Final = re.compile(r"[^\W_]+(?:\.[^\W_]+)*$")
_WORD_AFTER: Final = re.compile(r"[^\W_]+")
_LOOKBACK: Final = 24

# Never the end of a sentence.
_ABBREVIATIONS: Final = frozenset(
    "mr mrs ms mx dr prof rev hon gen col sgt capt lt cmdr gov sen rep pres st mt ft messrs mme mlle "
    "e.g i.e eg ie cf viz vs al approx ca resp est incl excl avg max min "
    "sr sra srta dña hr fr bzw usw dipl ing str p.ex т.е т.к т.н".split()
)
# An abbreviation only when a number follows.
_NUMBERED: Final = frozenset(
    "no nos nr fig figs eq eqs vol vols p pp ch chap sec sect art tab ref refs para pt ex op "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
# May end a sentence or not: the next word decides.
_UNDECIDED: Final = frozenset("inc corp co ltd llc bros dept jr sr etc ave blvd rd univ assn govt esq plc".split())
_SHORTENED: Final = _ABBREVIATIONS | _NUMBERED | _UNDECIDED
_STARTERS: Final = frozenset(
    "the a an this that these those it its he she his her we our they their you your i my there here "
    "in on at by for from with when while after before during if as since although because until "
    "however but and or so then thus therefore moreover furthermore additionally also what who why how where which "
    "some many most all both each every not no yes one another other such "
    "did do does is are was were can could will would should has have please mr mrs ms dr".split()
)
_MONTH_PREFIXES: Final = frozenset("jan feb mär mar apr mai may jun jul aug sep okt oct nov dez dec".split())


def sentence_spans(text: str) -> list[Span]:
    """Cut ``text`` into sentences.

    Args:
        text: Any text: prose, Markdown, lists, code, several languages.

    Returns:
        Spans in order, trimmed of white space. What lies between two spans is white space only, so nothing is lost.
        A line break ends a sentence unless the next line goes on in lower case.
    """
    spans: list[Span] = []
    for start, end in _blocks(text):
        spans.extend(_split_block(text, start, end))
    return spans


def _blocks(text: str) -> Iterator[Span]:
    """Lines, where a line that goes on in lower case is joined to the one before."""
    start = end = -1
    open_line = False
    for line in _LINE.finditer(text):
        content = line.group().strip()
        if not content:
            continue
        a = line.start() + line.group().index(content[0])
        b = a + len(content)
        joined = open_line and content[0].islower() and text.count("\n", end, a) == 1 and not _LIST_ITEM.match(content)
        if joined:
            end = b
        else:
            if start >= 0:
                yield start, end
            start, end = a, b
        open_line = content[-1].isalnum() or content[-1] in ",-–—’'\""
    if start >= 0:
        yield start, end


def _split_block(text: str, start: int, end: int) -> Iterator[Span]:
    caseless = not any(map(str.isupper, text[start:end])) if end - start < 10_000 else False
    cites_first = not caseless or _MARKER.match(text, start, end) is not None
    begin = start
    marker = _LIST_ITEM.match(text, start, end)
    first_stop = marker.end() if marker else start
    for stop in _STOP.finditer(text, first_stop, end):
        cut = stop.end()
        if cut >= end:
            break
        if cites_first and (led := _before_subject(text, stop, end)):
            cut = led
        elif cut <= begin or not _ends_sentence(text, stop, end, caseless):
            continue
        yield begin, cut
        begin = cut
        while begin < end and text[begin].isspace():
            begin += 1
    if begin < end:
        yield begin, end


def _before_subject(text: str, stop: re.Match[str], end: int) -> int | None:
    """Where a sentence ends before a marker that begins the next one, as in "It is so. [2] says"; None if it does not.

    A verb of saying must follow: in "It is fast. [1] npm is so too." a name does, and the marker is the first one's.
    Elsewhere a marker behind a full stop belongs to what it follows.
    """
    at = stop["cited"].rfind(" [")
    if at < 0 or stop["marks"] not in (".", "?") or not _SAYING.match(text, stop.end(), end):
        return None
    before = _word_before(text, stop.start())
    doubtful = len(before) < 2 or not before.isalnum() or before.casefold() in _SHORTENED
    return None if doubtful else stop.start("cited") + at


def _ends_sentence(text: str, stop: re.Match[str], end: int, caseless: bool) -> bool:
    marks, closers, cut = stop["marks"], stop["closers"], stop.end()
    if any(mark in _WIDE_STOPS for mark in marks):
        return True
    if text[stop.start() - 1 : stop.start()] == "[" and closers.startswith("]"):
        return False  # [...]
    after = _next_word(text, cut, end)
    before = _word_before(text, stop.start())
    if not text[cut].isspace():
        return marks in ".?!" and not closers and _glued(text, before, after, cut)
    if any(mark in _NATIVE_STOPS for mark in marks):
        return True
    if after[:1].islower() and after.islower() and not caseless:
        return False
    if marks != ".":
        return True
    return not _is_abbreviation(before, after, closers)


def _glued(text: str, before: str, after: str, cut: int) -> bool:
    """Whether "it ends.The next" was and lost its space, unlike ``os.Path`` and ``example.com``."""
    if not (len(before) > 2 and before.isalpha() and before[1:].islower() and after[:1].isupper()):
        return False
    follows = text[cut + len(after) : cut + len(after) + 1]
    return (
        text.startswith(after, cut) and (after[1:].islower() or after in ("A", "I")) and follows in (" ", ",", "'", "’")
    )


def _is_abbreviation(before: str, after: str, closers: str) -> bool:
    key = before.casefold()
    if closers:
        return False
    if key in _ABBREVIATIONS or before in ("c", "v"):
        return True
    if key in _NUMBERED and after[:1].isdigit():
        return True
    if key.isdigit() and len(key) <= 2 and after[:3].casefold() in _MONTH_PREFIXES and len(after) > 2:
        return True  # "3. März"
    initial = len(before) == 1 and before.isalpha() and (before.isupper() or len(after) == 1)
    parts = before.split(".")
    dotted = len(parts) > 1 and all(len(part) <= 2 and part.isalpha() for part in parts)  # U.S, Ph.D, p.m
    if initial or dotted or key in _UNDECIDED:
        return after.casefold() not in _STARTERS
    return False


def _word_before(text: str, position: int) -> str:
    found = _WORD_BEFORE.search(text[max(0, position - _LOOKBACK) : position])
    return found.group() if found else ""


def _next_word(text: str, position: int, end: int) -> str:
    limit = min(end, position + 8)
    while position < limit and (text[position].isspace() or text[position] in _OPENERS):
        position += 1
    found = _WORD_AFTER.match(text, position, min(end, position + _LOOKBACK))
    return found.group() if found else ""
