"""Keys by which a judge names sentences: ``0a``, ``0b``, ``1a`` … in passages, ``a``, ``b`` … in a response."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rageval_hooks.text.sentences import Span, sentence_spans

__all__ = ["KeyedSentence", "key_passages", "key_response", "letters", "plain_key"]

_AROUND = f"{string.punctuation}{string.whitespace}“”‘’«»…\u00a0"


@dataclass(frozen=True)
class KeyedSentence:
    """A sentence and its key.

    Attributes:
        key: unique within the passages, or within the response.
        text: the sentence on one line: white space is folded, so that no text can begin a line with a key of its own.
        passage: position of its passage, from 0; None for a sentence of the response.
        span: where it stands, as (start, end).
    """

    key: str
    text: str
    passage: int | None
    span: Span


def letters(index: int) -> str:
    """Return the letters for a number from 0: a to z, then aa, ab and so on.

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
    """Cut passages into sentences with keys: the passage's number from 0, then letters.

    What has no letter or digit in it, a rule or the fence of a block, has no key.
    """
    return [
        KeyedSentence(f"{number}{letters(index)}", _one_line(text, span), number, span)
        for number, text in enumerate(passages)
        for index, span in enumerate(_said(text, sentence_spans(text)))
    ]


def key_response(response: str, sentences: Sequence[Span] | None = None) -> list[KeyedSentence]:
    """Cut a response into sentences with keys: letters. What has no letter or digit in it has no key.

    Args:
        response: the response.
        sentences: its sentences, if they are known.
    """
    spans = sentence_spans(response) if sentences is None else sentences
    return [
        KeyedSentence(letters(index), _one_line(response, span), None, span)
        for index, span in enumerate(_said(response, spans))
    ]


def _said(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    return (span for span in spans if any(map(str.isalnum, text[span[0] : span[1]])))


def _one_line(text: str, span: Span) -> str:
    return " ".join(text[span[0] : span[1]].split())


def plain_key(key: str) -> str:
    """Return a key as we write it, for one that is written in capitals, in brackets or with a colon.

    Example:
        >>> [plain_key(key) for key in ("0a", "[0A]", " (b):", "“1c”.")]
        ['0a', '0a', 'b', '1c']
    """
    return key.casefold().strip(_AROUND)
