"""What a text says, by rules alone: sentences, words, numbers, dates, facts and citations. No model is needed.

Import each from its module, for example ``from rageval_hooks.text.sentences import sentence_spans``: compiling the
regular expressions of all modules takes a tenth of a second, which importing the package must not cost.
"""

from rageval_hooks.text.limits import (
    MAX_COUNTED_CHARACTERS,
    MAX_EMBEDDED_CHARACTERS,
    MAX_PASSAGE_CHARACTERS,
    MAX_PASSAGES,
    MAX_QUERY_CHARACTERS,
    MAX_RESPONSE_CHARACTERS,
    PIECE_CHARACTERS,
)

__all__ = [
    "MAX_COUNTED_CHARACTERS",
    "MAX_EMBEDDED_CHARACTERS",
    "MAX_PASSAGES",
    "MAX_PASSAGE_CHARACTERS",
    "MAX_QUERY_CHARACTERS",
    "MAX_RESPONSE_CHARACTERS",
    "PIECE_CHARACTERS",
]
