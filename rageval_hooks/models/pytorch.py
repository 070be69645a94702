"""What the models need that PyTorch computes: few threads, and no output of transformers."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CLASSES = {
    "encoder": "AutoModel",
    "pair": "AutoModelForSequenceClassification",
    "tokens": "AutoModelForTokenClassification",
    "seq2seq": "AutoModelForSeq2SeqLM",
}
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
