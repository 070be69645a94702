"""Settings as plain data: a keyword argument, else the environment (``RAGEVAL_*``), else the default."""

from rageval_hooks.settings.local_models import FORMULA, LEXICAL, MINILM, ONNX_FILE, ModelSettings, looks_like_path
from rageval_hooks.settings.settings import Settings, SpanSelection, unknown_variables
from rageval_hooks.settings.text_forms import EVERY

__all__ = [
    "EVERY",
    "FORMULA",
    "LEXICAL",
    "MINILM",
    "ONNX_FILE",
    "ModelSettings",
    "Settings",
    "SpanSelection",
    "looks_like_path",
    "unknown_variables",
]
