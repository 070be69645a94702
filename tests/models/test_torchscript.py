"""TorchScript gives the same bits as PyTorch in Python, and models that it cannot run are left as they are."""

from __future__ import annotations

import subprocess
import sys
from types import MethodType
from typing import Any

import numpy as np
import pytest

from rageval_hooks.models import cross_encoder as cross_encoders
from rageval_hooks.models import embedder as embedders
from rageval_hooks.models.cross_encoder import CrossEncoder, load_cross_encoder
from rageval_hooks.models.embedder import Embedder, load_embedder
from rageval_hooks.models.torchscript import use_torchscript
from rageval_hooks.settings import LEXICAL, ModelSettings
from tests import tiny_models

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="PyTorch does not support TorchScript there")

TEXTS = ["The pier was opened in 2019.", "a", "Anna Berg — £3.50 (½ price)!", "bridge and tower " * 60]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    folder = tmp_path_factory.mktemp("torchscript")
    encoder, pair = tiny_models.build_encoder(folder / "encoder"), tiny_models.build_cross_encoder(folder / "pair")
    return ModelSettings(embedder=str(encoder), cross_encoder=str(pair), nlp=LEXICAL)


@pytest.fixture(scope="module")
def both(settings: ModelSettings) -> tuple[Embedder, Embedder]:
    """The embedder in Python and by TorchScript."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedders, "use_torchscript", lambda *_: False)
        eager = load_embedder(settings)
    return eager, load_embedder(settings)


@pytest.fixture(scope="module")
def both_pairs(settings: ModelSettings) -> tuple[CrossEncoder, CrossEncoder]:
    """The cross-encoder in Python and by TorchScript."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_encoders, "use_torchscript", lambda *_: False)
        eager = load_cross_encoder(settings)
    return eager, load_cross_encoder(settings)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_same_bits(both: tuple[Embedder, Embedder], text: str) -> None:
    """In one window or in several."""
    expected, found = (embedder.embed(text) for embedder in both)

    np.testing.assert_array_equal(found.windows, expected.windows)
    np.testing.assert_array_equal(found.tokens.vectors, expected.tokens.vectors)


def test_texts_in_a_batch_have_the_same_bits(both: tuple[Embedder, Embedder]) -> None:
    """The shorter ones are padded."""
    expected, found = (embedder.embed_short(TEXTS[:3]) for embedder in both)

    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.vector, other.vector)


@pytest.mark.parametrize("response", ["The pier was opened in 2019.", "An old tower.", "because " * 100])
def test_a_pair_has_the_same_relevance(both_pairs: tuple[CrossEncoder, CrossEncoder], response: str) -> None:
    expected, found = (model.relevance("When was the pier opened?", response) for model in both_pairs)

    assert found == expected


def test_the_models_are_run_by_torchscript(settings: ModelSettings) -> None:
    """The tests above would pass without it."""
    import sentence_transformers as library

    encoder = library.SentenceTransformer(settings.embedder, device="cpu")
    pair = library.CrossEncoder(settings.cross_encoder, device="cpu")

    assert use_torchscript("embedder", encoder, 64)
    assert use_torchscript("cross_encoder", pair, 64)


def test_a_model_whose_operations_depend_on_the_text_stays_in_python(settings: ModelSettings) -> None:
    """TorchScript would repeat the operations of the text with which it was made."""
    import sentence_transformers as library
    import torch
    from transformers import PreTrainedModel

    model = library.SentenceTransformer(settings.embedder, device="cpu")
    inner = next(part for part in model.modules() if isinstance(part, PreTrainedModel))
    original = inner.forward

    def forward(self: Any, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None, **more: Any) -> Any:
        found = original(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, **more)
        if input_ids.shape[1] > 50:
            found["last_hidden_state"] = found["last_hidden_state"] * 2 + 1
        return found

    inner.forward = MethodType(forward, inner)

    assert not use_torchscript("embedder", model, 64)
    assert any(isinstance(part, PreTrainedModel) for part in model.modules())
    assert not torch.jit.is_tracing()


def test_loading_prints_no_warnings(settings: ModelSettings) -> None:
    """PyTorch warns about tracing, and about the code of transformers."""
    code = f"""
import warnings
warnings.simplefilter("always")
from rageval_hooks.models.embedder import load_embedder
from rageval_hooks.settings import ModelSettings
print(len(load_embedder(ModelSettings(embedder={settings.embedder!r})).embed("The pier.").tokens.starts))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)

    assert int(ended.stdout) > 0
    assert "Tracer" not in ended.stderr
    assert "jit" not in ended.stderr


def test_a_model_that_torchscript_cannot_read_embeds_all_the_same(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch, both: tuple[Embedder, Embedder]
) -> None:
    import torch

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("not supported")

    monkeypatch.setattr(torch.jit, "trace", fail)
    found = load_embedder(settings).embed(TEXTS[0])

    np.testing.assert_array_equal(found.windows, both[0].embed(TEXTS[0]).windows)
