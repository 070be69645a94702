"""Named entities and concepts by a spaCy pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import MissingDependencyError, ModelUnavailableError
from rageval_hooks.settings import ModelSettings, looks_like_path

__all__ = ["Entity", "Nlp", "load_nlp"]

_FILLERS = frozenset(
    """
    tell explain describe show give say mention list name know want need like wonder help ask answer question find
    look see let please thank thing way kind sort lot information detail example
    """.split()
)
"""Words that say how a question is asked, not what it is about."""

_LONGEST_PIECE = 20_000


@dataclass(frozen=True)
class Entity:
    """A named entity: its text as it stands there, and its kind as the pipeline names it."""

    text: str
    kind: str


class Nlp:
    """Finds entities in responses and concepts in queries.

    Args:
        pipeline: a ``spacy.Language``.
        name: the pipeline's name, for the scores that it makes.
    """

    def __init__(self, pipeline: Any, name: str) -> None:
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self.name = name

    def entities(self, text: str, pause: Callable[[], None] = lambda: None) -> list[Entity]:
        """Return the named entities of a text, in order.

        Args:
            text: the text; it is read in pieces of 20,000 characters, cut at line ends or spaces.
            pause: called before each piece; what it raises stops the work.

        Raises:
            ModelUnavailableError: the pipeline has no entity recogniser.
        """
        if not self._has("ner", "entity_ruler", "span_ruler"):
            raise ModelUnavailableError("nlp", f"{self.name} has no entity recogniser (ner)")
        found = []
        for doc in self._read(text, pause):
            found += [Entity(ent.text, ent.label_) for ent in doc.ents if ent.text.strip()]
        return found

    def concepts(self, query: str) -> list[str]:
        """Return what a query asks for: its noun chunks without leading stop words, and its verbs; fillers left out.

        Raises:
            ModelUnavailableError: the pipeline has no parser.
        """
        if not self._has("parser"):
            raise ModelUnavailableError("nlp", f"{self.name} has no parser, which noun chunks need")
        found: dict[str, str] = {}
        for doc in self._read(query):
            chunked: set[int] = set()
            for chunk in doc.noun_chunks:
                words = [token for token in chunk if not token.is_punct and not token.is_space]
                while words and (words[0].is_stop or words[0].lemma_.lower() in _FILLERS):
                    words.pop(0)
                chunked.update(token.i for token in chunk)
                if words:
                    text = " ".join(token.text for token in words)
                    found.setdefault(text.casefold(), text)
            for token in doc:
                filler = token.is_stop or token.lemma_.lower() in _FILLERS
                if token.pos_ == "VERB" and not filler and token.i not in chunked:
                    found.setdefault(token.text.casefold(), token.text)
        return list(found.values())

    def _has(self, *components: str) -> bool:
        return any(name in self._pipeline.pipe_names for name in components)

    def _read(self, text: str, pause: Callable[[], None] = lambda: None) -> Iterator[Any]:
        for piece in _pieces(text):
            pause()
            with self._lock:
                doc = self._pipeline(piece)
            yield doc


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _LONGEST_PIECE:
        limit = start + _LONGEST_PIECE
        cut = max(text.rfind("\n", start + 1, limit), text.rfind(" ", limit - 1000, limit))
        cut = limit if cut <= start else cut
        yield text[start:cut]
        start = cut
    yield text[start:]


def load_nlp(settings: ModelSettings) -> Nlp:
    """Load the spaCy pipeline that the settings name: an installed package or a path. Nothing is downloaded.

    Raises:
        ModelUnavailableError: it cannot be had.
    """
    try:
        import spacy
    except ImportError as error:
        missing = MissingDependencyError("spacy", "local", "the NLP pipeline")
        raise ModelUnavailableError("nlp", str(missing)) from error
    name = settings.nlp
    try:
        return Nlp(spacy.load(name), name)
    except OSError as error:
        if looks_like_path(name):
            raise ModelUnavailableError("nlp", f"{name} cannot be loaded: {error}") from error
        raise ModelUnavailableError(
            "nlp",
            f"the spaCy pipeline {name} is not installed: python -m spacy download {name}, "
            "or set models={'nlp': '/path'}, or models=\"lexical\"",
        ) from error
    except Exception as error:
        raise ModelUnavailableError("nlp", f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
