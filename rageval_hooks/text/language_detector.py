"""Language detection by py3langid, where the extra ``languages`` is installed.

It decides about short texts, which function words leave undecided, and takes 76 MB of memory. It is loaded in the
background; until then, and without the package, :mod:`rageval_hooks.text.language` has its rules.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.runtime.lazy import BackgroundValue

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

__all__ = ["LanguageDetector", "loaded_detector"]

# Without them, the detector would take "Broen blev åbnet i 1931" for Dutch.
_NEIGHBOURS: Final = "ar ca cs da el fa fi he hi hu id no pl ro ru sv th tr uk vi".split()

_LEAST_CONFIDENCE: Final = 0.6
"""Names and titles have less. Of 11,641 texts in English, one has more for another language."""

_TIMEOUT: Final = 60.0


class LanguageDetector:
    """Detects some languages, and tells them from their neighbours.

    Args:
        identifier: the model. It is restricted to the languages.
        languages: the codes of the languages.
    """

    def __init__(self, identifier: LanguageIdentifier, languages: Collection[str]) -> None:
        identifier.set_languages([*languages, *_NEIGHBOURS])
        self._identifier = identifier
        self._languages = frozenset(languages)
        # Several metrics ask about the same response.
        self.language_of = lru_cache(maxsize=512)(self._language_of)

    def _language_of(self, text: str) -> str | None:
        """Return the code of a text's language; None for another language, or if it is not clear."""
        code, confidence = self._identifier.classify(text)
        if confidence < _LEAST_CONFIDENCE or code not in self._languages:
            return None
        return str(code)


def loaded_detector(languages: Collection[str], *, wait: bool = False) -> LanguageDetector | None:
    """Return the detector; None while it loads, if it cannot be loaded, or without the package.

    Args:
        languages: the codes of the languages; the same in every call.
        wait: wait until it is loaded. Never do this on a request's thread.
    """
    value = _background(tuple(languages))
    if value is None:
        return None
    try:
        return value.get(wait=wait)
    except (ModelNotReadyError, ModelUnavailableError):  # a failure is logged where it is loaded
        return None


@cache
def _background(languages: tuple[str, ...]) -> BackgroundValue[LanguageDetector] | None:
    if find_spec("py3langid") is None:
        return None
    otherwise = "Languages are detected by their function words."
    return BackgroundValue("language detector", lambda: _load(languages), _TIMEOUT, otherwise)


def _load(languages: Collection[str]) -> LanguageDetector:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    # An instance of our own: the package's is shared with the application.
    return LanguageDetector(LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True), languages)
