"""The transformer inside a model that sentence-transformers has loaded, and another way to compute its passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from transformers import PreTrainedModel

__all__ = ["OUTPUTS", "replace_transformer", "transformer_of"]

OUTPUTS: Final = {"embedder": "last_hidden_state", "cross_encoder": "logits"}
"""By role, the output of the transformer that is read."""


def transformer_of(model: Module) -> PreTrainedModel:
    """Return the transformer inside a model."""
    return _find(model)[1]


def replace_transformer(model: Module, role: str, run: Callable[[Mapping[str, Tensor]], Tensor]) -> None:
    """Compute the forward passes of a model's transformer in another way. Tokens and pooling do not change.

    Args:
        model: the model.
        role: ``embedder`` or ``cross_encoder``.
        run: gets the inputs by name, and returns the role's output.
    """
    import torch
    from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput

    output_class = {"embedder": BaseModelOutput, "cross_encoder": SequenceClassifierOutput}[role]

    class Transformer(torch.nn.Module):  # type: ignore[misc]
        """Returns what a model of transformers returns."""

        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config = config
            self.device = torch.device("cpu")
            self.dtype = torch.float32

        def forward(self, **features: Any) -> Any:
            inputs = {name: value for name, value in features.items() if isinstance(value, torch.Tensor)}
            return output_class(**{OUTPUTS[role]: run(inputs)})

    name, found = _find(model)
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, Transformer(found.config).eval())


def _find(model: Module) -> tuple[str, PreTrainedModel]:
    from transformers import PreTrainedModel

    return next((name, part) for name, part in model.named_modules() if isinstance(part, PreTrainedModel))
