"""Relevance of a response to a query by a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rageval_hooks.models.onnx import load_logits, onnx_file_wanted, shown_name
from rageval_hooks.models.sources import find_model, read_config, read_json
from rageval_hooks.models.tokenizing import load_tokenizer, most_tokens
from rageval_hooks.settings import ModelSettings

_MAX_LENGTH: Final = 100_000
"""Characters that are tokenized: far more than fit the model."""

_DEFAULT_TOKENS: Final = 512


@dataclass(frozen=True)
class Relevance:
    """How relevant a response is to a query.

    Attributes:
        probability: 0..1.
        truncated: True if the pair was longer than the model reads.
    """

    probability: float
    truncated: bool = False


@dataclass(eq=False)
class CrossEncoder:
    """Scores a query and a response that the model reads together.

    Attributes:
        name: the model's name, which is recorded with its scores.
        predict: takes a query and a response; returns the model's logit, and True if the pair was cut.
    """

    name: str
    predict: Callable[[str, str], tuple[float, bool]]

    def relevance(self, query: str, response: str) -> Relevance:
        """Return the sigmoid of the model's logit for the pair. Of longer pairs the model reads the beginning."""
        logit, truncated = self.predict(query[:_MAX_LENGTH], response[:_MAX_LENGTH])
        # tanh does not overflow, whatever the logit is.
        return Relevance((1 + math.tanh(logit / 2)) / 2, truncated)


def load_cross_encoder(settings: ModelSettings) -> CrossEncoder:
    """Load the cross-encoder that the settings name.

    Raises:
        ModelUnavailableError: it is not on this machine and cannot be downloaded.
        ValueError: it is of another kind.
    """
    name = settings.cross_encoder
    folder = find_model("cross_encoder", name, download=settings.download, onnx_file=onnx_file_wanted(settings))
    # Its configuration has a name for each output; without any, there are two.
    config = read_config(folder)
    outputs = len(config.get("id2label") or {}) or int(config.get("num_labels") or 2)
    if outputs != 1:
        raise ValueError(f"it has {outputs} outputs; one is needed")
    if (read_json(folder / "config_sentence_transformers.json") or {}).get("default_prompt_name"):
        raise ValueError("it follows instructions, which it would need in each pair: choose another cross-encoder")
    logits, backend = load_logits("cross_encoder", folder, settings, "pair")
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(most_tokens(folder) or _DEFAULT_TOKENS, strategy="longest_first")

    def predict(query: str, response: str) -> tuple[float, bool]:
        pair = tokenizer.encode(query, response)
        return float(logits(pair)[0]), bool(pair.overflowing)

    return CrossEncoder(shown_name("cross_encoder", settings, backend), predict)
