"""The forward pass of a model: by PyTorch, or by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rageval_hooks.models.grounding.layout import Family, unavailable
from rageval_hooks.models.onnx import Graph
from rageval_hooks.models.pytorch import limit_threads, quiet_transformers
from rageval_hooks.runtime.executors import slow_model_executor

if TYPE_CHECKING:
    from torch import Tensor

    from rageval_hooks.models.embedding import FloatArray

__all__ = ["Encoded", "Network", "OnnxNetwork", "TorchNetwork", "load_weights", "probabilities"]

_CORES: Final = 2
_NO_AND_YES: Final = (3, 209)
"""The tokens by which MiniCheck-Flan-T5 answers: "0" and "1" of T5's vocabulary."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The input of one pass.

    Attributes:
        ids: token ids.
        types: 0 for tokens of the first text, 1 for tokens of the second.
    """

    ids: list[int]
    types: list[int]


class Network(Protocol):
    """Computes logits."""

    backend: str

    def logits(self, encoded: Encoded) -> FloatArray:
        """Return the logits of one input: a vector per token (token classification), or one vector."""


class TorchNetwork:
    """A model of transformers.

    Args:
        model: the model, in evaluation mode.
        family: how its output is to be read.
        reads_types: True if it distinguishes the two texts of a pair.
    """

    backend = "torch"

    def __init__(self, model: Any, family: Family, *, reads_types: bool) -> None:
        self._model = model
        self._family = family
        self._reads_types = reads_types

    def logits(self, encoded: Encoded) -> FloatArray:
        """Return the logits; see :class:`Network`."""
        return slow_model_executor().submit(self._logits, encoded).result()

    def _logits(self, encoded: Encoded) -> FloatArray:
        import torch

        limit_threads(_CORES)
        with torch.inference_mode():
            inputs = self._inputs(encoded)
            found: Tensor = self._model(**inputs).logits[0].float()
            if self._family == "seq2seq":
                # The logits of the first written token, of which two words are answers.
                found = found[0, list(_NO_AND_YES)]
            array: FloatArray = found.cpu().numpy()
            return array

    def _inputs(self, encoded: Encoded) -> dict[str, Tensor]:
        import torch

        device = self._model.device
        ids = torch.tensor([encoded.ids], device=device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._reads_types:
            inputs["token_type_ids"] = torch.tensor([encoded.types], device=device)
        if self._family == "seq2seq":
            inputs["decoder_input_ids"] = torch.zeros((1, 1), dtype=torch.long, device=device)
        return inputs


class OnnxNetwork:
    """A model that ONNX Runtime computes.

    Args:
        graph: its graph.
    """

    backend = "onnx"

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def logits(self, encoded: Encoded) -> FloatArray:
        """Return the logits; see :class:`Network`."""
        return slow_model_executor().submit(self._logits, encoded).result()

    def _logits(self, encoded: Encoded) -> FloatArray:
        import numpy as np

        ids = np.asarray([encoded.ids], dtype=np.int64)
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.asarray([encoded.types], dtype=np.int64),
        }
        found: FloatArray = self._graph.run(inputs)[0]
        return found


def load_weights(path: str, family: Family, device: str, *, reads_types: bool) -> TorchNetwork:
    """Load a model's weights with transformers' own classes.

    Args:
        path: a folder.
        family: which kind of head it has.
        device: the torch device.
        reads_types: True if it distinguishes the two texts of a pair.

    Raises:
        ModelUnavailableError: weights are missing in the file; transformers would fill them with random numbers.
    """
    import torch
    from transformers import (
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
    )

    classes: Mapping[str, Any] = {
        "tokens": AutoModelForTokenClassification,
        "pair": AutoModelForSequenceClassification,
        "seq2seq": AutoModelForSeq2SeqLM,
    }
    with quiet_transformers():
        model, loaded = classes[family].from_pretrained(
            path, local_files_only=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise unavailable(f"{path} has no weights for {', '.join(missing[:3])}: it is not trained for this")
    return TorchNetwork(model.to(device).eval(), family, reads_types=reads_types)


def probabilities(logits: FloatArray) -> FloatArray:
    """Return the softmax over the last axis."""
    import numpy as np

    # Without the largest value, exp would overflow.
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    found: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return found
