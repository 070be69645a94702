"""Files of ONNX, exported from models on disk, where the hubs have them: ``onnx/model.onnx`` in a model's folder."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

__all__ = ["export"]

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def export(
    folder: Path,
    head: bool = False,
    output: str | None = None,
    inputs: tuple[str, ...] = _INPUTS,
    kind: str = "AutoModelForSequenceClassification",
) -> Path:
    """Write the file for a BERT, in any shape of texts; return it.

    Args:
        folder: the model's.
        head: with its head, whose output is ``logits``; without it, ``last_hidden_state``.
        output: another name for the output.
        inputs: what it reads.
        kind: the class of transformers that has the head.
    """
    import torch
    import transformers

    model_class = getattr(transformers, kind if head else "AutoModel")
    model = model_class.from_pretrained(folder, attn_implementation="eager", local_files_only=True).eval()

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            found = self.model(**dict(zip(inputs, given, strict=True)))
            return found.logits if head else found.last_hidden_state

    output = output or ("logits" if head else "last_hidden_state")
    ids = torch.randint(5, 40, (2, 16))
    example = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    text, token = {0: "texts"}, {0: "texts", 1: "tokens"}
    by_text = head and not kind.endswith("TokenClassification")
    shapes = {**dict.fromkeys(inputs, token), output: text if by_text else token}
    path = folder / "onnx" / "model.onnx"
    path.parent.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            Graph(), tuple(example[name] for name in inputs), str(path), input_names=list(inputs),
            output_names=[output], dynamic_axes=shapes, opset_version=17, dynamo=False,
        )  # fmt: skip
    return path
