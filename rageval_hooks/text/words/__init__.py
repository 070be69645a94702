"""Words of a text, the keys by which they are compared, and their weights."""

from rageval_hooks.text.words.readings import STOP_WORDS, Kind, Reading, fold, stem
from rageval_hooks.text.words.splitting import (
    FUNCTION_WEIGHT,
    NAME_WEIGHT,
    WORD_WEIGHT,
    Blocked,
    WeighedWord,
    Word,
    Words,
    blank_marks,
    content_keys,
    weighed_words,
    words,
    words_of,
)

__all__ = [
    "FUNCTION_WEIGHT",
    "NAME_WEIGHT",
    "STOP_WORDS",
    "WORD_WEIGHT",
    "Blocked",
    "Kind",
    "Reading",
    "WeighedWord",
    "Word",
    "Words",
    "blank_marks",
    "content_keys",
    "fold",
    "stem",
    "weighed_words",
    "words",
    "words_of",
]
