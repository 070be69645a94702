"""ONNX Runtime gives the same numbers as PyTorch. The real loading code reads the files next to the weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rageval_hooks.errors import ConfigurationError, ModelUnavailableError
from rageval_hooks.metrics.local.answer_relevance import AnswerRelevance
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.models import Models
from rageval_hooks.models.cross_encoder import load_cross_encoder
from rageval_hooks.models.embedder import load_embedder
from rageval_hooks.settings import LEXICAL, ONNX_FILE, ModelSettings, Settings
from tests import onnx_files, tiny_models
from tests.local import make_turn, run

pytest.importorskip("onnxruntime")

TEXTS = ["The pier was opened in 2019.", "a", "Anna Berg — £3.50 (½ price)!", "bridge and tower " * 60]
TURN = make_turn(
    "The pier was opened in 2019. Anna Berg built it.",
    ["The new pier was opened by Anna Berg in 2019.", "A bridge over the river."],
    query="When was the pier opened?",
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with its file of ONNX."""
    folder = tiny_models.build_encoder(tmp_path_factory.mktemp("onnx") / "encoder")
    onnx_files.export(folder)
    return folder


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder with its file of ONNX."""
    folder = tiny_models.build_cross_encoder(tmp_path_factory.mktemp("onnx") / "cross-encoder")
    onnx_files.export(folder, head=True)
    return folder


@pytest.fixture(scope="module")
def by_torch(encoder: Path, cross_encoder: Path) -> ModelSettings:
    return ModelSettings(embedder=str(encoder), cross_encoder=str(cross_encoder), nlp=LEXICAL)


@pytest.fixture(scope="module")
def by_onnx(encoder: Path, cross_encoder: Path) -> ModelSettings:
    return ModelSettings(embedder=str(encoder), cross_encoder=str(cross_encoder), nlp=LEXICAL, backend="onnx")


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_vectors_that_torch_gives_it(by_torch: ModelSettings, by_onnx: ModelSettings, text: str) -> None:
    """Those of its windows and those of its tokens, at the same places."""
    expected, found = load_embedder(by_torch).embed(text), load_embedder(by_onnx).embed(text)

    np.testing.assert_allclose(found.windows, expected.windows, atol=1e-5)
    np.testing.assert_array_equal(found.tokens.starts, expected.tokens.starts)
    np.testing.assert_allclose(found.tokens.vectors, expected.tokens.vectors, atol=1e-5)


def test_short_texts_have_the_vectors_that_torch_gives_them(by_torch: ModelSettings, by_onnx: ModelSettings) -> None:
    """In one padded batch."""
    expected, found = (load_embedder(settings).embed_short(TEXTS[:3]) for settings in (by_torch, by_onnx))

    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.vector, other.vector, atol=1e-5)


@pytest.mark.parametrize("response", ["The pier was opened in 2019.", "An old tower.", "because " * 100])
def test_a_pair_has_the_relevance_that_torch_gives_it(
    by_torch: ModelSettings, by_onnx: ModelSettings, response: str
) -> None:
    """And is marked where it was cut."""
    expected, found = (
        load_cross_encoder(settings).relevance("When was the pier opened?", response)
        for settings in (by_torch, by_onnx)
    )

    assert found.probability == pytest.approx(expected.probability, abs=1e-5)
    assert found.truncated == expected.truncated


def test_scores_are_the_same_and_do_not_share_a_model(by_torch: ModelSettings, by_onnx: ModelSettings) -> None:
    """Two settings that differ in the backend alone have models and caches of their own."""
    one, other = Models(by_torch), Models(by_onnx)
    for metric in (Groundedness(), AnswerRelevance()):
        [expected], [found] = (run(metric, TURN, models) for models in (one, other))
        assert found.value == pytest.approx(expected.value, abs=1e-5)  # type: ignore[union-attr]

    assert one.embedder() is not other.embedder()
    assert one.cache is not other.cache


def test_the_same_text_has_the_same_bits(by_onnx: ModelSettings) -> None:
    """Whatever was read before it."""
    embedder = load_embedder(by_onnx)
    first = [embedder.embed(text) for text in TEXTS]

    for text, expected in zip(reversed(TEXTS), reversed(first), strict=True):
        np.testing.assert_array_equal(embedder.embed(text).tokens.vectors, expected.tokens.vectors)


def test_an_output_may_have_the_name_that_sentence_transformers_gives_it(encoder: Path, tmp_path: Path) -> None:
    """``token_embeddings``; and the file need not read the kinds of tokens."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    onnx_files.export(folder, output="token_embeddings", inputs=("input_ids", "attention_mask"))
    found = load_embedder(ModelSettings(embedder=str(folder), cross_encoder=LEXICAL, backend="onnx")).embed(TEXTS[0])

    np.testing.assert_allclose(
        found.vector, load_embedder(ModelSettings(embedder=str(folder))).embed(TEXTS[0]).vector, atol=1e-5
    )


def test_another_file_is_named_with_the_scores(encoder: Path, tmp_path: Path) -> None:
    """``onnx_file``: what a quantised one says is not what the model says."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    (folder / ONNX_FILE).rename(folder / "onnx" / "small.onnx")
    settings = ModelSettings(
        embedder=str(folder), cross_encoder=LEXICAL, nlp=LEXICAL, backend="onnx", onnx_file="onnx/small.onnx"
    )
    [score] = run(Groundedness(), TURN, Models(settings))

    assert score.model == f"{folder}, onnx/small.onnx"  # type: ignore[union-attr]


def test_a_file_of_another_kind_is_refused(encoder: Path, tmp_path: Path) -> None:
    """The message says what the file has."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    onnx_files.export(folder, output="pooled")
    with pytest.raises(ModelUnavailableError, match="has no output last_hidden_state or token_embeddings, but pooled"):
        load_embedder(ModelSettings(embedder=str(folder), cross_encoder=LEXICAL, backend="onnx"))

    (folder / ONNX_FILE).write_bytes(b"not a graph")
    with pytest.raises(ModelUnavailableError, match=r"model\.onnx cannot be loaded"):
        load_embedder(ModelSettings(embedder=str(folder), cross_encoder=LEXICAL, backend="onnx"))


def test_a_model_without_a_file_is_not_available() -> None:
    """The packaged MiniLM has none: the hub has it, and nothing is fetched where that may not be."""
    with pytest.raises(ModelUnavailableError, match=f"hf download .* {ONNX_FILE}"):
        load_embedder(ModelSettings(backend="onnx", download=False))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "tensorrt"}, "models.backend: .*'torch' or 'onnx'"),
        ({"backend": "onnx", "device": "cuda:0"}, "computes on the CPU: not on device='cuda:0'"),
    ],
)
def test_what_cannot_be_is_said_at_construction(changes: dict[str, str], message: str) -> None:
    """Before any model is loaded."""
    with pytest.raises(ConfigurationError, match=message):
        Settings.build(models=changes)


def test_a_folder_without_the_file_is_refused_at_construction(tiny_cross_encoder: Path) -> None:
    """It is named."""
    with pytest.raises(ConfigurationError, match=f"needs the file {ONNX_FILE}, which is not in {tiny_cross_encoder}"):
        Settings.build(models={"backend": "onnx", "cross_encoder": str(tiny_cross_encoder)})
