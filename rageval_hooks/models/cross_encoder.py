"""Relevance of a response to a query by a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rageval_hooks.errors import ModelUnavailableError, model_requires
from rageval_hooks.models.onnx import Graph, onnx_is_wanted, open_graph
from rageval_hooks.models.pytorch import limit_threads, quiet_transformers
from rageval_hooks.models.sources import find_model, read_json, reading
from rageval_hooks.models.tokenizing import load_tokenizer, most_tokens
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.pool import running_pass
from rageval_hooks.settings import ONNX_FILE, ModelSettings

_LONGEST: Final = 100_000
"""Characters that are tokenized: far more than fit the model."""

_DEFAULT_TOKENS: Final = 512

Predict = Callable[[str, str], "tuple[float, bool]"]
"""Takes a query and a response; returns the model's logit, and True if the pair was cut."""


@dataclass(frozen=True)
class Relevance:
    """How relevant a response is to a query.

    Attributes:
        probability: 0..1.
        truncated: True if the pair was longer than the model reads.
    """

    probability: float
    truncated: bool = False


class CrossEncoder:
    """Scores a query and a response that the model reads together.

    Args:
        name: the model's name, which is recorded with its scores.
        predict: computes one pair.
    """

    def __init__(self, name: str, predict: Predict) -> None:
        self.name = name
        self._predict = predict

    def relevance(self, query: str, response: str) -> Relevance:
        """Return the sigmoid of the model's logit for the pair. Of longer pairs the model reads the beginning."""
        with running_pass():
            logit, truncated = self._predict(query[:_LONGEST], response[:_LONGEST])
        # tanh does not overflow, whatever the logit is.
        return Relevance((1 + math.tanh(logit / 2)) / 2, truncated)


def load_cross_encoder(settings: ModelSettings) -> CrossEncoder:
    """Load the cross-encoder that the settings name.

    Raises:
        ModelUnavailableError: the model cannot be loaded.
    """
    name = settings.cross_encoder
    onnx_file = settings.onnx_file if onnx_is_wanted(settings) else ""
    folder = find_model("cross_encoder", name, download=settings.download, onnx_file=onnx_file)
    with reading("cross_encoder", name):
        outputs = _outputs(folder)
        if outputs != 1:
            raise ModelUnavailableError("cross_encoder", f"{name} has {outputs} outputs; one is needed")
        # A prompt, as of rerankers that follow instructions, is written by the library.
        has_prompt = (read_json(folder / "config_sentence_transformers.json") or {}).get("default_prompt_name")
        graph = None if has_prompt else open_graph("cross_encoder", name, folder, settings, "pair")
        if graph is None:
            return CrossEncoder(name, _predict_by_torch(folder, settings))
        shown = name if settings.onnx_file == ONNX_FILE else f"{name}, {settings.onnx_file}"
        return CrossEncoder(shown, _predict_by_onnx(folder, graph, name))


def _outputs(folder: Path) -> int:
    """Return the number of a model's outputs. Its configuration has a name for each; without any, there are two."""
    config = read_json(folder / "config.json")
    if config is None:
        raise FileNotFoundError(f"there is no {folder / 'config.json'}")
    return len(config.get("id2label") or {}) or int(config.get("num_labels") or 2)


def _predict_by_onnx(folder: Path, graph: Graph, name: str) -> Predict:
    import numpy as np

    tokenizer = load_tokenizer("cross_encoder", folder, name)
    tokenizer.enable_truncation(most_tokens(folder) or _DEFAULT_TOKENS, strategy="longest_first")

    def predict(query: str, response: str) -> tuple[float, bool]:
        pair = tokenizer.encode(query, response)
        inputs = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
        logits = graph.run({key: np.asarray([values], np.int64) for key, values in inputs.items()})
        return float(logits[0, 0]), bool(pair.overflowing)

    return predict


def _predict_by_torch(folder: Path, settings: ModelSettings) -> Predict:
    with model_requires("cross_encoder", "sentence-transformers", "local", "a cross-encoder that PyTorch computes"):
        from sentence_transformers import CrossEncoder as Library
    import torch

    with quiet_transformers():
        model: Any = Library(str(folder), device=settings.device, local_files_only=True, trust_remote_code=False)
    limit = int(getattr(model, "max_seq_length", None) or model.tokenizer.model_max_length)
    # Tokenizers of Hugging Face raise if two threads use one at the same time, and the library changes its own.
    lock = ForkSafeLock()

    def predict(query: str, response: str) -> tuple[float, bool]:
        limit_threads()
        with lock:
            [logit] = model.predict([(query, response)], activation_fn=torch.nn.Identity(), show_progress_bar=False)
            tokens = model.tokenizer(query, response, truncation=False, verbose=False)["input_ids"]
        return float(logit), len(tokens) > limit

    return predict
