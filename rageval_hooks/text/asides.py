"""What a response says about its sources and to its reader, and not about the subject: no passage can support that.

"Based on the given passages," "(passage 2)" "Here are the key points:" "I hope this helps!"
"""

from __future__ import annotations

import re
from typing import Final

from rageval_hooks.text.limits import Span, scan
from rageval_hooks.text.refusals import sentence_declines

_KIND: Final = r"(?:given|provided|retrieved|supplied|available|following|above|search|source|reference|relevant)"
# "2", "1 and 3", "1, 2, and passage 3"
_NUMBERS: Final = r"#?\d{1,2}(?!\d)(?:(?:,\s?(?:and\s)?|\sand\s|\s?[&–-]\s?|\sto\s)(?:passages?\s)?#?\d{1,2}(?!\d))*"
# "passage 2", "the given passages", "this document", "passages 1 and 3", "the information provided"
_SOURCE: Final = (
    r"(?:(?:the|these|those|this|my|your|all)\s)?(?:(?:first|second|third|last|" + _KIND + r")\s){0,2}"
    r"(?:(?:passage|excerpt|document|source|text|snippet|context)s?|search results|information)"
    r"(?:\s(?:above|below|given|provided|(?:that\s)?(?:you|were|was|i)\s(?:gave|given|provided|have)))?"
    rf"(?:\s{_NUMBERS})?"
)
# A source that certainly means the prompt: with a number, or as "the given passages". "The text" may be a book's.
_CITED: Final = (
    rf"(?:passages?|excerpts?|documents?|sources?|snippets?|contexts?)\s?{_NUMBERS}(?!\s(?:pages?|words|lines|years)\b)"
)
_SAYS: Final = (
    r"(?:also\s|further\s|explicitly\s|specifically\s|does\s|do\s)?(?:stat|not|mention|say|suggest|explain|describ|indicat|provid|"
    r"highlight|emphasiz|discuss|advis|recommend|add|claim|list|report|tell|show|point)(?:es|ed|s|e)?(?:\sus|\sout)?\sthat\s"
)
_ASIDE: Final = re.compile(
    # "Based on the given passages, ", "Therefore, according to passage 2, "
    rf"(?<![^\W_])(?:(?:based|relying)\son|according\sto|as\s(?:stated|mentioned|described|noted|explained|outlined|shown|"
    rf"seen|per|discussed|indicated)(?:\s(?:in|by))?|(?:from|in|per|given|using))\s{_SOURCE}(?![^\W_])(?:,|(?=[).:;])|(?=\sas\b)|$)"
    # "(passage 2)", "(as mentioned in passage 2)", "(Ref: Passages 1 and 3)", "[Passage 1]"
    rf"|[(\[](?:[a-z:]{{1,10}}\s){{0,4}}{_CITED}[)\]]"
    # "in passage 3", "by passages 1 and 2" anywhere
    rf"|(?<![^\W_])(?:(?:as\s)?(?:stated|mentioned|described|noted|found)\s)?(?:in|by|from|to|on|of|per)\s(?:the\s)?{_CITED}"
    # "Passage 3 notes that ", "The passages also state that "
    rf"|(?<![^\W_])(?:{_CITED}|(?:the|these)\s(?:{_KIND}\s)?(?:passages?|excerpts?|context|documents?|sources?))\s{_SAYS}"
    # "Passage 2" as the subject of other verbs
    rf"|(?<![^\W_]){_CITED}",
    re.IGNORECASE,
)
# Every aside has one of these ("text" is in "context", too); most texts have none and need no search.
_HINTS: Final = ("passage", "excerpt", "document", "source", "text", "snippet", "search result", "information")
# What a line of Markdown may have around its text.
_MARKUP: Final = " \t\n*#_-•>|"

# "Sure!", "Certainly, here is", "I hope this helps", "let me know"
_TO_READER: Final = re.compile(
    r"(?:sure|certainly|of course|absolutely|great question|thank you|thanks|you'?re welcome|hello|hi)(?:\W|$)"
    r"|(?:i|we) hope (?:this|that|it|these)\b|(?:please )?(?:let me know|feel free)\b"
    r"|if you (?:have|need|want) (?:any|more|further)\b"
    r"|(?:here(?:'s|’s| is| are)|below (?:is|are)) (?:an?|the|my|some|your|how|what)\b[^.]{0,200}[:.]?$"
    r"|(?:in (?:summary|conclusion|short)|to (?:summarize|conclude|sum up)|overall)\W*$",
    re.IGNORECASE,
)


def find_asides(text: str) -> list[Span]:
    """Return where a text only refers to its sources, as (start, end): "Based on the given passages,"."""
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return []
    return [found.span() for found in scan(_ASIDE, text)]


def claims_nothing(sentence: str, said: str) -> bool:
    """Return True if a sentence states nothing about the subject.

    It introduces the next sentences and ends in a colon ("Side effects:"), speaks to the reader ("I hope this
    helps!"), or declines ("The passages do not mention a price").

    Args:
        sentence: the sentence.
        said: the sentence without its asides.
    """
    text = said.strip(_MARKUP)
    if text.endswith((":", "：")):
        return True
    if _TO_READER.match(text):
        return not any(map(str.isdigit, text))
    return sentence_declines(sentence.strip(_MARKUP))
