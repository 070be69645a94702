"""The language of a text, by its script and its function words: enough to know what rules for English must not read.

Function words answer whether a text is English, and leave a text without any undecided. Where the extra ``languages``
is installed, py3langid's model answers instead. It decides about short texts as well and takes 76 MB of memory; it is
loaded in the background. Texts that are surely English by their function words are not given to it.

Of 160 short sentences in ten languages, py3langid names 152 rightly and none wrongly, these rules 105 and 4; of 90
questions 86 and 0, and 49 and 1. lingua is no better and takes 193 MB and five times as long; langid.py is wrong on 8
and 12. A text that stays undecided is read as English.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Final

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.runtime.lazy import BackgroundValue
from rageval_hooks.text.word_lists import WORD_LISTS
from rageval_hooks.text.words import STOP_WORDS, stem

_MIN_CONFIDENCE: Final = 0.6
"""Names and titles have less. Of 11,641 texts in English, one has more for another language."""

_TIMEOUT: Final = 60.0


ENGLISH: Final = "en"

LANGUAGES: Final[Mapping[str, str]] = WORD_LISTS["languages"]
"""Names of the languages that are recognised, by code."""

_FUNCTION_WORDS: Final[Mapping[str, str]] = WORD_LISTS["function_words"]
_BY_WORD: Final[dict[str, tuple[str, ...]]] = {
    word: tuple(code for code, words in _FUNCTION_WORDS.items() if word in words.split())
    for words in _FUNCTION_WORDS.values()
    for word in words.split()
}
_ENGLISH_WORDS: Final = frozenset(_FUNCTION_WORDS[ENGLISH].split())
# "a" and "no" are words of English, too.
_OTHER_WORDS: Final = frozenset(word for word, codes in _BY_WORD.items() if ENGLISH not in codes) - STOP_WORDS
# "Wann", "été", "a-t-il" as three words
_WORD: Final = re.compile(r"[^\W\d_]{1,20}")
# One character of each script that decides a language: は, 한, 橋, і, ж, …
_SCRIPTS: Final = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "zh": re.compile(r"[\u3400-\u9fff]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
}
# The same script in another language: Ukrainian, Persian.
_NEIGHBOURS: Final = {"ru": ("uk", re.compile("[іїєґ]", re.IGNORECASE)), "ar": ("fa", re.compile("[پچژگ]"))}
# One character of Greek, Cyrillic, Thai, Chinese or another script than Latin: ж, 橋.
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1dff\u2e80-\ufaff\U00020000-\U0003134f]")

_MAX_LENGTH: Final = 2_000
"""Characters that are read: a language shows in its first sentences."""

_MIN_SHARE: Final = 0.2
"""Share of the letters that another script must have."""

_MORE: Final = 2
"""A language must have so many times as many function words as English before English rules are given up."""

_MIN_WORDS: Final = 2

_SAMPLE: Final = 500
_MAX_SAMPLES: Final = 8
"""Characters of a passage, and passages, of which the language is read."""

_MIN_LETTERS: Final = 4
_MOSTLY: Final = 0.5
_LATIN: Final = "latin"

_SURELY_WORDS: Final = 4
"""Different function words of a text that is surely English."""
_SURELY: Final = 4
"""So many times as many as of other languages: "die" and "des" are in English texts as well."""


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
    identifier.set_languages([*LANGUAGES])

    # Several metrics ask about the same response.
    @lru_cache(maxsize=512)
    def detect(text: str) -> str | None:
        code, confidence = identifier.classify(text)
        return str(code) if confidence >= _MIN_CONFIDENCE and code in LANGUAGES else None

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
        if len(pattern.findall(text)) > _MIN_SHARE * letters:
            neighbour, sign = _NEIGHBOURS.get(code, (code, None))
            return neighbour if sign is not None and sign.search(text) else code
    counts = _count_function_words(text)
    best = max(_FUNCTION_WORDS, key=lambda code: counts[code])
    if counts[best] < _MIN_WORDS or (best != ENGLISH and counts[best] < _MORE * counts[ENGLISH]):
        return None
    return best


def _count_function_words(text: str) -> Counter[str]:
    return Counter(code for word in _WORD.findall(text) for code in _BY_WORD.get(word.lower(), ()))


def language_of(text: str) -> str | None:
    """Return the code of a text's language, for example ``"de"``; None if it is not clear.

    Never waits: while a detector loads, the rules answer.
    """
    beginning = text[:_MAX_LENGTH]
    # Most texts are surely English, and the others take ten times as long as this test.
    if is_surely_english(beginning):
        return ENGLISH
    detector = prepare_language_detection(wait=False)
    return language_by_rules(beginning) if detector is None else detector(beginning)


def is_surely_english(text: str, least: int = _SURELY_WORDS) -> bool:
    """Return True if a text has function words of English, ``least`` different ones, and a quarter as many others."""
    found = set(text.lower().split())
    is_english = len(found & _ENGLISH_WORDS) >= max(least, _SURELY * len(found & _OTHER_WORDS))
    return is_english and _OTHER_SCRIPT.search(text) is None


def other_language(text: str) -> str | None:
    """Return the name of a text's language if it is clear and not English, for example ``"German"``."""
    code = language_of(text)
    return None if code is None or code == ENGLISH else LANGUAGES[code]


@cache
def english_words() -> frozenset[str]:
    """Return the keys of English words that are no name, or are one besides ("rose"): scripts/word_lists.py."""
    # About 5 ms and 3 MB, for processes that check facts.
    text = files(__package__).joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))


def differs_in_script(text: str, passages: Sequence[str]) -> bool:
    """Return True if a text has characters of another script than Latin, and no passage has any."""
    return _OTHER_SCRIPT.search(text) is not None and not any(map(_OTHER_SCRIPT.search, passages))


def differs_in_language(text: str, passages: Sequence[str]) -> str | None:
    """Return the language of a text if it is another one than that of all passages; None if that is not clear.

    Args:
        text: an answer.
        passages: what it was written from.

    Returns:
        The language's name, or "unknown": a text without words of English, from English passages.
    """
    sample = "\n".join(passage[:_SAMPLE] for passage in passages[:_MAX_SAMPLES])
    # Most turns are in English, and this test takes a tenth of the time of the others.
    if is_surely_english(text, least=_MIN_WORDS) and is_surely_english(sample):
        return None
    own, theirs = language_of(text), language_of(sample)
    script, other_script = _script_of(text), _script_of(sample)
    if script and other_script and script != other_script:
        # A passage in the text's language is enough, of several.
        is_in_one = any(_script_of(passage[:_SAMPLE]) == script for passage in passages)
        return None if is_in_one else LANGUAGES.get(own or script, script.title())
    if theirs is None or own == theirs:
        return None
    counts = _count_function_words(text)
    if own is not None:
        # Swedish and Danish have many words in common: the evidence must be clear.
        is_clear = script != _LATIN or counts[own] >= max(_MIN_WORDS, _MORE * counts[theirs]) or not counts[theirs]
        # Names and menus of an English page may look like another language.
        if own == ENGLISH:
            read = " ".join(passage[:_MAX_LENGTH] for passage in passages[:_MAX_SAMPLES])
            is_clear = is_clear and _count_function_words(read)[ENGLISH] <= _MIN_WORDS
        is_in_one = any(language_of(passage[:_SAMPLE]) == own for passage in passages)
        if is_clear or is_in_one:
            return None if is_in_one else LANGUAGES[own]
    if theirs != ENGLISH or counts[ENGLISH] >= _MIN_WORDS:
        return None
    if any(language_of(passage[:_SAMPLE]) not in (ENGLISH, None) for passage in passages):
        return None
    known, lower_sample = english_words(), sample.lower()
    words = [word for word in _WORD.findall(text) if len(word) > 1 and word.lower() not in lower_sample]
    foreign = [word for word in words if stem(word.lower()) not in known and word.lower() not in _ENGLISH_WORDS]
    small = [word for word in words if word.islower()]
    small_foreign = [word for word in foreign if word.islower()]
    is_foreign = len(foreign) >= _MIN_WORDS and 0 < _MOSTLY * len(small) <= len(small_foreign)
    return "unknown" if is_foreign else None


def _script_of(text: str) -> str | None:
    """Return the script that most letters have: "latin", or the code of a language that it decides."""
    letters = [character for character in text[:_MAX_LENGTH] if character.isalpha()]
    if len(letters) < _MIN_LETTERS:
        return None
    for code, pattern in _SCRIPTS.items() if not text.isascii() else ():
        # Japanese has Chinese characters, too.
        if len(pattern.findall(text[:_MAX_LENGTH])) > (_MIN_SHARE if code == "ja" else 0.5) * len(letters):
            return code
    if sum(letter < "\u0250" for letter in letters) > len(letters) / 2:
        return _LATIN
    return unicodedata.name(letters[0], _LATIN).split()[0].lower()
