"""Makes the ONNX graph of a model, in a process of its own: PyTorch exports it, ONNX Runtime quantizes it."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rageval_hooks.models.pytorch import load_model

if TYPE_CHECKING:
    from rageval_hooks.models.onnx import GraphKind


_TOLERANCE = 1e-3


def main(job: dict[str, Any]) -> None:
    """Make a graph in this process, which exists for this purpose only; see :func:`make_graph`."""
    os.umask(0o077)
    with suppress(OSError, AttributeError):
        os.nice(5)
    logging.disable(logging.WARNING)  # onnxruntime recommends a preparation that is for other kinds of networks
    make_graph(**job)


def make_graph(target: str, folder: str, kind: GraphKind, graph: str | None, int8: bool) -> None:
    """Write a graph, unless another process has done so.

    Args:
        target: the file to write.
        folder: the model's folder, with its weights.
        kind: what the graph computes.
        graph: the model's graph in fp32, to be quantized; None to export it from the weights.
        int8: True to quantize the weights, per channel, and the activations, per pass.

    Raises:
        ValueError: the model has no weights for this kind, or the graph gives other numbers than the model.
    """
    from filelock import FileLock

    # The workers of a server begin at the same time. The lock ends with this process, whatever happens to it.
    with FileLock(f"{target}.lock"):
        if os.path.isfile(target):
            return
        with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
            made = graph or _export(Path(folder), kind, os.path.join(scratch, "exact.onnx"))
            if int8:
                exact, made = made, os.path.join(scratch, "int8.onnx")
                _quantize(exact, made)
            os.replace(made, target)


def _quantize(exact: str, target: str) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(exact).graph
    shapes = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    # The layers from the wide inner size back to the narrow one stay in fp32. What they read has a few very large
    # values, and half of the error of int8 comes from them (all-MiniLM-L6-v2: cosines to fp32 of .9964, not .9933).
    narrowing = []
    for node in graph.node:
        shape = shapes.get(node.input[1], ()) if node.op_type == "MatMul" else ()
        if len(shape) == 2 and shape[0] > shape[1]:
            narrowing.append(node.name)
    # Weights of 7 bits: processors without VNNI add products in 16 bits, and 8-bit weights overflow there. On all
    # processors the numbers are then the same.
    quantize_dynamic(
        exact,
        target,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        nodes_to_exclude=narrowing,
    )


def _export(folder: Path, kind: GraphKind, path: str) -> str:
    import torch

    model, names = load_model(folder, kind, attn_implementation="eager")

    class Wrapper(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            found = self.model(**dict(zip(names, given, strict=True)))
            return found.last_hidden_state if kind == "encoder" else found.logits

    wrapper = Wrapper().eval()
    output = "last_hidden_state" if kind == "encoder" else "logits"
    axes = {0: "texts", 1: "tokens"}
    shapes = {**dict.fromkeys(names, axes), output: {0: "texts"} if kind == "pair" else axes}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            wrapper,
            _example(model, names, 2, 16),
            path,
            input_names=names,
            output_names=[output],
            dynamic_axes=shapes,
            opset_version=17,
            dynamo=False,
        )
        _check(wrapper, model, names, kind, path)
    return path


def _example(model: Any, names: list[str], texts: int, tokens: int) -> tuple[Any, ...]:
    """Return inputs of some shape: all texts but the first are padded."""
    import torch

    ids = torch.arange(texts * tokens).reshape(texts, tokens) % model.config.vocab_size
    mask = torch.ones_like(ids)
    mask[1:, tokens // 2 :] = 0
    values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return tuple(values[name] for name in names)


def _check(wrapper: Any, model: Any, names: list[str], kind: GraphKind, path: str) -> None:
    """Compare the graph with the model for other shapes: an export keeps what depends on the shape as it was.

    Raises:
        ValueError: they differ; the scores of some texts would be wrong.
    """
    import numpy as np

    from rageval_hooks.models.onnx import Graph

    graph = Graph(path, kind)
    longest = min(int(getattr(model.config, "max_position_embeddings", None) or 256), 256)
    for texts, tokens in ((1, 5), (3, 40), (1, longest - 2)):
        inputs = _example(model, names, texts, tokens)
        expected = wrapper(*inputs).numpy()
        found = graph.run({name: values.numpy() for name, values in zip(names, inputs, strict=True)})
        if not np.allclose(found[0], expected[0], atol=_TOLERANCE, rtol=_TOLERANCE):
            raise ValueError(f"the exported graph gives other numbers for {texts} texts of {tokens} tokens")
