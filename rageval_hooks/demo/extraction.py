"""The stand-in for a language model in the demo, which copies sentences, and the error for the scores to find."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.demo.handbook import QUESTIONS
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, words

__all__ = ["EXTRACTIVE", "content_words", "extract", "slip"]

EXTRACTIVE = "extractive-demo"
"""The model name of the stand-in."""


def extract(question: str, passages: Iterable[str], most: int = 2) -> str:
    """Return the sentences of the passages that share most words with the question, in their original order."""
    wanted = content_words(question)
    ranked: list[tuple[float, int, str]] = []
    for rank, passage in enumerate(passages):
        about = len(wanted & content_words(passage))
        for start, end in sentence_spans(passage):
            sentence = passage[start:end]
            # A sentence of a passage about the question is worth more, and an earlier passage more than a later one.
            shared = len(wanted & content_words(sentence)) + 0.5 * about - 0.1 * rank
            ranked.append((shared, len(ranked), sentence))
    best = sorted(ranked, key=lambda item: (-item[0], item[1]))[:most]
    return " ".join(sentence for _, _, sentence in sorted(best, key=lambda item: item[1]))


def content_words(text: str) -> set[str]:
    """Return the words of a text without stop words."""
    return {word.key for word in words(text) if word.key not in STOP_WORDS}


def slip(asked: str, answer: str) -> str:
    """Put a wrong number into the answer to the question that demonstrates it."""
    for question in QUESTIONS:
        if question.text == asked and question.slip is not None:
            right, wrong = question.slip
            answer = answer.replace(right, wrong)
    return answer
