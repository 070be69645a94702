"""Whether a response declines to answer, by rules; for English.

Careful on purpose: a response that also claims something, or that no rule knows, does not decline.
"""

from __future__ import annotations

import re

from rageval_hooks.text.sentences import sentence_spans

__all__ = ["declines"]

_MOST_SENTENCES = 5

_NOT = r"(?:do(?:es)?\s+not|don't|doesn't|did\s+not|didn't|can\s*not|can't|could\s+not|couldn't)"
_UNABLE = r"(?:am|are|is|was|were|'m|'re)\s+(?:unable|not\s+able)\s+to"
_INFORMATION = r"(?:information|details?|answers?|context|documentation|knowledge)"
_SOURCE = (
    r"(?:context|passages?|documents?|texts?|sources?|information|excerpts?|materials?|results?|knowledge\s+base|"
    r"handbook|documentation|articles?|content)"
)
_TELLS = (
    r"(?:contain|mention|provide|say|include|specify|state|have|give|answer|address|discuss|describe|cover|tell|offer|"
    r"indicate|explain|refer|list)"
)
_KNOW = r"(?:know|answer|find|say|tell|determine|locate|provide|help|respond|give)"
_THERE = r"(?:there\s+(?:is|was|are)|there's|(?:i|we)\s+(?:have|found)|i\s+see)"
_NONE = r"(?:no|not\s+(?:any|enough)|insufficient)"
_TOLD = r"(?:mentioned|specified|stated|provided|given|available|described|discussed|addressed|included|covered|found)"
_RULES = (
    rf"\b(?:i|we)\s+(?:{_NOT}|{_UNABLE})\s+(?:\w+ly\s+)?(?:{_KNOW}|have\s+(?:\w+\s+){{0,3}}{_INFORMATION})\b",
    rf"\b{_SOURCE}\b[^,;:]{{0,60}}?\s{_NOT}\s+(?:\w+ly\s+)?{_TELLS}\b",
    rf"\b{_THERE}\s+{_NONE}\s+(?:\w+\s+){{0,2}}{_INFORMATION}\b",
    rf"\b(?:is|are|was|were)\s+not\s+(?:\w+ly\s+)?{_TOLD}\b[^,;:]{{0,40}}?\b{_SOURCE}\b",
    rf"^{_NONE}\s+(?:\w+\s+){{0,2}}{_INFORMATION}\b",
    r"\b(?:can\s*not|can't|could\s+not|couldn't)\s+be\s+(?:answered|determined|found)\b",
    r"^(?:i\s+have\s+no\s+idea|unanswerable|no\s+answer|not\s+answerable|unable\s+to\s+(?:answer|find|determine))\b",
)
_DECLINES = re.compile("|".join(_RULES))
_CLAIMS = re.compile(r"\b(?:but|however|although|though|whereas|while|instead|except|besides|only\s+that)\b|;")
_SORRY = r"(?:(?:i'm|i\s+am|we're|we\s+are)\s+(?:very\s+)?(?:sorry|afraid)|sorry|unfortunately)"
_OPENING = re.compile(rf"^{_SORRY}\W+(?:but\s+|that\s+)?")
_OFFER = r"(?:please|let\s+me\s+know|if\s+you|could\s+you|would\s+you|can\s+you|feel\s+free)"
_ADVICE = r"you\s+(?:may|might|could|can)\s+(?:want|wish|try|contact|check|consult|ask)"
_COURTESY = re.compile(rf"^(?:{_SORRY}|apolog|{_OFFER}\b|{_ADVICE}\b)")
_APOSTROPHES = str.maketrans("’ʼ`", "'''")


def declines(response: str) -> bool:
    """Whether a response does nothing but say that it has no answer.

    Args:
        response: the text. An empty one is no answer, and does not decline.

    Returns:
        True if one of its sentences declines and the others are courtesies.
    """
    found = False
    spans = sentence_spans(response)
    if len(spans) > _MOST_SENTENCES:
        return False
    for start, end in spans:
        sentence = " ".join(response[start:end].casefold().translate(_APOSTROPHES).split())
        said = _OPENING.sub("", sentence)
        if _CLAIMS.search(said):
            return False
        if _DECLINES.search(said):
            found = True
        elif not _COURTESY.search(sentence):
            return False
    return found
