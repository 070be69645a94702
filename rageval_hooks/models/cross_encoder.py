"""Relevance of a response to a query by a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models.onnx import load_logits, onnx_file_wanted
from rageval_hooks.models.sources import find_model, read_json, reading
from rageval_hooks.models.tokenizing import load_tokenizer, most_tokens
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
        logit, truncated = self._predict(query[:_LONGEST], response[:_LONGEST])
        # tanh does not overflow, whatever the logit is.
        return Relevance((1 + math.tanh(logit / 2)) / 2, truncated)


def load_cross_encoder(settings: ModelSettings) -> CrossEncoder:
    """Load the cross-encoder that the settings name.

    Raises:
        ModelUnavailableError: the model cannot be loaded.
    """
    name = settings.cross_encoder
    folder = find_model("cross_encoder", name, download=settings.download, onnx_file=onnx_file_wanted(settings))
    with reading("cross_encoder", name):
        config = read_json(folder / "config.json")
        if config is None:
            raise FileNotFoundError(f"there is no {folder / 'config.json'}")
        # Its configuration has a name for each output; without any, there are two.
        outputs = len(config.get("id2label") or {}) or int(config.get("num_labels") or 2)
        if outputs != 1:
            raise ModelUnavailableError("cross_encoder", f"{name} has {outputs} outputs; one is needed")
        if (read_json(folder / "config_sentence_transformers.json") or {}).get("default_prompt_name"):
            reason = f"{name} follows instructions, which it would need in each pair: choose another cross-encoder"
            raise ModelUnavailableError("cross_encoder", reason)
        logits, backend = load_logits("cross_encoder", name, folder, settings, "pair")
        tokenizer = load_tokenizer("cross_encoder", folder, name)
    tokenizer.enable_truncation(most_tokens(folder) or _DEFAULT_TOKENS, strategy="longest_first")

    def predict(query: str, response: str) -> tuple[float, bool]:
        pair = tokenizer.encode(query, response)
        return float(logits(pair)[0]), bool(pair.overflowing)

    is_own_file = backend == "torch" or settings.onnx_file == ONNX_FILE
    return CrossEncoder(name if is_own_file else f"{name}, {settings.onnx_file}", predict)
