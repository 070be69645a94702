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
# "cannot", "couldn't", "do not", "doesn't"
_CAN_NOT = r"(?:can ?not|can't|could not|couldn't)"
_DO_NOT = r"(?:do not|don't|did not|didn't)"
_DOES_NOT = rf"(?:{_DO_NOT}|does not|doesn't)"
# "i cannot", "i'm unable to", "we were not able to"
_I_CANNOT = rf"(?:i {_CAN_NOT}|(?:i am|i'm|i was) (?:unable|not able) to)"
_WE_CANNOT = rf"(?:{_I_CANNOT}|we {_CAN_NOT}|(?:we are|we're|we were) (?:unable|not able) to)"
# "explicitly " in "does not explicitly mention"
_PLAINLY = r"(?:(?:actually|clearly|currently|directly|explicitly|specifically) )?"
# "provided" and "documents" in "the provided documents"
_KIND = r"(?:available|given|listed|provided|reference|relevant|retrieved|search|source|supplied)"
_TEXTS = r"(?:documents?|information|materials?|results?|sources?|texts?)"
# "the ", "any of these ", "the retrieved "
_THE = rf"(?:any of )?(?:(?:my|our|that|the|these|this|those|your) )?(?:{_KIND} )?"
# "passages", "provided information", "documents given": only the prompt of a RAG application is called so
_PROMPT = (
    rf"(?:contexts?|excerpts?|passages?|(?:given|provided|retrieved|supplied) {_TEXTS}|{_TEXTS} (?:given|provided))"
)
# "handbook", "source documents": people ask about these, too
_BOOK = rf"(?:documentation|documents?|handbook|knowledge base|sources?|texts?|{_KIND} {_TEXTS})"
# " above", " that you provided"
_GIVEN = r"(?: (?:above|available|given|here|provided|retrieved|supplied)| (?:that )?(?:i have|you (?:gave|provided)))?"
# "the documents above", "in the documents above"
_SOURCE = rf"{_THE}(?:{_PROMPT}|{_BOOK}){_GIVEN}"
_IN_SOURCE = rf"(?:based on|by|from|in|using|with|within) {_SOURCE}"
# "any further " in "i don't have any further information"
_SOME = r"(?:(?:an?|any|enough|further|more|necessary|relevant|specific|sufficient|such|that|the|this) ){0,3}"
# "not enough relevant " in "not enough relevant information"
_NO = r"(?:insufficient|no|not any|not enough) (?:(?:direct|explicit|further|relevant|specific|such) ){0,2}"
# " about" and the end of a sentence, both after "information"
_OF = r"(?:about|as to|available|based on|concerning|for|from|in|on|regarding|to (?:answer|determine|say|tell))"
_ABOUT = rf"(?:{_END}| {_OF}\b)"
_INFORMATION = rf"(?:answers?|context|data|details?|information){_ABOUT}"
# "no information is available"
_NO_INFORMATION = rf"{_NO}information(?: (?:is|was))?(?: (?:available|found|given|provided))?"
# "it", "this specific question"
_QUESTION = r"(?:it|(?:that|the|this|your)(?: (?:specific )?(?:query|question|request))?)"
# "the price of the ticket": any words up to the verb, without a comma
_PLAIN = r"(?:(?!\b(?:are|had|has|have|is|was|were|which|who)\b)[^,])*"
# "mention" and "contain" in "the text does not mention"; "stated" in "is not stated in the text"
_TELL = r"(?:address|answer|discuss|mention|say|specify|state|tell)"
_HOLD = r"(?:contain|cover|describe|explain|give|include|indicate|list|provide|refer to)"
_TOLD = r"(?:addressed|described|discussed|found|given|mentioned|provided|specified|stated)"

_RULES = (
    # i don't know when it opened
    rf"i {_DO_NOT} {_PLAINLY}know(?! (?:an?|any\w*|how any\w*|many|of|that \w+|why)\b)",
    # we do not know the answer.
    rf"we {_DOES_NOT} {_PLAINLY}know(?: (?:that|the answer|this))?{_END}",
    # i have no idea when it opened
    rf"i have no idea(?: (?:about|how|if|what|when|where|whether|which|who)\b|{_END})",
    # i don't have access to any information about the pier
    rf"(?:i|we) {_DO_NOT} {_PLAINLY}have (?:access to )?{_SOME}{_INFORMATION}",
    # i could not find any relevant information on the pier
    rf"{_WE_CANNOT} (?:determine|find|give|locate|provide|see) (?:you )?{_SOME}{_INFORMATION}",
    # i cannot determine the price from the provided documents.
    rf"{_WE_CANNOT} (?:answer|determine|find|locate|say|see|tell) [^,]*\b{_IN_SOURCE}{_END}",
    # we cannot answer this question.
    rf"{_WE_CANNOT} (?:answer|help with|respond to) {_QUESTION}{_END}",
    # i'm unable to answer.
    rf"{_I_CANNOT} (?:answer|help|respond|say|tell){_END}",
    # the provided context does not mention a price
    rf"{_THE}{_PROMPT}{_GIVEN} {_DOES_NOT} {_PLAINLY}(?:{_TELL}|{_HOLD})\b(?! (?:for|that)\b)",
    # the handbook does not say when it opened
    rf"{_SOURCE} {_DOES_NOT} {_PLAINLY}{_TELL}\b(?! that\b)",
    # the documents do not contain any information about the pier
    rf"{_SOURCE} {_DOES_NOT} {_PLAINLY}(?:{_HOLD}|have) {_SOME}{_INFORMATION}",
    # there is no information on the pier
    rf"(?:there (?:are|is|was)|there's|(?:i|we) (?:found|have)|i see) {_NO}(?:data|details?|information){_ABOUT}",
    # no information about the price is available.
    rf"{_NO_INFORMATION}(?: (?:about|on|regarding)\b[^,]*| {_IN_SOURCE})?{_END}",
    # the price is not mentioned in the passages.
    rf"{_PLAIN}\b(?:are|is|was|were) not {_PLAINLY}{_TOLD} (?:anywhere )?{_IN_SOURCE}{_END}",
    # the price cannot be determined from the context.
    rf"{_PLAIN}\b{_CAN_NOT} be (?:answered|determined|found|inferred) {_IN_SOURCE}{_END}",
    # this question cannot be answered.
    rf"{_QUESTION} {_CAN_NOT} be answered{_END}",
    # none of the documents mention a price
    rf"none of {_SOURCE} (?:{_TELL}|{_HOLD})s?\b(?! (?:for|that)\b)",
    # there is no mention of a price in the documents.
    rf"there (?:is|was) no mention of [^,]*\b{_IN_SOURCE}{_END}",
    # the answer to this question is not in the context.
    rf"(?:the|an) answer(?: to {_QUESTION})? is not {_IN_SOURCE}{_END}",
    # no answer found.
    rf"(?:no answer(?: found)?|not answerable|unanswerable)(?: {_IN_SOURCE})?{_END}",
    # it is not possible to answer this question based on the context.
    rf"(?:it is (?:impossible|not possible)|unable) to (?:answer|determine)(?: {_QUESTION})?(?: {_IN_SOURCE})?{_END}",
    # unable to find any relevant information.
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
# "unfortunately, ", "i'm sorry, but "
_OPENING = re.compile(rf"^{_SORRY}\W+(?:but |that )?")
# "based on the provided context, "
_LEAD = re.compile(rf"^(?:according to {_SOURCE}|{_IN_SOURCE}), ")
# " for the inconvenience" in "sorry for the inconvenience"
_FOR_WHAT = r"(?: (?:about|for) (?:that|this|(?:any|the) (?:confusion|inconvenience)))?"
# "i'm very sorry", "we apologize for the confusion"
_APOLOGY = rf"(?:{_SORRY}|(?:i|we) apologi[sz]e){_FOR_WHAT}"
# "if you have more details, please share", "if you tell me the year, i can look again"
_OFFER = (
    r"if you\b.*\b(?:feel free|(?:glad|happy) to|i (?:can|could|may|might|will|would)|i'(?:d|ll)|let me know|"
    r"please (?:ask|clarify|give|provide|rephrase|share|tell))\b"
)
# "please contact the office", "could you rephrase your question?"
_REQUEST = (
    r"(?:feel free|let me know|(?:can|could|would) you(?=.*\?$)|please (?:ask|check|clarify|consult|contact|"
    r"feel free|give|let|provide|refer|rephrase|share|specify|tell|try|upload|visit))"
)
# "you may want to contact the office"
_ADVICE = r"you (?:could|may|might) (?:try|(?:want|wish) to (?:check|consult|contact|refer|try)(?! (?:in|on|out)))"
# "sorry.", or an offer, a request or an advice; all without a digit, since a number may be the answer
_COURTESY = re.compile(rf"^(?=[^\d:;(–—]*$)(?:{_APOLOGY}{_END}|{_OFFER}|(?:{_REQUEST}|{_ADVICE})\b[^,]*$)")


def declines(sentence: str) -> bool:
    """Return True if a sentence, in lower case and with single spaces, declines and claims nothing."""
    said = _LEAD.sub("", _OPENING.sub("", sentence))
    return _DECLINES.match(said) is not None and _CLAIMS.search(said) is None


def is_courtesy(sentence: str) -> bool:
    """Return True if a sentence is only polite."""
    return _COURTESY.match(sentence) is not None
