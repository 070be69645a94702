"""The language of a text, by its script and its function words: enough to know what rules for English must not read.

Function words answer whether a text is English, and leave a text without any undecided. Where the extra ``languages``
is installed, py3langid's model answers instead. It decides about short texts as well and takes 76 MB of memory; it is
loaded in the background. Texts that are surely English by their function words are not given to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Final

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.runtime.lazy import BackgroundValue

# Without them, the detector would take "Broen blev åbnet i 1931" for Dutch.
_NEIGHBOURS: Final = "ar ca cs da el fa fi he hi hu id no pl ro ru sv th tr uk vi".split()

_LEAST_CONFIDENCE: Final = 0.6
"""Names and titles have less. Of 11,641 texts in English, one has more for another language."""

_TIMEOUT: Final = 60.0


ENGLISH: Final = "en"

LANGUAGES: Final = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
    "nl": "Dutch", "zh": "Chinese", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
"""Names of the languages that are recognised, by code."""

# Words that are frequent in one language; some are words of two, and count for both.
_FUNCTION_WORDS: Final = {
    "en": "the of and to in is was that for it on with as are this be by from at which what who when how where an were "
    "do does did you your can could should would have has had not or if they their there he she his her we i me my "
    "but about into than then more no so will may also",
    "de": "der die das und ist war den dem des ein eine einen nicht mit auf für von zu im wurde wann wie wer auch sich "
    "sie er es als bei nach über",
    "fr": "le la les des du et est était un une dans pour que qui sur avec par au aux il elle ce cette ne pas quand où "
    "été en plus",
    "es": "el la los las de del y es era un una en por para que con se su al lo como no cuándo quién dónde más fue",
    "it": "il lo la gli le di del della e è era un una in per che con si al alla da non quando chi dove nel sono più",
    "pt": "o os de da e é era um uma em por para que com se ao na não quando quem onde mais foi dos das",
    "nl": "de het een en is was van in op voor met dat die niet te zijn werd wanneer wie waar hoe ook bij aan door",
}
_BY_WORD: Final[dict[str, tuple[str, ...]]] = {
    word: tuple(code for code, words in _FUNCTION_WORDS.items() if word in words.split())
    for words in _FUNCTION_WORDS.values()
    for word in words.split()
}
_ENGLISH_WORDS: Final = frozenset(_FUNCTION_WORDS[ENGLISH].split())
_OTHER_WORDS: Final = frozenset(word for word, codes in _BY_WORD.items() if ENGLISH not in codes)
# "Wann", "été", "a-t-il" as three words
_WORD: Final = re.compile(r"[^\W\d_]{1,20}")
# One character of each script: は, 한, 橋.
_SCRIPTS: Final = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "zh": re.compile(r"[\u3400-\u9fff]"),
}
# One character of Greek, Cyrillic, Thai, Chinese or another script than Latin: ж, 橋.
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1dff\u2e80-\ufaff\U00020000-\U0003134f]")

_LONGEST: Final = 2_000
"""Characters that are read: a language shows in its first sentences."""

_LEAST_SHARE: Final = 0.2
"""Share of the letters that another script must have."""

_MORE: Final = 2
"""A language must have so many times as many function words as English before English rules are given up."""

_LEAST_WORDS: Final = 2

_SURELY_WORDS: Final = 4
"""Different function words of a text that is surely English."""


@cache
def _detector() -> BackgroundValue[Callable[[str], str | None]] | None:
    """Return the detector, which loads in the background; None without the package."""
    if find_spec("py3langid") is None:
        return None
    return BackgroundValue("language detector", _load, _TIMEOUT, "Languages are detected by their function words.")


def _load() -> Callable[[str], str | None]:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    # An instance of our own: the package's is shared with the application.
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages([*LANGUAGES, *_NEIGHBOURS])

    # Several metrics ask about the same response.
    @lru_cache(maxsize=512)
    def detect(text: str) -> str | None:
        code, confidence = identifier.classify(text)
        return str(code) if confidence >= _LEAST_CONFIDENCE and code in LANGUAGES else None

    return detect


def prepare_language_detection(*, wait: bool) -> Callable[[str], str | None] | None:
    """Load the detector if one is installed.

    Args:
        wait: wait until it is loaded. Never do this on a request's thread.

    Returns:
        The detector; None while it loads, if it cannot be loaded, or without the package.
    """
    value = _detector()
    if value is None:
        return None
    try:
        return value.get(wait=wait)
    except (ModelNotReadyError, ModelUnavailableError):  # a failure is logged where it is loaded
        return None


@lru_cache(maxsize=512)
def language_by_rules(text: str) -> str | None:
    """Return the code of a text's language by its script and its function words; None if it is not clear."""
    letters = 0 if text.isascii() else sum(map(str.isalpha, text))
    for code, pattern in _SCRIPTS.items() if letters else ():
        if len(pattern.findall(text)) > _LEAST_SHARE * letters:
            return code
    counts = Counter(code for word in _WORD.findall(text) for code in _BY_WORD.get(word.lower(), ()))
    best = max(_FUNCTION_WORDS, key=lambda code: counts[code])
    if counts[best] < _LEAST_WORDS or (best != ENGLISH and counts[best] < _MORE * counts[ENGLISH]):
        return None
    return best


def language_of(text: str) -> str | None:
    """Return the code of a text's language, for example ``"de"``; None if it is not clear.

    Never waits: while a detector loads, the rules answer.
    """
    detector, beginning = prepare_language_detection(wait=False), text[:_LONGEST]
    if detector is None:
        return language_by_rules(beginning)
    # Most texts are surely English, and the detector takes ten times as long as this test.
    return ENGLISH if is_surely_english(beginning) else detector(beginning)


def is_surely_english(text: str) -> bool:
    """Return True if a text has function words of English and none of another language; False if it may be English."""
    found = set(text.lower().split())
    is_english = len(found & _ENGLISH_WORDS) >= _SURELY_WORDS and found.isdisjoint(_OTHER_WORDS)
    return is_english and _OTHER_SCRIPT.search(text) is None


def other_language(text: str) -> str | None:
    """Return the name of a text's language if it is clear and not English, for example ``"German"``."""
    code = language_of(text)
    return None if code is None or code == ENGLISH else LANGUAGES[code]
