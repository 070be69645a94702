"""The documents and questions of the demo, the search over them, and the stand-in for a language model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rageval_hooks.models import AnyEmbedder
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, words

EXTRACTIVE: Final = "extractive-demo"
"""The model name of the stand-in, which copies sentences of the passages."""

_PASSAGES: Final = 4


@dataclass(frozen=True)
class HandbookSection:
    """One passage of the handbook."""

    id: str
    text: str


@dataclass(frozen=True)
class DemoQuestion:
    """A question of the demo.

    Attributes:
        text: the question.
        slip: a number in the answer and the wrong one that the demo puts in its place.
        note: what the scores of the answer show; empty for an ordinary question.
    """

    text: str
    slip: tuple[str, str] | None = None
    note: str = ""


QUESTIONS: tuple[DemoQuestion, ...] = (
    DemoQuestion("How long does the crossing from Ardwell to Hallay take?"),
    DemoQuestion("When was the Skerrin Isles Ferry company founded, and by whom?"),
    DemoQuestion("How much does it cost to charge an electric car on the Aurora of Vaila?"),
    DemoQuestion("Can I take my dog on the night boat?"),
    DemoQuestion(
        "How long is the new pier on Hallay and what did it cost?",
        slip=("14.2 million", "41.2 million"),
        note="the demo puts a wrong number into this answer, and the verdict names it",
    ),
    DemoQuestion(
        "Which hotels on Vaila have a swimming pool?",
        note="the handbook has no answer: the passages are about other topics",
    ),
)


def load_handbook() -> list[HandbookSection]:
    """Return the sections of the handbook, from the repository or from the installed package.

    Raises:
        FileNotFoundError: both are missing.
    """
    package = Path(__file__).resolve().parent
    for path in (package.parents[1] / "examples" / "handbook" / "passages.md", package / "passages.md"):
        if path.is_file():
            # A heading such as "## ferries-3" names the section that follows.
            parts = re.split(r"^## (\S+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
            pairs = zip(parts[::2], parts[1::2], strict=True)
            return [HandbookSection(id=name, text=body.strip()) for name, body in pairs]
    raise FileNotFoundError("the demo's documents (examples/handbook/passages.md) are missing")


def search_in(
    sections: Sequence[HandbookSection], embedder: AnyEmbedder
) -> Callable[[str], list[tuple[HandbookSection, float]]]:
    """Return a function that finds the sections that are most similar to a question, each with its similarity.

    Args:
        sections: what is searched.
        embedder: that of the evaluation, so that its weights are loaded once.
    """
    embed: Callable[[str], Any] = embedder.embed
    embeddings = [embed(section.text) for section in sections]

    def search(question: str) -> list[tuple[HandbookSection, float]]:
        wanted = embed(question)
        found = [(section, float(wanted.cosine(one))) for section, one in zip(sections, embeddings, strict=True)]
        return sorted(found, key=lambda pair: -pair[1])[:_PASSAGES]

    return search


def extract(question: str, passages: Iterable[str]) -> str:
    """Return the two sentences of the passages that share most words with the question, in their original order."""
    wanted = _content_words(question)
    ranked: list[tuple[float, int, str]] = []
    for rank, passage in enumerate(passages):
        about = len(wanted & _content_words(passage))
        for start, end in sentence_spans(passage):
            sentence = passage[start:end]
            # A sentence of a passage about the question is worth more, and an earlier passage more than a later one.
            shared = len(wanted & _content_words(sentence)) + 0.5 * about - 0.1 * rank
            ranked.append((shared, len(ranked), sentence))
    best = sorted(ranked, key=lambda item: (-item[0], item[1]))[:2]
    return " ".join(sentence for _, _, sentence in sorted(best, key=lambda item: item[1]))


def _content_words(text: str) -> set[str]:
    """Return the words of a text without stop words."""
    return {word.key for word in words(text) if word.key not in STOP_WORDS}


def slip(asked: str, answer: str) -> str:
    """Put a wrong number into the answer to the question that demonstrates it."""
    for question in QUESTIONS:
        if question.text == asked and question.slip is not None:
            right, wrong = question.slip
            answer = answer.replace(right, wrong)
    return answer
