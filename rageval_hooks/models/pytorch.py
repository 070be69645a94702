"""Models that PyTorch computes: loaded by transformers' own classes, on few threads, without output of transformers."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.errors import requires
from rageval_hooks.models.sources import read_config
from rageval_hooks.runtime.pool import running_pass

if TYPE_CHECKING:
    from tokenizers import Encoding

    from rageval_hooks.models.tokenizing import FloatArray


_CLASSES = {
    "encoder": "AutoModel",
    "pair": "AutoModelForSequenceClassification",
    "tokens": "AutoModelForTokenClassification",
    "seq2seq": "AutoModelForSeq2SeqLM",
}
_NO_AND_YES: Final = [3, 209]
"""The tokens by which MiniCheck-Flan-T5 answers: "0" and "1" of T5's vocabulary."""

_CORES: Final = {"grounding": 2}
"""One core for other roles: a grounding model never runs while a call of the application waits."""

_limited = threading.local()


def limit_threads(cores: int = 1) -> None:
    """Let PyTorch use at most some cores for what this thread computes. The first call of a thread takes effect.

    PyTorch's threads wait for one another by spinning. On a busy machine a pass on several cores takes more CPU time
    than on one, and takes the cores from the application. ``torch.set_num_threads`` would not do: it also sets the
    number of all threads that start later.
    """
    if getattr(_limited, "is_done", False):
        return
    import torch
    from threadpoolctl import ThreadpoolController

    # PyTorch sets its usual number when a thread first asks for it, and would set it over ours later.
    if torch.get_num_threads() > cores:
        ThreadpoolController().limit(limits=cores, user_api="openmp")
    _limited.is_done = True


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Disable transformers' progress bars in this block: they would write to the application's standard error."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def load_model(folder: Path, kind: str, **options: Any) -> tuple[Any, list[str]]:
    """Load a model with transformers' own classes. No code of the model is run.

    Args:
        folder: the model's folder.
        kind: what it computes: one of :data:`rageval_hooks.models.onnx.GraphKind`, or ``seq2seq`` for one that writes
            text.
        options: further arguments of ``from_pretrained``.

    Returns:
        The model, and the names of its inputs in the order of its ``forward``.

    Raises:
        ValueError: weights are missing in the file; transformers would fill them with random numbers.
    """
    import torch
    import transformers

    with quiet_transformers():
        model, loaded = getattr(transformers, _CLASSES[kind]).from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,  # other formats can run code when they are read
            output_loading_info=True,
            **options,
        )
    missing = sorted(name for name in loaded["missing_keys"] if kind != "encoder" or "pooler" not in name)
    if missing:
        raise ValueError(f"{folder} has no weights for {', '.join(missing[:3])}: it is not trained for this")
    names = ["input_ids", "attention_mask"]
    # Models with one type, such as RoBERTa, read only zeros.
    if "token_type_ids" in inspect.signature(model.forward).parameters and model.config.type_vocab_size > 1:
        names.append("token_type_ids")
    return model.eval(), names


def logits_by_torch(role: str, folder: Path, device: str, kind: str) -> Callable[[Encoding], FloatArray]:
    """Load a classifier; return a function that computes the logits of one input.

    Raises:
        MissingDependencyError: a package is missing.
        ValueError: weights are missing in the file, or the model needs code from its repository.
    """
    with requires("sentence-transformers", "torch", "a model that PyTorch computes"):
        import torch
        import transformers
    model_type = read_config(folder).get("model_type")
    if model_type not in transformers.CONFIG_MAPPING:
        raise ValueError(
            f"it is of the type {model_type!r}, which transformers does not know: it needs code from its "
            "repository, and such code is never run. Update transformers, or choose another model"
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
