"""TorchScript for the forward passes of a model, so that they do not wait for Python's interpreter lock.

A pass in Python takes the interpreter lock again before each of some hundred operations. While another thread computes
in Python, each time may take 5 ms: a pass of 12 tokens took 670 ms in place of 15, and three times the CPU time.
TorchScript runs all operations of a pass without the lock, and its results are the same to the last bit.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from rageval_hooks.models.transformer import OUTPUTS, replace_transformer, transformer_of

if TYPE_CHECKING:
    from torch import Tensor

    Inputs = dict[str, Tensor]

__all__ = ["use_torchscript"]

logger = logging.getLogger(__name__)

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_TOLERANCE = 1e-5


def use_torchscript(role: str, model: Any, length: int) -> bool:
    """Compute the passes of a model by TorchScript if that gives the same results.

    Args:
        role: ``embedder`` or ``cross_encoder``.
        model: a model of sentence-transformers, on the CPU.
        length: tokens of the longest text that it will read.

    Returns:
        False if the model does not allow it, and is left as it is: its operations depend on the text, or TorchScript
        does not support this version of Python.
    """
    # PyTorch says that it may break there.
    if sys.version_info >= (3, 14):
        return False
    try:
        if model.device.type != "cpu":
            return False
        script = _Script(model, OUTPUTS[role])
        script.check(length)
    except Exception as error:  # by whatever the model's own code does
        logger.debug("%s is not run by TorchScript: %s: %s", role, type(error).__name__, error)
        return False
    replace_transformer(model, role, script.run)
    return True


class _Script:
    """The transformer of a model as TorchScript.

    Args:
        model: a model of sentence-transformers.
        output: the name of the transformer's output.
    """

    def __init__(self, model: Any, output: str) -> None:
        import torch

        self._model = transformer_of(model).eval()
        self._output = output
        self._padding = model.tokenizer.pad_token_id or 0
        accepted = signature(self._model.forward).parameters
        given = model.tokenizer.model_input_names
        self._names = [name for name in _INPUTS if name in given and name in accepted]
        _ignore_warnings()
        # The weights become constants of a function. Tracing the module would read all its properties, which makes
        # transformers print warnings, and weights that can be trained are no constants.
        self._model.requires_grad_(False)
        self._script = torch.jit.trace(self._by_position, self._ordered(self._example(2, 16)), check_trace=False)

    def run(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the output for some inputs."""
        if inputs.keys() != set(self._names):
            return self._eager(inputs)
        return self._script(*self._ordered(inputs))

    def check(self, length: int) -> None:
        """Compare the results for other shapes of texts with those of the model.

        Raises:
            ValueError: they differ.
        """
        import torch

        with torch.inference_mode():
            for inputs in self._examples(length):
                found, expected = self.run(inputs), self._eager(inputs)
                if found.shape != expected.shape or not torch.allclose(found, expected, atol=_TOLERANCE):
                    raise ValueError(f"the results differ for inputs of the shape {tuple(inputs['input_ids'].shape)}")

    def _by_position(self, *inputs: Tensor) -> Tensor:
        return self._eager(dict(zip(self._names, inputs, strict=True)))

    def _eager(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self._model(**inputs)[self._output]

    def _ordered(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return tuple(inputs[name] for name in self._names)

    def _examples(self, length: int) -> Iterator[Inputs]:
        for texts, tokens in ((1, 3), (3, 40), (1, length)):
            yield self._example(texts, tokens)

    def _example(self, texts: int, tokens: int) -> Inputs:
        """Return inputs of the model: all texts but the first are padded to the length of the first."""
        import torch

        ids = torch.arange(texts * tokens).reshape(texts, tokens) % self._model.config.vocab_size
        mask = torch.ones_like(ids)
        mask[1:, tokens // 2 :] = 0
        ids[mask == 0] = self._padding
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        return {name: values[name] for name in self._names}


def _ignore_warnings() -> None:
    """Keep what tracing says about the code of other libraries from the application's terminal."""
    import torch

    warnings.filterwarnings("ignore", category=torch.jit.TracerWarning, module="transformers")
    warnings.filterwarnings("ignore", r"`torch\.jit\.trace", category=DeprecationWarning)
