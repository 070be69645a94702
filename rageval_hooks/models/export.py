"""Makes the ONNX graph of a model, in a process of its own.

The graph of a BERT is written from its weights. PyTorch exports other architectures. ONNX Runtime quantizes.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rageval_hooks.models.bert_graph import is_bert, write_bert_graph
from rageval_hooks.models.pytorch import load_model
from rageval_hooks.models.tokenizing import load_tokenizer, most_tokens

if TYPE_CHECKING:
    from rageval_hooks.models.bert_graph import GraphKind


_TOLERANCE = 1e-3
_NEED_NO_MASK = ("roberta", "xlm-roberta")
_USUAL_CHANNELS = 95
"""Percentile. Channels with larger values than this one's are made as small."""


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
        graph: the model's graph in fp32, to be quantized; None to make it from the weights.
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
            made = graph or os.path.join(scratch, "exact.onnx")
            if graph is None:
                (write_bert_graph if is_bert(Path(folder)) else _export)(Path(folder), kind, made)
            if int8:
                exact, made = made, os.path.join(scratch, "int8.onnx")
                _quantize(exact, made, Path(folder))
            os.replace(made, target)


def _quantize(exact: str, target: str, folder: Path) -> None:
    """Write the graph with weights of 7 bits, per channel, and activations of 8 bits, per pass.

    Processors without VNNI add products in 16 bits, where weights of 8 bits would overflow. With 7 bits the numbers are
    the same on all processors.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(exact)
    _level_channels(model.graph, exact, folder)
    # The reduced range has 7 bits.
    quantize_dynamic(model, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def _level_channels(graph: Any, exact: str, folder: Path) -> None:
    """Make the few channels of very large values as small as the others, and their weights as much larger.

    All activations of a pass share one scale. The first token of a BERT has single channels that are ten times as large
    as all others, which would leave the others two or three bits less. The idea is SmoothQuant's (Xiao et al. 2023).

    Args:
        graph: is changed; what it computes stays the same.
        exact: its file.
        folder: the model's folder, with its tokenizer.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    uses = Counter(name for node in graph.node for name in node.input)
    # Weights that layers share, as ALBERT's do, cannot be changed for one of them.
    weights = {
        weight.name: weight
        for weight in graph.initializer
        if len(weight.dims) == 2 and weight.data_type == TensorProto.FLOAT and uses[weight.name] == 1
    }
    constants = {constant.name for constant in graph.initializer}
    by_input: dict[str, list[Any]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights and node.input[0] not in constants:
            by_input.setdefault(node.input[0], []).append(node)
    if not by_input:
        return
    nodes = list(graph.node)
    for name, size in _channel_sizes(exact, list(by_input), folder).items():
        usual = np.percentile(size, _USUAL_CHANNELS)
        if usual == 0:
            continue
        factors = np.maximum(1, size / usual).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(1 / factors, f"{name}_factors"))
        levelled = helper.make_node("Mul", [name, f"{name}_factors"], [f"{name}_levelled"])
        nodes.insert(nodes.index(by_input[name][0]), levelled)
        for node in by_input[name]:
            weight = weights[node.input[1]]
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * factors[:, None], weight.name))
            node.input[0] = f"{name}_levelled"
    del graph.node[:]
    graph.node.extend(nodes)


def _channel_sizes(exact: str, names: list[str], folder: Path) -> dict[str, Any]:
    """Return the largest absolute value of each channel of some values of a graph.

    The texts are tokens drawn from the vocabulary. Which channels have large values hardly depends on the text.

    Returns:
        For each of ``names``, shape (channels,).
    """
    import numpy as np
    import onnx
    import onnxruntime

    # The weights of a graph of more than 2 GB are in files next to it.
    model = onnx.load(exact, load_external_data=False)
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.path.dirname(exact))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    tokenizer = load_tokenizer(folder)
    draw = np.random.default_rng(0)
    sizes: dict[str, Any] = dict.fromkeys(names, 0.0)
    for length in (20, 60, 120, 200) * 4:
        text = tokenizer.decode(draw.integers(0, tokenizer.get_vocab_size(), length).tolist())
        ids = np.asarray([tokenizer.encode(text).ids[: most_tokens(folder)]], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        values = session.run(names, {node.name: inputs[node.name] for node in session.get_inputs()})
        for name, value in zip(names, values, strict=True):
            sizes[name] = np.maximum(sizes[name], np.abs(value).reshape(-1, value.shape[-1]).max(axis=0))
    return sizes


def _export(folder: Path, kind: GraphKind, path: str) -> None:
    import torch

    model, names = load_model(folder, kind, attn_implementation="eager")
    # A pass has no padding, and adding a mask of zeros to all pairs of tokens would be a tenth of its time. Others may
    # need it for something else, such as ModernBERT for its windows.
    if model.config.model_type in _NEED_NO_MASK:
        names.remove("attention_mask")

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
