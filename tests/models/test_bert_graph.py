"""The graph of a BERT is written from its weights: it computes what the formulas say, without PyTorch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rageval_hooks.models.bert_graph import GraphKind, is_bert, write_bert_graph
from rageval_hooks.models.onnx import Graph
from tests import tiny_models

pytest.importorskip("onnxruntime")

IDS = np.array([[2, 40, 41, 77, 90, 3], [2, 50, 3, 60, 61, 3]])
TYPES = np.array([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]])


def linear(weights: Any, name: str, value: Any) -> Any:
    return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def normalize(weights: Any, name: str, value: Any) -> Any:
    centered = value - value.mean(-1, keepdims=True)
    value = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
    return value * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def by_hand(folder: Path, kind: GraphKind) -> Any:
    """BERT as its paper has it, in numpy and in double precision."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): value.astype(float) for name, value in tensors.items()}
    heads, size = config["num_attention_heads"], config["hidden_size"] // config["num_attention_heads"]
    embeddings = {part: weights[f"embeddings.{part}_embeddings.weight"] for part in ("word", "position", "token_type")}
    summed = embeddings["word"][IDS] + embeddings["token_type"][TYPES] + embeddings["position"][: IDS.shape[1]]
    value = normalize(weights, "embeddings.LayerNorm", summed)
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        query, key, content = (
            linear(weights, f"{name}.attention.self.{part}", value)
            .reshape(*IDS.shape, heads, size)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 1, 3, 2) / math.sqrt(size))
        found = (scores / scores.sum(-1, keepdims=True) @ content).transpose(0, 2, 1, 3).reshape(value.shape)
        output = linear(weights, f"{name}.attention.output.dense", found)
        value = normalize(weights, f"{name}.attention.output.LayerNorm", output + value)
        inner = linear(weights, f"{name}.intermediate.dense", value)
        inner = inner / 2 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        value = normalize(weights, f"{name}.output.LayerNorm", linear(weights, f"{name}.output.dense", inner) + value)
    if kind == "pair":
        value = np.tanh(linear(weights, "pooler.dense", value[:, 0]))
    return value if kind == "encoder" else linear(weights, "classifier", value)


def build(kind: GraphKind, folder: Path) -> Path:
    if kind == "encoder":
        return tiny_models.build_encoder(folder)
    return tiny_models.build_grounding(folder, "BertForTokenClassification", positions=64)


@pytest.mark.parametrize("kind", ["encoder", "pair", "tokens"])
def test_the_graph_computes_what_the_formulas_say(kind: GraphKind, tmp_path: Path) -> None:
    """Vectors of tokens, logits of pairs, logits of tokens."""
    folder = build(kind, tmp_path / "model")
    write_bert_graph(folder, kind, str(tmp_path / "model.onnx"))

    found = Graph(tmp_path / "model.onnx", kind).run({"input_ids": IDS, "token_type_ids": TYPES})

    np.testing.assert_allclose(found, by_hand(folder, kind), atol=1e-4)


@pytest.mark.needs_torch
@pytest.mark.parametrize("kind", ["encoder", "pair", "tokens"])
def test_the_graph_computes_what_transformers_computes(kind: GraphKind, tmp_path: Path) -> None:
    """The same weights, read by the library that publishes them."""
    import torch

    from rageval_hooks.models.pytorch import load_model

    folder = build(kind, tmp_path / "model")
    write_bert_graph(folder, kind, str(tmp_path / "model.onnx"))
    model, _ = load_model(folder, kind)
    with torch.no_grad():
        output = model(input_ids=torch.from_numpy(IDS), token_type_ids=torch.from_numpy(TYPES))
    expected = output.last_hidden_state if kind == "encoder" else output.logits

    found = Graph(tmp_path / "model.onnx", kind).run({"input_ids": IDS, "token_type_ids": TYPES})

    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_older_names_of_weights_are_known(tmp_path: Path) -> None:
    """Older files of BERT call the factors and offsets of a normalization gamma and beta."""
    from safetensors.numpy import load_file, save_file

    folder = tiny_models.build_encoder(tmp_path / "model")
    write_bert_graph(folder, "encoder", str(tmp_path / "expected.onnx"))
    weights = load_file(folder / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }
    assert old.keys() != weights.keys()
    save_file(old, folder / "model.safetensors")
    write_bert_graph(folder, "encoder", str(tmp_path / "found.onnx"))

    expected, found = (
        Graph(tmp_path / f"{name}.onnx", "encoder").run({"input_ids": IDS, "token_type_ids": TYPES})
        for name in ("expected", "found")
    )

    np.testing.assert_array_equal(found, expected)


def test_a_head_without_weights_is_refused(tmp_path: Path) -> None:
    """An encoder is no classifier: random numbers would be scores."""
    folder = tiny_models.build_encoder(tmp_path / "model")

    with pytest.raises(ValueError, match=r"it has no weights for classifier\.weight: it is not trained for this"):
        write_bert_graph(folder, "pair", str(tmp_path / "model.onnx"))
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"model_type": "roberta"}, False),
        ({"hidden_act": "relu"}, False),
        ({"position_embedding_type": "relative_key"}, False),
        ({"is_decoder": True}, False),
    ],
)
def test_only_what_the_formulas_cover_is_written(changes: dict[str, object], expected: bool, tmp_path: Path) -> None:
    """PyTorch exports other architectures."""
    folder = tiny_models.build_encoder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))

    assert is_bert(folder) is expected


@pytest.mark.parametrize("content", [None, "{"], ids=["none", "broken"])
def test_without_a_configuration_no_graph_is_written(content: str | None, tmp_path: Path) -> None:
    """It is not known what the weights are."""
    if content is not None:
        (tmp_path / "config.json").write_text(content)

    assert is_bert(tmp_path) is False
