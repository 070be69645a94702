"""Writes the ONNX graph of a BERT from its ``config.json`` and ``model.safetensors``, without PyTorch.

Encoders such as all-MiniLM-L6-v2, pair classifiers such as ms-marco-MiniLM-L-6-v2, and token classifiers have this
architecture (``model_type: bert``). The formulas are those of Devlin et al. 2019, as transformers computes them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rageval_hooks.models.sources import read_config, weight_files

if TYPE_CHECKING:
    from rageval_hooks.models.tokenizing import FloatArray

GraphKind = Literal["encoder", "pair", "tokens"]
"""What a graph computes: vectors of tokens, logits of a text or pair, or logits of tokens."""

_OPSET: Final = 17
"""The first with LayerNormalization as one operator."""

_IR_VERSION: Final = 9
"""What the oldest supported ONNX Runtime reads."""

_MAX_PROTOBUF_BYTES: Final = 2**31 - 2**20
"""Larger weights are written to a file next to the graph."""


def is_bert(folder: Path) -> bool:
    """Return True if a graph can be written from the model's files, without PyTorch."""
    try:
        config = read_config(folder)
    except (OSError, ValueError):
        return False
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act", "gelu") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
    )


def write_bert_graph(folder: Path, kind: GraphKind, path: str) -> None:
    """Write the graph, in fp32.

    Its inputs are ``input_ids`` and ``token_type_ids`` of shape (texts, tokens), without padding.

    Raises:
        ValueError: the folder has no weights for this kind of output.
        ImportError: onnx or safetensors is not installed.
    """
    import onnx

    config = read_config(folder)
    graph = _Graph(_read_weights(folder), config)
    tokens = graph.encode()
    if kind == "pair":
        # The pooler: the first token of each text.
        first = graph.add("Gather", tokens, graph.constant(0, "int64"), axis=1)
        tokens = graph.add("Tanh", graph.linear(first, "pooler.dense"))
    output, found = "last_hidden_state", tokens
    if kind != "encoder":
        output, found = "logits", graph.linear(tokens, "classifier")
    graph.nodes.append(onnx.helper.make_node("Identity", [found], [output]))
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["texts", "tokens"])
        for name in ("input_ids", "token_type_ids")
    ]
    shape = ["texts", None] if kind == "pair" else ["texts", "tokens", None]
    outputs = [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, shape)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "bert", inputs, outputs, graph.initializers),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    is_large = model.ByteSize() > _MAX_PROTOBUF_BYTES
    onnx.save(model, path, save_as_external_data=is_large, location=f"{Path(path).name}_data" if is_large else None)


def _read_weights(folder: Path) -> dict[str, FloatArray]:
    """Return the weights by their names in transformers, without the prefix of a model with a head."""
    import numpy as np
    from safetensors import safe_open

    weights: dict[str, FloatArray] = {}
    for file in weight_files(folder):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                # Older files call the factors of a normalization gamma, and its offsets beta.
                known = name.removeprefix("bert.").replace("gamma", "weight").replace("beta", "bias")
                weights[known] = tensors.get_tensor(name).astype(np.float32)
    return weights


class _Graph:
    """Nodes and weights of a graph that is being written.

    Args:
        weights: by their names in transformers.
        config: the model's ``config.json``.
    """

    def __init__(self, weights: dict[str, FloatArray], config: dict[str, Any]) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._weights = weights
        self._config = config

    def encode(self) -> str:
        """Add embeddings and layers; return the name of the last layer's output, of shape (texts, tokens, d)."""
        tokens = self._embed()
        for layer in range(self._config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            found = self.linear(self._attend(tokens, f"{name}.attention.self"), f"{name}.attention.output.dense")
            tokens = self._normalize(self.add("Add", found, tokens), f"{name}.attention.output.LayerNorm")
            found = self._gelu(self.linear(tokens, f"{name}.intermediate.dense"))
            found = self.linear(found, f"{name}.output.dense")
            tokens = self._normalize(self.add("Add", found, tokens), f"{name}.output.LayerNorm")
        return tokens

    def linear(self, value: str, name: str) -> str:
        """Add a linear layer."""
        product = self.add("MatMul", value, self._weight(f"{name}.weight", transposed=True))
        return self.add("Add", product, self._weight(f"{name}.bias"))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        from onnx import helper

        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """Add a constant; return its name."""
        import numpy as np
        from onnx import numpy_helper

        # A node, not one of the weights: these may be in another file, and ONNX Runtime needs the shapes before.
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def _embed(self) -> str:
        size = self.add("Shape", "input_ids", start=1, end=2)
        # A slice from 0 to the number of tokens. `Range` would make the shapes of all later values unknown.
        positions = self.add(
            "Slice",
            self._weight("embeddings.position_embeddings.weight"),
            self.constant([0], "int64"),
            size,
            self.constant([0], "int64"),
        )
        words = self.add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        types = self.add("Gather", self._weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        summed = self.add("Add", self.add("Add", words, types), positions)
        return self._normalize(summed, "embeddings.LayerNorm")

    def _attend(self, tokens: str, name: str) -> str:
        """Add self-attention; return the name of its output, before the output's linear layer."""
        heads = self._config["num_attention_heads"]
        size = self._config["hidden_size"] // heads
        split = self.constant([0, 0, heads, size], "int64")

        def by_head(part: str, order: list[int]) -> str:
            reshaped = self.add("Reshape", self.linear(tokens, f"{name}.{part}"), split)
            return self.add("Transpose", reshaped, perm=order)

        query, key, value = by_head("query", [0, 2, 1, 3]), by_head("key", [0, 2, 3, 1]), by_head("value", [0, 2, 1, 3])
        scores = self.add("Div", self.add("MatMul", query, key), self.constant(math.sqrt(size)))
        found = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        merged = self.constant([0, 0, heads * size], "int64")
        return self.add("Reshape", self.add("Transpose", found, perm=[0, 2, 1, 3]), merged)

    def _gelu(self, value: str) -> str:
        # x / 2 (1 + erf(x / √2)), in the order that ONNX Runtime recognizes and computes as one operator.
        error = self.add("Erf", self.add("Div", value, self.constant(math.sqrt(2))))
        product = self.add("Mul", value, self.add("Add", error, self.constant(1)))
        return self.add("Mul", product, self.constant(0.5))

    def _normalize(self, value: str, name: str) -> str:
        epsilon = float(self._config.get("layer_norm_eps", 1e-12))
        factors, offsets = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self.add("LayerNormalization", value, factors, offsets, axis=-1, epsilon=epsilon)

    def _weight(self, name: str, *, transposed: bool = False) -> str:
        import numpy as np
        from onnx import numpy_helper

        if name not in self._weights:
            raise ValueError(f"it has no weights for {name}: it is not trained for this")
        value = self._weights[name]
        array = np.ascontiguousarray(value.T) if transposed else value
        self.initializers.append(numpy_helper.from_array(array, name))
        return name
