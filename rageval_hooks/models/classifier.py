"""Classifiers of tokens, texts and pairs of texts: the logits of one input, by ONNX Runtime or PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rageval_hooks.errors import ModelUnavailableError, model_requires
from rageval_hooks.models.onnx import open_graph
from rageval_hooks.models.pytorch import limit_threads, load_model
from rageval_hooks.models.sources import read_json
from rageval_hooks.runtime.pool import running_pass
from rageval_hooks.settings import ModelSettings

if TYPE_CHECKING:
    from tokenizers import Encoding

    from rageval_hooks.models.embedding import FloatArray


Logits = Callable[["Encoding"], "FloatArray"]
"""Takes one input; returns a vector per token (token classification), or one vector."""

Kind = Literal["pair", "tokens", "seq2seq"]
"""The classifiers: of a text or a pair, of tokens, and MiniCheck-Flan-T5, which answers with one token."""

_NO_AND_YES: Final = [3, 209]
"""The tokens by which MiniCheck-Flan-T5 answers: "0" and "1" of T5's vocabulary."""

_CORES: Final = {"grounding": 2}
"""For PyTorch; one core for other roles: a grounding model never runs while a call of the application waits."""


def load_logits(role: str, name: str, folder: Path, settings: ModelSettings, kind: Kind) -> tuple[Logits, str]:
    """Load the graph where ONNX Runtime can compute the model, else the weights.

    Returns:
        A function that computes the logits of one input, and the name of the backend.

    Raises:
        ModelUnavailableError: the model needs code from its repository.
        ValueError: weights are missing in the file.
    """
    # A model that writes text is exported as several files.
    graph = None if kind == "seq2seq" else open_graph(role, name, folder, settings, kind)
    if graph is None:
        return _by_torch(role, name, folder, settings.device, kind), "torch"
    import numpy as np

    def logits(encoding: Encoding) -> FloatArray:
        ids = np.asarray([encoding.ids], dtype=np.int64)
        types = np.asarray([encoding.type_ids], dtype=np.int64)
        with running_pass():
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
            found: FloatArray = graph.run(inputs)[0]
        return found

    return logits, "onnx"


def _by_torch(role: str, name: str, folder: Path, device: str, kind: Kind) -> Logits:
    with model_requires(role, "sentence-transformers", "local", "a model that PyTorch computes"):
        import torch
        import transformers
    model_type = (read_json(folder / "config.json") or {}).get("model_type")
    if model_type not in transformers.CONFIG_MAPPING:
        raise ModelUnavailableError(
            role,
            f"{name} is of the type {model_type!r}, which transformers does not know: it needs code from its "
            "repository, and such code is never run. Update transformers, or choose another model",
        )
    model, names = load_model(folder, kind)
    model = model.to(device)

    def logits(encoding: Encoding) -> FloatArray:
        limit_threads(_CORES.get(role, 1))
        with running_pass(), torch.inference_mode():
            ids = torch.tensor([encoding.ids], device=device)
            inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            if "token_type_ids" in names:
                inputs["token_type_ids"] = torch.tensor([encoding.type_ids], device=device)
            if kind == "seq2seq":
                inputs["decoder_input_ids"] = torch.zeros((1, 1), dtype=torch.long, device=device)
            output = model(**inputs).logits[0]
            # The logits of the first written token, of which two words are answers.
            output = output[0, _NO_AND_YES] if kind == "seq2seq" else output
            found: FloatArray = output.float().cpu().numpy()
        return found

    return logits
