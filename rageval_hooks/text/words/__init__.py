"""Words of a text, the keys by which they are compared, and their weights."""

from rageval_hooks.text.words.readings import (
    FUNCTION_WEIGHT,
    NAME_WEIGHT,
    STOP_WORDS,
    WORD_WEIGHT,
    Kind,
    Reading,
    fold,
    stem,
)
from rageval_hooks.text.words.splitting import (
    Blocked,
    Word,
    Words,
    blank_marks,
    content_keys,
    words,
    words_by_sentence,
    words_of,
)
from rageval_hooks.text.words.weighing import Line, WeighedWord, weighed_lines, weighed_words

__all__ = [
    "FUNCTION_WEIGHT",
    "NAME_WEIGHT",
    "STOP_WORDS",
    "WORD_WEIGHT",
    "Blocked",
    "Kind",
    "Line",
    "Reading",
    "WeighedWord",
    "Word",
    "Words",
    "blank_marks",
    "content_keys",
    "fold",
    "stem",
    "weighed_lines",
    "weighed_words",
    "words",
    "words_by_sentence",
    "words_of",
]
