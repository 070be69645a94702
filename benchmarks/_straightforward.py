"""Local scores computed in the straightforward way: every metric calls its models itself and caches nothing.

Seed 001 works this way: one ``encode`` or ``predict`` call for each text that a metric reads, nothing shared between
metrics, nothing kept between turns. The formulas are those of the library, so that the scores can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property  # noqa: TID251 - not forked
from typing import Any

import numpy as np

from rageval_hooks.metrics import Metric
from rageval_hooks.metrics.support.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import AnyEmbedding
from rageval_hooks.models.cross_encoder import Relevance
from rageval_hooks.models.embedder import Embedder, Embedding, TokenVectors, keep_words, unit
from rageval_hooks.models.nlp import Nlp
from rageval_hooks.score import Result
from rageval_hooks.text.fact_index import PassageIndex, index_passage
from rageval_hooks.turn import Turn

__all__ = ["StraightforwardModels", "score"]

TOGETHER = ({"semantic_grounding", "entity_consistency", "factual_accuracy", "hallucination"},)
"""Metrics that the seed computes in one function, and so from the same vectors; every other one is by itself."""


class _Encoded(Embedding):
    """A text's embedding, each side of which is one call of ``encode`` when it is asked for."""

    def __init__(self, embedder: StraightforwardEmbedder, text: str, is_passage: bool) -> None:
        object.__setattr__(self, "_embedder", embedder)
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_is_passage", is_passage)

    @cached_property
    def windows(self) -> Any:
        return self._embedder.windows(self._text)

    @cached_property
    def tokens(self) -> TokenVectors:
        tokens = self._embedder.tokens(self._text)
        if not self._is_passage:
            return tokens
        return keep_words(self._text, Embedding(np.empty((0, 0), np.float32), tokens)).tokens


class StraightforwardEmbedder:
    """Calls the library's model for each text, windows of a long one by one."""

    def __init__(self, model: Any, embedder: Embedder) -> None:
        self._model = model
        self._cut = embedder.cut
        self.name = embedder.name

    def embed(self, text: str, pause: Callable[[], None] = lambda: None) -> Embedding:
        return _Encoded(self, text, False)

    def embed_passage(self, text: str) -> Embedding:
        return _Encoded(self, text, True)

    def windows(self, text: str) -> Any:
        pieces = [text[start:end] for start, end in self._cut(text)]
        if not text.strip():
            return np.empty((0, 0), np.float32)
        return np.concatenate([self._model.encode([piece], show_progress_bar=False) for piece in pieces])

    def tokens(self, text: str) -> TokenVectors:
        starts, ends, vectors = [], [], []
        for start, end in self._cut(text):
            piece = text[start:end]
            [found] = self._model.encode([piece], output_value="token_embeddings", show_progress_bar=False)
            places = np.asarray(self._model.tokenizer(piece, return_offsets_mapping=True)["offset_mapping"])
            real = places[:, 1] > places[:, 0]
            starts.append(places[real, 0] + start)
            ends.append(places[real, 1] + start)
            vectors.append(unit(found.cpu().numpy()[: len(places)][real]))
        return TokenVectors(np.concatenate(starts), np.concatenate(ends), np.concatenate(vectors))


class StraightforwardCrossEncoder:
    """Calls ``predict`` for the pair."""

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self.name = name

    def relevance(self, query: str, response: str) -> Relevance:
        import torch

        [logit] = self._model.predict([(query, response)], activation_fn=torch.nn.Identity(), show_progress_bar=False)
        return Relevance(1 / (1 + math.exp(-float(logit))))


class StraightforwardModels:
    """The models of the library's settings, asked in the straightforward way.

    Args:
        encoder: a ``SentenceTransformer``.
        ranker: a ``CrossEncoder`` of sentence-transformers.
        embedder: ours, which has cut the texts.
        cross_encoder: ours, for its name.
        nlp: the pipeline of both ways.
    """

    def __init__(self, encoder: Any, ranker: Any, embedder: Embedder, cross_encoder: Any, nlp: Nlp) -> None:
        self._embedder = StraightforwardEmbedder(encoder, embedder)
        self._cross_encoder = StraightforwardCrossEncoder(ranker, cross_encoder.name)
        self._nlp = nlp

    def embedder(self, *, wait: bool = False) -> StraightforwardEmbedder:
        return self._embedder

    def cross_encoder(self, *, wait: bool = False) -> StraightforwardCrossEncoder:
        return self._cross_encoder

    def nlp(self, *, wait: bool = False) -> Nlp:
        return self._nlp

    def grounding(self, *, wait: bool = False) -> StraightforwardEmbedder:
        """Return the embedder, which takes the grounding model's place by default."""
        return self._embedder


class _Analysis(TurnAnalysis):
    """The analysis of a turn for one metric, without any cache."""

    @cached_property
    def passage_indexes(self) -> list[PassageIndex]:
        return [index_passage(passage.text) for passage in self.turn.passages]

    @cached_property
    def passage_embeddings(self) -> list[AnyEmbedding]:
        embedder: Any = self.models.embedder()
        return [embedder.embed_passage(passage.text) for passage in self.turn.passages]


def score(metrics: Sequence[Metric], turn: Turn, models: StraightforwardModels) -> list[Result]:
    """Compute metrics for a turn in the straightforward way."""
    results: list[Result] = []
    given: Any = models
    shared: dict[int, _Analysis] = {}
    for metric in metrics:
        group = next((number for number, names in enumerate(TOGETHER) if metric.name in names), None)
        if group is None:
            analysis = _Analysis(turn, given, wait=True)
        else:
            analysis = shared.setdefault(group, _Analysis(turn, given, wait=True))
        results.extend(compute(metric, analysis))
    return results
