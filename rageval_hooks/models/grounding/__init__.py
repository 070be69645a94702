"""Grounding models: small classifiers that were trained to find what a source does not support.

Two families are told apart by the ``architectures`` of ``config.json``:

- **token classification** (LettuceDetect): the model reads passages and answer together and marks unsupported tokens;
- **sequence pair** (NLI cross-encoders, MiniCheck, FactCG, HHEM): it reads a source and one sentence, and gives the
  probability that the source supports the sentence.

No code of a model is run: transformers' own classes read its weights, or ONNX Runtime its ``onnx/model.onnx``.
"""

from __future__ import annotations

from rageval_hooks.models.grounding.loading import load_grounding
from rageval_hooks.models.grounding.model import (
    GroundingInput,
    GroundingModel,
    Reading,
    SentenceSupport,
    UnsupportedSpan,
)

__all__ = ["GroundingInput", "GroundingModel", "Reading", "SentenceSupport", "UnsupportedSpan", "load_grounding"]
