"""Keys for sentences in judge prompts: ``0a``, ``0b``, ``1a`` … in passages, ``a``, ``b`` … in a response."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rageval_hooks.text.limits import Span
from rageval_hooks.text.sentences import sentence_spans

_AROUND = f"{string.punctuation}{string.whitespace}“”‘’«»…\u00a0"


@dataclass(frozen=True)
class KeyedSentence:
    """A sentence and its key.

    Attributes:
        key: unique within the passages, or within the response.
        text: the sentence on one line. White space is folded, so that no text can begin a line with a forged key.
        passage: the index of its passage, from 0; None for a sentence of the response.
        span: the position in its text, as (start, end).
    """

    key: str
    text: str
    passage: int | None
    span: Span


def letters(index: int) -> str:
    """Return the letters for a number from 0: a to z, then aa, ab, and so on.

    Example:
        >>> [letters(index) for index in (0, 25, 26, 51, 52, 701, 702)]
        ['a', 'z', 'aa', 'az', 'ba', 'zz', 'aaa']
    """
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def key_passages(passages: Iterable[str]) -> list[KeyedSentence]:
    """Split passages into sentences with keys: the passage's index from 0, then letters.

    A sentence without a letter or digit, for example a horizontal rule, gets no key.
    """
    return [
        sentence
        for number, text in enumerate(passages)
        for sentence in _keyed(text, sentence_spans(text), str(number), number)
    ]


def key_response(response: str, sentences: Sequence[Span] | None = None) -> list[KeyedSentence]:
    """Split a response into sentences with letters as keys. A sentence without a letter or digit gets no key.

    Args:
        response: the response.
        sentences: its sentences, if they are already known.
    """
    return _keyed(response, sentence_spans(response) if sentences is None else sentences, "", None)


def _keyed(text: str, spans: Iterable[Span], prefix: str, passage: int | None) -> list[KeyedSentence]:
    said = [span for span in spans if any(map(str.isalnum, text[span[0] : span[1]]))]
    return [
        KeyedSentence(f"{prefix}{letters(index)}", " ".join(text[start:end].split()), passage, (start, end))
        for index, (start, end) in enumerate(said)
    ]


def plain_key(key: str) -> str:
    """Return the normal form of a key that is written in capitals, in brackets or with a colon.

    Example:
        >>> [plain_key(key) for key in ("0a", "[0A]", " (b):", "“1c”.")]
        ['0a', '0a', 'b', '1c']
    """
    return key.casefold().strip(_AROUND)
