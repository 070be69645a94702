"""Short texts that are embedded together: the same vectors as one by one."""

from __future__ import annotations

import numpy as np
import pytest

from rageval_hooks.errors import OverBudgetError
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.models.embedder import Embedder
from tests.local import make_turn

TEXTS = ["the pier", "The pier was opened in 2019, after three years of work on it.", "", "new boats", "…"]


@pytest.fixture
def embedder(minilm: Models) -> Embedder:
    found = minilm.embedder()
    assert isinstance(found, Embedder)
    return found


def test_together_as_one_by_one(embedder: Embedder) -> None:
    """Windows, token vectors and places agree to 1e-5, whatever the neighbours; a text without words has none."""
    for text, found in zip(TEXTS, embedder.embed_short(TEXTS), strict=True):
        alone = embedder.embed(text)
        assert found.is_empty == alone.is_empty
        np.testing.assert_allclose(found.windows, alone.windows, atol=1e-5)
        np.testing.assert_allclose(found.tokens.vectors, alone.tokens.vectors, atol=1e-5)
        assert found.tokens.starts.tolist() == alone.tokens.starts.tolist()
        assert found.tokens.ends.tolist() == alone.tokens.ends.tolist()


def test_the_time_may_be_used_up(embedder: Embedder) -> None:
    """What the function raises comes out, before the model has read anything."""

    def stop() -> None:
        raise OverBudgetError

    with pytest.raises(OverBudgetError):
        embedder.embed_short(TEXTS, stop)


def test_sentences_of_a_response(minilm: Models, embedder: Embedder) -> None:
    """Short and long ones, and one that comes twice, each have their own vector, in their order."""
    response = "It opened in 2019. " + "The pier is long " * 30 + "and old. It opened in 2019. Boats sail."
    analysis = TurnAnalysis(make_turn(response), minilm, wait=True)
    texts = [response[start:end] for start, end in analysis.sentences]
    assert len(texts) == 4
    for text, found in zip(texts, analysis.sentence_embeddings, strict=True):
        np.testing.assert_allclose(found.windows, embedder.embed(text).windows, atol=1e-5)
