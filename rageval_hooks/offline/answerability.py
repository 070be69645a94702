"""Questions that the documents do not answer: a refusal is the right response to them."""

from __future__ import annotations

from rageval_hooks.privacy import REDACTED
from rageval_hooks.text.language import language_of, prepare_language_detection
from rageval_hooks.text.refusals import says_nothing

UNANSWERABLE = "the question is marked as unanswerable"
"""Why metrics that need an answer are skipped."""

# Languages whose refusals the rules know.
_WITH_RULES = frozenset({"en", "de", "fr", "es", "it"})

_FEW_WORDS = 5


def is_refusal(response: str) -> bool | None:
    """Return True if a response claims nothing, by rules; None if they do not know its language, or it is hidden.

    An empty response is a refusal here: it claims nothing.
    """
    if response == REDACTED:
        return None
    if not response.strip() or says_nothing(response):
        return True
    prepare_language_detection(wait=True)
    language = language_of(response)
    if language is None:
        # A text of few words has no clear language; an answer such as "18 minutes" is one.
        return False if len(response.split()) <= _FEW_WORDS else None
    return False if language in _WITH_RULES else None
