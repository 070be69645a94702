"""Sentences that repeat one of a passage with a negation added or left out: "Dogs are allowed", "Dogs are not allowed".

All other words must be the same in the same order, so that no difference in meaning is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple

from rageval_hooks.text.limits import Span
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import stem

# "not", "cannot", "n't" in "don't", "isn’t" and the tokenized "do n't"; not the "No," that answers a question. Also in
# German, French, Spanish, Italian, Portuguese and Dutch.
_NEGATION: Final = re.compile(
    r"(?<![^\W_])(?:not|no(?!,)|never|cannot|without|neither|nor|none|nobody"
    r"|nicht|kein(?:e[mnrs]?)?|niemals|pas|jamais|nunca|jamás|non(?!-)|não|niet|geen|nooit)(?![^\W_])"
    r"|(?<=[a-z ])n['’]t(?![^\W_])",
    re.IGNORECASE,
)
# "No, it did"
_NO: Final = re.compile(r"\W{0,5}no\b", re.IGNORECASE)

# How a sentence is read: "Yes, " is left out, and every negation of the sentence is written "not".
_READINGS: Final = (
    (re.compile(r"\A\W*(?:yes|no),"), ""),
    (re.compile(r"\bcan'?t\b|\bcannot\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r" ?n't\b|\bnever\b|\bno longer\b"), " not"),
    (re.compile(r"\b(there (?:is|are|was|were)) no\b"), r"\1 not"),
    (re.compile(r"\Aneither (.*) nor\b"), r"not \1 and"),
)
# Every sentence that a reading changes has one of these.
_HINTS: Final = ("n't", "cannot", "cant", "never", "no longer", "there ", "neither", "yes,", "no,")
_WORD: Final = re.compile(r"[^\W_]+(?:[.,'][^\W_]+)*")
_LEFT_OUT: Final = frozenset("not do does did a an any either".split())
# "not only" and "not until 8" deny something else, and two negations may say the same as none.
_UNCLEAR: Final = frozenset("no none nor neither without unless until only just merely hardly barely".split())
# "It is open" may be about anything.
_REFERRING: Final = frozenset("it he she they this that these those we i its his her their".split())

# Of a sentence, so no word is long.
_stem: Final = lru_cache(maxsize=16_384)(stem)

_MIN_WORDS: Final = 3
_MIN_PLAIN: Final = 5
_MAX_CHARACTERS: Final = 300


class Statement(NamedTuple):
    """A sentence as it is compared.

    Attributes:
        span: where it is in its text.
        words: its words, without the negation, "do" and articles.
        denied: True if it has a negation.
        did: True if it has "did", which puts its verb in the past.
    """

    span: Span
    words: tuple[str, ...]
    denied: bool
    did: bool


class Reversal(NamedTuple):
    """A sentence of a response that denies what a passage says, or says what it denies.

    Attributes:
        sentence: the sentence.
        passage: the number of the passage.
        other: the passage's sentence.
    """

    sentence: Span
    passage: int
    other: Span


def negates(sentence: str) -> bool:
    """Return True if a sentence has a negation, or answers "No,"."""
    return _NEGATION.search(sentence) is not None or _NO.match(sentence) is not None


def find_reversals(
    response: str, sentences: Sequence[Span], passages: Sequence[tuple[str, Set[str]]]
) -> Iterator[Reversal]:
    """Yield the sentences of a response that deny what a passage says, or say what it denies.

    A sentence that another passage repeats as it is, is not among them.

    Args:
        response: the response.
        sentences: its sentences.
        passages: the text of each passage, and the keys of its words.
    """
    said = _statements(response, sentences)
    # Few sentences have all their words in one passage, and few passages need to be read for them.
    near = {number for stems in said for number, (_, keys) in enumerate(passages) if _plain(stems) <= keys}
    has_negation = any(one.denied for same in said.values() for one in same)
    if not has_negation and not any(map(_may_deny, (passages[number][0] for number in near))):
        return
    read = {number: _statements(passages[number][0], sentence_spans(passages[number][0])) for number in sorted(near)}
    for stems, statements in said.items():
        same = [(number, other) for number, passage in read.items() for other in passage.get(stems, ())]
        for one in statements:
            alike = [(number, other) for number, other in same if _same_words(one, other)]
            if alike and all(other.denied != one.denied for _, other in alike):
                number, other = alike[0]
                yield Reversal(one.span, number, other.span)


def _statements(text: str, spans: Iterable[Span]) -> dict[tuple[str, ...], list[Statement]]:
    """Return the sentences of a text that can be compared, by the stems of their words.

    Questions cannot, and neither can sentences such as "It is open".
    """
    found: dict[tuple[str, ...], list[Statement]] = {}
    for start, end in spans:
        if end - start > _MAX_CHARACTERS or text[end - 1] == "?":
            continue
        sentence = text[start:end].lower().replace("’", "'")
        if _is_changed(sentence):
            for pattern, reading in _READINGS:
                sentence = pattern.sub(reading, sentence)
        every = _WORD.findall(sentence)
        words = tuple(word for word in every if word not in _LEFT_OUT)
        is_unclear = every.count("not") > 1 or not _UNCLEAR.isdisjoint(words)
        if is_unclear or len(words) < _MIN_WORDS or words[0] in _REFERRING:
            continue
        statement = Statement((start, end), words, "not" in every, "did" in every)
        found.setdefault(tuple(map(_stem, words)), []).append(statement)
    return found


def _may_deny(passage: str) -> bool:
    text = passage.lower().replace("’", "'")
    return "not" in text or _is_changed(text)


def _is_changed(text: str) -> bool:
    """Return True if a text in lower case may be read in another way than it is written."""
    return any(map(text.__contains__, _HINTS))


def _plain(stems: Iterable[str]) -> set[str]:
    """Return the stems that are keys of a text's words for sure: "will" stands for "won't", and "us" may be "US"."""
    return {word for word in stems if len(word) >= _MIN_PLAIN and word.isascii() and word.isalpha()}


def _same_words(one: Statement, other: Statement) -> bool:
    """Return True if the words differ by "opens" and "open" at most, or by "opened" and "did open"."""
    pairs = zip(one.words, other.words, strict=True)
    past = one.did != other.did
    return all(a == b or _ending(a) == _ending(b) or (past and "ed" in (_ending(a), _ending(b))) for a, b in pairs)


def _ending(word: str) -> str:
    return next((ending for ending in ("ed", "ing", "ly") if word.endswith(ending)), "")
