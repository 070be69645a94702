"""Named entities and concepts, found by a spaCy pipeline."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, TypeVar

from rageval_hooks.errors import ModelUnavailableError, requires
from rageval_hooks.models.sources import is_path
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.settings import ModelSettings

T = TypeVar("T")

_FILLERS = frozenset(
    """
    tell explain describe show give say mention list name know want need like wonder help ask answer question find
    look see let please thank thing way kind sort lot information detail example
    """.split()
)
"""Words that say how a question is asked, not what it is about."""

# What the pipeline reads at once: at most 20,000 characters, cut after white space if possible.
_PIECE = re.compile(r"(?s).{1,20000}(?:(?<=\s)|\Z)|.{1,20000}")


@dataclass(frozen=True)
class Entity:
    """A named entity: its text as it is written, and its kind as the pipeline names it."""

    text: str
    kind: str


class Nlp:
    """Finds entities in responses and concepts in queries.

    Args:
        pipeline: a ``spacy.Language``.
        name: the pipeline's name, which is recorded with its scores.
    """

    def __init__(self, pipeline: Any, name: str) -> None:
        self._pipeline = pipeline
        self._lock = ForkSafeLock()
        self.name = name

    def entities(self, text: str, pause: Callable[[], None] = lambda: None) -> list[Entity]:
        """Return the named entities of a text, in order.

        Args:
            text: the text; it is read in pieces of 20,000 characters, cut after white space.
            pause: called before each piece; what it raises stops the work.

        Raises:
            ModelUnavailableError: the pipeline has no entity recogniser.
        """
        self._need("entity recogniser (ner)", "ner", "entity_ruler", "span_ruler")
        # Pipelines find entities in runs of line breaks, too.
        return self._read(
            text, pause, lambda doc: (Entity(ent.text, ent.label_) for ent in doc.ents if ent.text.strip())
        )

    def concepts(self, query: str, pause: Callable[[], None] = lambda: None) -> list[str]:
        """Return what a query asks for: its noun chunks without leading stop words, and its verbs, without fillers.

        Args:
            query: the query; read in pieces like a text of :meth:`entities`.
            pause: called before each piece; what it raises stops the work.

        Raises:
            ModelUnavailableError: the pipeline cannot find noun chunks or verbs.
        """
        self._need("parser, which noun chunks need", "parser")
        self._need("tagger, which verbs need", "tagger", "morphologizer")
        if self._pipeline.vocab.get_noun_chunks is None:
            raise ModelUnavailableError("nlp", f"{self.name} finds no noun chunks: spaCy has no rules for its language")
        # "The Pier" and "the pier" are one concept, as it is written first.
        found: dict[str, str] = {}
        for concept in self._read(query, pause, _concepts):
            found.setdefault(concept.casefold(), concept)
        return list(found.values())

    def lemmas(self, text: str, pause: Callable[[], None] = lambda: None) -> frozenset[str]:
        """Return the lemmas of a text's words in lower case: "wake" for "woken". Empty without a lemmatizer."""
        if "lemmatizer" not in self._pipeline.pipe_names:
            return frozenset()
        return frozenset(self._read(text, pause, lambda doc: (token.lemma_.lower() for token in doc if token.is_alpha)))

    def _need(self, what: str, *components: str) -> None:
        if not set(components).intersection(self._pipeline.pipe_names):
            raise ModelUnavailableError("nlp", f"{self.name} has no {what}")

    def _read(self, text: str, pause: Callable[[], None], extract: Callable[[Any], Iterable[T]]) -> list[T]:
        found: list[T] = []
        for piece in _PIECE.findall(text):
            pause()
            # The zone frees the strings that this text adds to the vocabulary. Without it memory grows without bound.
            with self._lock, self._pipeline.memory_zone():
                found += extract(self._pipeline(piece))
        return found


def _concepts(doc: Any) -> Iterator[str]:
    chunked: set[int] = set()
    for chunk in doc.noun_chunks:
        chunked.update(token.i for token in chunk)
        words = [token for token in chunk if not (token.is_punct or token.is_space)]
        concept = " ".join(token.text for token in dropwhile(_is_filler, words))
        if concept:
            yield concept
    for token in doc:
        # A verb inside a noun chunk is part of that concept: "the opened pier".
        if token.pos_ == "VERB" and token.i not in chunked and not _is_filler(token):
            yield token.text


def _is_filler(token: Any) -> bool:
    """Return True for a stop word, and for a word such as "explain" that only says how a question is asked."""
    return token.is_stop or (token.lemma_ or token.text).lower() in _FILLERS


def load_nlp(settings: ModelSettings) -> Nlp:
    """Load the spaCy pipeline that the settings name: an installed package or a path. Nothing is downloaded.

    Raises:
        ModelUnavailableError: the pipeline is not installed.
        Exception: it is damaged.
    """
    with requires("spacy", "local", "the NLP pipeline"):
        import spacy
    name = settings.nlp
    if not is_path(name) and not spacy.util.is_package(name):
        reason = f"the spaCy pipeline {name} is not installed: python -m spacy download {name}, or set "
        raise ModelUnavailableError("nlp", reason + "models={'nlp': '/path'}, or models=\"lexical\"")
    return Nlp(spacy.load(os.path.expanduser(name)), name)
