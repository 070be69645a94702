"""Further refusals in English, by the words of their clauses: less careful than the rules of ``english``."""

from __future__ import annotations

import re
from typing import Final

from rageval_hooks.text.declining.language import ClauseRules, word_pattern

__all__ = ["ENGLISH_CLAUSES"]

_FIRST: Final = word_pattern("i my me we our us i'm we're")
_SOURCE: Final = word_pattern(
    "documents? passages? texts? excerpts? sources? contexts? handbook manual guide knowledge_base documentation faq "
    "search_results articles? provided_information given_information"
)
_INFORMATION: Final = word_pattern("information answers? details? data mention* nothing anything")

ENGLISH_CLAUSES: Final = ClauseRules(
    negation=word_pattern(
        "not no cannot can't don't doesn't didn't couldn't isn't aren't wasn't weren't unable none "
        "nothing neither nor never without outside beyond insufficient impossible "
        "lack lacks missing silent unknown unclear decline fail* regret"
    ),
    rows=(
        # "I do not know whether …" "I'm not sure."
        (_FIRST, word_pattern("know_(?!of\\b) know$ sure certain aware")),
        # "I have no information about …"
        (_FIRST, _INFORMATION, word_pattern("have find found give provide see locate had")),
        # "I can't answer that." "I cannot find that in the documentation."
        (_FIRST, word_pattern("answer respond determine tell say find locate verify confirm")),
        # "I cannot assist with that request."
        (
            _FIRST,
            word_pattern("help assist comply fulfil* access"),
            word_pattern("with_th* this that request information data internet"),
        ),
        # "The documents do not state when …"
        (
            _SOURCE,
            word_pattern(
                "mention* state* specif* address* discuss* cover* say* indicate* describe* explain* "
                "tell* clarif* nothing anything"
            ),
        ),
        # "The documents do not include details on …"
        (_SOURCE, _INFORMATION, word_pattern("contain* provide* include* give* have has offer* available in")),
        (_SOURCE, word_pattern("answer* determine* outside beyond_the beyond_what found inferred")),
        # "The context is silent on this matter." "The text lacks information …"
        (_SOURCE, word_pattern("lack lacks missing silent unknown unclear clear fail* support*")),
        (_INFORMATION, word_pattern("lack missing insufficient enough sufficient")),
        (_FIRST, word_pattern("decline"), word_pattern("answer respond")),
        (word_pattern("search query"), word_pattern("return* yield* produced"), word_pattern("results nothing")),
        # "The question cannot be answered." "No relevant information was found."
        (word_pattern("question"), word_pattern("answer* possible")),
        (_INFORMATION, word_pattern("found available provided given")),
    ),
    claims=word_pattern(
        "however although except likely probably perhaps maybe possibly presumably only than which estimates "
        "that_(?!you\\b|i\\b|is_outside|based|in\\b|topic|request|question|information|point|with) "
        "and_(?:it|he|she|they|the)"
    ),
    # "so" in "so I can't say", "unfortunately" in "unfortunately the text is silent"
    connectors=re.compile(
        r"^(?:(?:unfortunately|sorry|regrettably|and|but|so|as|since|because|therefore|hence|thus|then|"
        r"i'm afraid|i am afraid) )+"
    ),
    # "The handbook describes the museum | but does not mention the fee" and "I don't know | because …"
    splits=re.compile(
        r"[,;:–—()]| - | (?=(?:because|so that|since|as) )| but | (?:and|so) (?=(?:i|we|therefore|do|does|"
        r"cannot|can't)\b)"
    ),
    # "…, based on the provided context, …", "… I don't want to guess"
    neutral=re.compile(
        r"(?:an ai|whether|if(?! you)|when|where|who|what|which|why|how) |"
        r"(?:based on|according to|from|in|with|given) (?:\w{1,30} ){0,6}(?:documents?|passages?|contexts?|"
        r"texts?|sources?|"
        r"information|excerpts?|handbook|documentation|available|provided)$|"
        r"(?:i )?(?:don't|do not|would rather not|prefer not to) (?:want to |wish to |like to )?(?:guess|speculate)"
    ),
    # "sorry about that", "let me know if …"
    courtesy=re.compile(
        r"(?:sorry|i'm (?:so |very )?(?:sorry|afraid)|i am (?:so |very )?(?:sorry|afraid)|unfortunately|i apologi[sz]e|"
        r"my apologies|let me know|i(?:'d| would) be (?:happy|glad)|i can help|is there anything)\b"
    ),
    # "the retrieved documents only discuss the museum"
    about_sources=re.compile(
        r"(?:the|these|those|my) (?:\w{1,30} ){0,3}(?:excerpts?|documents?|passages?|texts?|contexts?|sources?|"
        r"materials?|information) (?:only |mainly |mostly |primarily )?"
        r"(?:discuss|cover|describe|focus|talk|deal|concern|relate|are about|is about)\w{0,3}\b(?!.*\bthat\b)"
    ),
)
