"""Relevance of a response to a query by a cross-encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import ModelUnavailableError, model_requires
from rageval_hooks.models.onnx import use_onnx
from rageval_hooks.models.sources import load_pretrained
from rageval_hooks.models.torchscript import use_torchscript
from rageval_hooks.runtime.executors import ForkSafeLock, model_executor
from rageval_hooks.settings import ModelSettings

__all__ = ["CrossEncoder", "Relevance", "load_cross_encoder"]


@dataclass(frozen=True)
class Relevance:
    """How relevant a response is to a query.

    Attributes:
        probability: 0..1.
        truncated: True if the pair was longer than the model reads.
    """

    probability: float
    truncated: bool = False


_LONGEST = 100_000
"""Characters that are tokenized: far more than fit the model."""

_CHECKED = 512
"""Tokens of the longest pair for which TorchScript is compared with PyTorch."""

_SPECIAL_TOKENS = 8
"""An upper bound of the tokens that a tokenizer adds to a pair of texts."""


class CrossEncoder:
    """Scores a query and a response that the model reads together.

    Args:
        model: a ``sentence_transformers.CrossEncoder`` with one output.
        name: the model's name, which is recorded with its scores.
    """

    def __init__(self, model: Any, name: str) -> None:
        if model.num_labels != 1:
            raise ModelUnavailableError("cross_encoder", f"{name} has {model.num_labels} outputs; one is needed")
        self._model = model
        self._prompt = (getattr(model, "prompts", None) or {}).get(getattr(model, "default_prompt_name", None))
        self.name = name
        # Tokenizers of Hugging Face raise if two threads use one at the same time.
        self._tokenizing = ForkSafeLock()

    def relevance(self, query: str, response: str) -> Relevance:
        """Return the sigmoid of the model's logit for the pair. The model's library truncates longer pairs."""
        return model_executor().submit(self._relevance, query[:_LONGEST], response[:_LONGEST]).result()

    def _relevance(self, query: str, response: str) -> Relevance:
        return Relevance(_sigmoid(self._logit(query, response)), truncated=self._is_cut(query, response))

    def _logit(self, query: str, response: str) -> float:
        """Return what ``predict`` returns for one pair, without its overhead for lists of pairs."""
        import torch

        model = self._model
        if not hasattr(model, "preprocess"):  # before sentence-transformers 5.4
            with self._tokenizing:
                found = model.predict([(query, response)], activation_fn=torch.nn.Identity(), show_progress_bar=False)
            return float(found[0])
        with self._tokenizing:
            features = model.preprocess([(query, response)], prompt=self._prompt)
        with torch.inference_mode():
            for name, values in features.items():
                if isinstance(values, torch.Tensor):
                    features[name] = values.to(model.device)
            return float(model(features)["scores"].float().reshape(()))

    def _is_cut(self, query: str, response: str) -> bool:
        limit = _longest(self._model)
        # A token has at least one character, so most pairs need not be tokenized again.
        if not limit or len(query) + len(response) + _SPECIAL_TOKENS <= limit:
            return False
        with self._tokenizing:
            length = len(self._model.tokenizer(query, response, truncation=False, verbose=False)["input_ids"])
        return bool(length > limit)


def _longest(model: Any) -> int:
    """Return the number of tokens that the model reads."""
    return int(getattr(model, "max_seq_length", None) or model.tokenizer.model_max_length)


def _sigmoid(value: float) -> float:
    # Two forms, so that exp never overflows.
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))


def load_cross_encoder(settings: ModelSettings) -> CrossEncoder:
    """Load the cross-encoder that the settings name.

    Raises:
        ModelUnavailableError: the model cannot be loaded.
    """
    with model_requires("cross_encoder", "sentence-transformers", "local", "the cross-encoder"):
        from sentence_transformers import CrossEncoder as Model

    def load(path: str, local: bool) -> CrossEncoder:
        model = Model(path, device=settings.device, local_files_only=local, trust_remote_code=False)
        name = settings.cross_encoder
        if settings.backend == "onnx":
            name = use_onnx("cross_encoder", model, settings, path if local else None)
        else:
            use_torchscript("cross_encoder", model, min(_longest(model), _CHECKED))
        return CrossEncoder(model.eval(), name)

    return load_pretrained("cross_encoder", settings.cross_encoder, settings.download, load)
