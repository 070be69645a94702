"""Refusals in English: rules for whole sentences.

The rules are conservative: a response that also claims something does not decline. So every rule starts at the
beginning of a sentence and names what is missing, or where: "the cause could not be determined" is an answer, and so
is "we do not provide refunds".
"""

from __future__ import annotations

import re

__all__ = ["declines", "is_courtesy"]

_LONGEST = 300
"""Maximum length of a sentence that only declines, in characters."""

# The parts of the rules: what is missing, and where. They match sentences in lower case with single spaces.
_END = r"[ .!…]*$"
_CAN_NOT = r"(?:can ?not|can't|could not|couldn't)"
_DO_NOT = r"(?:do not|don't|did not|didn't)"
_DOES_NOT = rf"(?:{_DO_NOT}|does not|doesn't)"
_I_CANNOT = rf"(?:i {_CAN_NOT}|(?:i am|i'm|i was) (?:unable|not able) to)"
_WE_CANNOT = rf"(?:{_I_CANNOT}|we {_CAN_NOT}|(?:we are|we're|we were) (?:unable|not able) to)"
_PLAINLY = r"(?:(?:actually|clearly|currently|directly|explicitly|specifically) )?"
_KIND = r"(?:available|given|listed|provided|reference|relevant|retrieved|search|source|supplied)"
_TEXTS = r"(?:documents?|information|materials?|results?|sources?|texts?)"
_THE = rf"(?:any of )?(?:(?:my|our|that|the|these|this|those|your) )?(?:{_KIND} )?"
_PROMPT = (
    rf"(?:contexts?|excerpts?|passages?|(?:given|provided|retrieved|supplied) {_TEXTS}|{_TEXTS} (?:given|provided))"
)
_BOOK = rf"(?:documentation|documents?|handbook|knowledge base|sources?|texts?|{_KIND} {_TEXTS})"
_GIVEN = r"(?: (?:above|available|given|here|provided|retrieved|supplied)| (?:that )?(?:i have|you (?:gave|provided)))?"
_SOURCE = rf"{_THE}(?:{_PROMPT}|{_BOOK}){_GIVEN}"
_IN_SOURCE = rf"(?:based on|by|from|in|using|with|within) {_SOURCE}"
_SOME = r"(?:(?:an?|any|enough|further|more|necessary|relevant|specific|sufficient|such|that|the|this) ){0,3}"
_NO = r"(?:insufficient|no|not any|not enough) (?:(?:direct|explicit|further|relevant|specific|such) ){0,2}"
_OF = r"(?:about|as to|available|based on|concerning|for|from|in|on|regarding|to (?:answer|determine|say|tell))"
_ABOUT = rf"(?:{_END}| {_OF}\b)"
_INFORMATION = rf"(?:answers?|context|data|details?|information){_ABOUT}"
_NO_INFORMATION = rf"{_NO}information(?: (?:is|was))?(?: (?:available|found|given|provided))?"
_QUESTION = r"(?:it|(?:that|the|this|your)(?: (?:specific )?(?:query|question|request))?)"
_PLAIN = r"(?:(?!\b(?:are|had|has|have|is|was|were|which|who)\b)[^,])*"
_TELL = r"(?:address|answer|discuss|mention|say|specify|state|tell)"
_HOLD = r"(?:contain|cover|describe|explain|give|include|indicate|list|provide|refer to)"
_TOLD = r"(?:addressed|described|discussed|found|given|mentioned|provided|specified|stated)"

_RULES = (
    rf"i {_DO_NOT} {_PLAINLY}know(?! (?:an?|any\w*|how any\w*|many|of|that \w+|why)\b)",
    rf"we {_DOES_NOT} {_PLAINLY}know(?: (?:that|the answer|this))?{_END}",
    rf"i have no idea(?: (?:about|how|if|what|when|where|whether|which|who)\b|{_END})",
    rf"(?:i|we) {_DO_NOT} {_PLAINLY}have (?:access to )?{_SOME}{_INFORMATION}",
    rf"{_WE_CANNOT} (?:determine|find|give|locate|provide|see) (?:you )?{_SOME}{_INFORMATION}",
    rf"{_WE_CANNOT} (?:answer|determine|find|locate|say|see|tell) [^,]*\b{_IN_SOURCE}{_END}",
    rf"{_WE_CANNOT} (?:answer|help with|respond to) {_QUESTION}{_END}",
    rf"{_I_CANNOT} (?:answer|help|respond|say|tell){_END}",
    rf"{_THE}{_PROMPT}{_GIVEN} {_DOES_NOT} {_PLAINLY}(?:{_TELL}|{_HOLD})\b(?! (?:for|that)\b)",
    rf"{_SOURCE} {_DOES_NOT} {_PLAINLY}{_TELL}\b(?! that\b)",
    rf"{_SOURCE} {_DOES_NOT} {_PLAINLY}(?:{_HOLD}|have) {_SOME}{_INFORMATION}",
    rf"(?:there (?:are|is|was)|there's|(?:i|we) (?:found|have)|i see) {_NO}(?:data|details?|information){_ABOUT}",
    rf"{_NO_INFORMATION}(?: (?:about|on|regarding)\b[^,]*| {_IN_SOURCE})?{_END}",
    rf"{_PLAIN}\b(?:are|is|was|were) not {_PLAINLY}{_TOLD} (?:anywhere )?{_IN_SOURCE}{_END}",
    rf"{_PLAIN}\b{_CAN_NOT} be (?:answered|determined|found|inferred) {_IN_SOURCE}{_END}",
    rf"{_QUESTION} {_CAN_NOT} be answered{_END}",
    rf"none of {_SOURCE} (?:{_TELL}|{_HOLD})s?\b(?! (?:for|that)\b)",
    rf"there (?:is|was) no mention of [^,]*\b{_IN_SOURCE}{_END}",
    rf"(?:the|an) answer(?: to {_QUESTION})? is not {_IN_SOURCE}{_END}",
    rf"(?:no answer(?: found)?|not answerable|unanswerable)(?: {_IN_SOURCE})?{_END}",
    rf"(?:it is (?:impossible|not possible)|unable) to (?:answer|determine)(?: {_QUESTION})?(?: {_IN_SOURCE})?{_END}",
    rf"unable to find {_SOME}{_INFORMATION}",
)
# Anchored, since some rules begin with any words: tried at every position, they would take quadratic time.
_DECLINES = re.compile(rf"\A(?:{'|'.join(_RULES)})")
"""The beginning of a sentence that declines, for example "the context does not mention"."""

_CLAIMS = re.compile(
    r"[,:;(–—]| - |\b(?:although|apart|aside|because|besides?|beyond|but|except|hence|however|instead|likely|maybe|"
    r"only|perhaps|possibly|presumably|probably|since|so|than|therefore|though|thus|whereas|while|yet|"
    r"i (?:assume|believe|guess|suspect|think))\b|"
    rf"\band (?:.{{0,{_LONGEST}}}\d|"
    r"(?:an?|all|he|i|it|its|many|most|she|some|that|the|their|then|there|these|they|this|those|we|"
    r"you)\b)"
)
"""Words after which a declining sentence may still claim something, for example "but" or "probably"."""

# Courtesies, which claim nothing.
_SORRY = r"(?:(?:i'm|i am|we're|we are) (?:so |very )?(?:afraid|sorry)|sorry|unfortunately)"
_OPENING = re.compile(rf"^{_SORRY}\W+(?:but |that )?")
_LEAD = re.compile(rf"^(?:according to {_SOURCE}|{_IN_SOURCE}), ")
_FOR_WHAT = r"(?: (?:about|for) (?:that|this|(?:any|the) (?:confusion|inconvenience)))?"
_APOLOGY = rf"(?:{_SORRY}|(?:i|we) apologi[sz]e){_FOR_WHAT}"
_OFFER = (
    r"if you\b.*\b(?:feel free|(?:glad|happy) to|i (?:can|could|may|might|will|would)|i'(?:d|ll)|let me know|"
    r"please (?:ask|clarify|give|provide|rephrase|share|tell))\b"
)
_REQUEST = (
    r"(?:feel free|let me know|(?:can|could|would) you(?=.*\?$)|please (?:ask|check|clarify|consult|contact|"
    r"feel free|give|let|provide|refer|rephrase|share|specify|tell|try|upload|visit))"
)
_ADVICE = r"you (?:could|may|might) (?:try|(?:want|wish) to (?:check|consult|contact|refer|try)(?! (?:in|on|out)))"
_COURTESY = re.compile(rf"^(?=[^\d:;(–—]*$)(?:{_APOLOGY}{_END}|{_OFFER}|(?:{_REQUEST}|{_ADVICE})\b[^,]*$)")


def declines(sentence: str) -> bool:
    """Return True if a sentence, in lower case and with single spaces, declines and claims nothing."""
    said = _LEAD.sub("", _OPENING.sub("", sentence))
    return _DECLINES.match(said) is not None and _CLAIMS.search(said) is None


def is_courtesy(sentence: str) -> bool:
    """Return True if a sentence is only polite."""
    return _COURTESY.match(sentence) is not None
