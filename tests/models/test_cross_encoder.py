"""The cross-encoder, through its real loading code, on a tiny model."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models import load_now
from rageval_hooks.models.cross_encoder import CrossEncoder
from rageval_hooks.settings import ModelSettings
from tests import tiny_models
from tests.lazily import LazyModule

sentence_transformers = LazyModule("sentence_transformers")
torch = LazyModule("torch")

PAIRS = [
    ("When was the pier opened?", "The pier was opened in 2019."),
    ("When was the pier opened?", "An old tower."),
    ("Who?", "Anna Berg, an engineer."),
    ("今天?", "\ufffd café — £3"),
    ("why " * 100, "because " * 100),
]


@pytest.fixture(scope="module", params=[pytest.param("torch", marks=pytest.mark.needs_torch), "onnx"])
def encoder(request: pytest.FixtureRequest, tiny_cross_encoder: Path) -> CrossEncoder:
    return load_now("cross_encoder", ModelSettings(cross_encoder=str(tiny_cross_encoder), backend=request.param))


@pytest.fixture(scope="module")
def library(tiny_cross_encoder: Path) -> Any:
    return sentence_transformers.CrossEncoder(str(tiny_cross_encoder), device="cpu", local_files_only=True)


@pytest.mark.needs_torch
@pytest.mark.parametrize(("query", "response"), PAIRS)
@pytest.mark.parametrize(("encoder", "tolerance"), [("torch", 1e-6), ("onnx", 1e-5)], indirect=["encoder"])
def test_relevance_is_the_sigmoid_of_the_librarys_logit(
    encoder: CrossEncoder, tolerance: float, library: Any, query: str, response: str
) -> None:
    """CrossEncoder.predict with an identity as its activation, then the sigmoid; by ONNX Runtime as docs say."""
    logit = float(library.predict([(query, response)], activation_fn=torch.nn.Identity())[0])

    assert encoder.relevance(query, response).probability == pytest.approx(1 / (1 + math.exp(-logit)), abs=tolerance)


def test_a_model_with_a_prompt_of_its_own_is_refused(tiny_cross_encoder: Path, tmp_path: Path) -> None:
    """Rerankers that follow instructions name a prompt in their configuration: without it, scores would be wrong."""
    folder = Path(shutil.copytree(tiny_cross_encoder, tmp_path / "prompted"))
    (folder / "config_sentence_transformers.json").write_text('{"default_prompt_name": "rank"}')

    with pytest.raises(ModelUnavailableError, match="follows instructions"):
        load_now("cross_encoder", ModelSettings(cross_encoder=str(folder)))


def test_relevance_depends_on_the_pair(encoder: CrossEncoder) -> None:
    """The tiny model tells pairs apart, so that the comparison above means something."""
    assert len({round(encoder.relevance(*pair).probability, 4) for pair in PAIRS}) == len(PAIRS)


def test_the_same_pair_has_the_same_bits(encoder: CrossEncoder) -> None:
    """Whatever was read before it."""
    first = [encoder.relevance(*pair).probability for pair in PAIRS]

    assert [encoder.relevance(*pair).probability for pair in reversed(PAIRS)][::-1] == first


@pytest.mark.parametrize(("words", "truncated"), [(10, False), (60, False), (61, True), (50_000, True)])
def test_a_pair_longer_than_the_model_reads_is_marked(encoder: CrossEncoder, words: int, truncated: bool) -> None:
    """The tiny model reads 64 tokens, four of them for the query and the separators."""
    assert tiny_models.MAX_TOKENS == 64
    assert encoder.relevance("who", "a " * words).truncated is truncated


def test_a_model_with_several_outputs_is_refused(tmp_path: Path) -> None:
    """One that classifies is not one that ranks; the reason says what is needed, and nothing else."""
    folder = tiny_models.build_cross_encoder(tmp_path / "classes", outputs=3)

    with pytest.raises(ModelUnavailableError) as raised:
        load_now("cross_encoder", ModelSettings(cross_encoder=str(folder)))
    assert raised.value.reason == f"{folder} cannot be loaded: it has 3 outputs; one is needed"


@pytest.mark.parametrize("logit", [-1000.0, -1.0, 0.0, 1.0, 1000.0])
def test_extreme_logits_are_probabilities(logit: float) -> None:
    """No overflow, whatever the model says."""
    encoder = CrossEncoder("mine", lambda query, response: (logit, False))

    assert encoder.relevance("a", "b").probability == pytest.approx(0.5 * (1 + math.tanh(logit / 2)), abs=1e-12)
