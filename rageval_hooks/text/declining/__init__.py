"""Detect responses that decline to answer: in English, German, French, Spanish and Italian.

The rules are conservative: a response that also claims something does not decline. ``english`` has rules for whole
sentences, ``language`` those by the words of a clause, which the other languages fill with their words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rageval_hooks.text.declining import english
from rageval_hooks.text.declining.english_clauses import ENGLISH_CLAUSES
from rageval_hooks.text.declining.french import FRENCH
from rageval_hooks.text.declining.german import GERMAN
from rageval_hooks.text.declining.italian import ITALIAN
from rageval_hooks.text.declining.language import fold_accents
from rageval_hooks.text.declining.spanish import SPANISH
from rageval_hooks.text.sentences import sentence_spans

__all__ = ["declines", "says_nothing"]

_MOST_SENTENCES: Final = 5
_LONGEST: Final = 300
"""Maximum length of a sentence that only declines, in characters."""

_APOSTROPHES: Final = str.maketrans("’ʼ`", "'''")

_Test = Callable[[str], bool]
_CAREFUL: Final[tuple[tuple[_Test, _Test], ...]] = (
    (english.declines, english.is_courtesy),
    *((rules.declines, rules.is_courtesy) for rules in (GERMAN, FRENCH, SPANISH, ITALIAN)),
)
"""By language: whether a sentence declines, and whether it is only polite."""


def _declines_leniently(sentence: str) -> bool:
    return english.declines(sentence) or ENGLISH_CLAUSES.declines(sentence)


def _is_lenient_courtesy(sentence: str) -> bool:
    return english.is_courtesy(sentence) or ENGLISH_CLAUSES.is_courtesy(sentence)


_LENIENT: Final[tuple[tuple[_Test, _Test], ...]] = ((_declines_leniently, _is_lenient_courtesy), *_CAREFUL[1:])


def declines(response: str) -> bool:
    """Return True if a response only says that it has no answer.

    Args:
        response: the text. An empty text does not decline.

    Returns:
        True if at least one sentence declines and the others are courtesies, all in one language.
    """
    sentences = _sentences(response)
    return any(_all_decline(sentences, *tests) for tests in _CAREFUL)


def says_nothing(response: str) -> bool:
    """Return True if a response, or the beginning of a streamed one, claims nothing that a passage could support.

    Broader than :func:`declines`: courtesies alone count, and so do further ways to decline in English.
    """
    sentences = _sentences(response)
    if not sentences:
        return False
    return any(
        all(declining(sentence) or courteous(sentence) for sentence in sentences) for declining, courteous in _LENIENT
    )


def _all_decline(sentences: list[str], declining: _Test, courteous: _Test) -> bool:
    found = [declining(sentence) for sentence in sentences]
    if not any(found):
        return False
    return all(declined or courteous(sentence) for declined, sentence in zip(found, sentences, strict=True))


def _sentences(response: str) -> list[str]:
    """Return the sentences in lower case, without accents and with single spaces; none if one is too long."""
    if len(response) > _MOST_SENTENCES * _LONGEST:
        return []
    spans = sentence_spans(response)
    if len(spans) > _MOST_SENTENCES:
        return []
    # A second line may be a claim.
    if any(end - start > _LONGEST or len(response[start:end].splitlines()) > 1 for start, end in spans):
        return []
    return [" ".join(fold_accents(response[start:end].translate(_APOSTROPHES)).split()) for start, end in spans]
