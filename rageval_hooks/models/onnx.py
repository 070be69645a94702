"""ONNX Runtime in place of PyTorch for the forward passes of a model that sentence-transformers has loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import MissingDependencyError, ModelUnavailableError
from rageval_hooks.models.sources import hub_file
from rageval_hooks.models.transformer import replace_transformer
from rageval_hooks.settings import ONNX_FILE, ModelSettings, looks_like_path

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = ["OnnxGraph", "use_onnx"]

_OUTPUTS = {"embedder": ("last_hidden_state", "token_embeddings"), "cross_encoder": ("logits",)}
"""By role, the names that exporters give to the output that is read."""


class OnnxGraph:
    """An ONNX file, ready to run.

    It runs on the calling thread. Threads of the runtime would be missing in a forked process, which would then wait
    forever.

    Args:
        path: the file.
        threads: the number of threads that compute.

    Raises:
        ImportError: onnxruntime is not installed.
        Exception: onnxruntime cannot read the file.
    """

    def __init__(self, path: str, threads: int = 1) -> None:
        onnxruntime = _without_telemetry()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        # Memory patterns keep a plan for each shape of the inputs, and every text has another shape.
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [node.name for node in self._session.get_inputs()]
        self.outputs = [node.name for node in self._session.get_outputs()]

    def run(self, output: str, inputs: Mapping[str, Any]) -> Any:
        """Return one output. Inputs are numpy arrays by name; those that the graph does not read are ignored."""
        [found] = self._session.run([output], {name: inputs[name] for name in self.inputs})
        return found


def _without_telemetry() -> Any:
    """Import onnxruntime with its telemetry disabled.

    The telemetry reports to the vendor, and its thread makes forked processes hang or abort when they end. It must be
    disabled before the import.
    """
    variable = "ORT_DISABLE_TELEMETRY"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        return import_module("onnxruntime")
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def use_onnx(role: str, model: Module, settings: ModelSettings, folder: str | None) -> str:
    """Replace the transformer inside a sentence-transformers model by ONNX Runtime. Tokens and pooling do not change.

    Args:
        role: ``embedder`` or ``cross_encoder``.
        model: the model; its PyTorch weights are dropped.
        settings: the model, the file, and whether it may be downloaded.
        folder: the folder of the model, if it is known.

    Returns:
        The model's name for its scores, with the file's name if that is not the default.

    Raises:
        ModelUnavailableError: there is no such file, or it has another kind of model.
    """
    name = str(getattr(settings, role))
    path = _find(role, name, settings, folder)
    try:
        graph = OnnxGraph(path)
    except ImportError as error:
        missing = MissingDependencyError("onnxruntime", "onnx", 'backend="onnx"')
        raise ModelUnavailableError(role, str(missing)) from error
    except Exception as error:
        reason = f"{path} cannot be loaded: {type(error).__name__}: {str(error)[:200]}"
        raise ModelUnavailableError(role, reason) from error
    output = next((output for output in _OUTPUTS[role] if output in graph.outputs), None)
    if output is None:
        wanted = " or ".join(_OUTPUTS[role])
        raise ModelUnavailableError(role, f"{path} has no output {wanted}, but {', '.join(graph.outputs)}")
    replace_transformer(model, role, partial(_run, graph, output))
    return name if settings.onnx_file == ONNX_FILE else f"{name}, {settings.onnx_file}"


def _find(role: str, name: str, settings: ModelSettings, folder: str | None) -> str:
    file = settings.onnx_file
    path = os.path.join(folder or "", *file.split("/"))
    if folder is not None and os.path.isfile(path):
        return path
    if not looks_like_path(name) and not os.path.isdir(name):
        # A name without a publisher is one of sentence-transformers.
        repository = name if "/" in name else f"sentence-transformers/{name}"
        found = hub_file(repository, file, settings.download)
        if found is not None:
            return found
    where = f"{name} has no {file} on this machine"
    advice = f"Download it where there is a network (hf download {name} {file})"
    raise ModelUnavailableError(role, f'{where}, which backend="onnx" needs. {advice}, or leave backend="torch"')


def _run(graph: OnnxGraph, output: str, inputs: Mapping[str, Tensor]) -> Tensor:
    import torch

    arrays = {name: value.numpy() for name, value in inputs.items()}
    if "token_type_ids" not in arrays:
        arrays["token_type_ids"] = torch.zeros_like(inputs["input_ids"]).numpy()
    return torch.from_numpy(graph.run(output, arrays))
