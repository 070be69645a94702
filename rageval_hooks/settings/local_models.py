"""The settings of the local models."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rageval_hooks.errors import UnknownNameError
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.settings.text_forms import YES_OR_NO, Number, parsed

LEXICAL = "lexical"
"""Given as a model's name: replacements that use tokens and rules, and need no weights."""

ONNX_FILE = "onnx/model.onnx"
"""The usual path of the ONNX file in a model's folder or hub repository."""

MINILM = ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2")
"""The names of the default embedder."""

FORMULA = "minilm"
"""Given as the grounding model: the formula over words and the embedder's vectors, without a model for this purpose."""

# Field descriptions: error messages quote them to say what is valid.
_MODEL_NAME = f"a model's name, an existing path, or {LEXICAL!r}"


class ModelSettings(Data):
    """The local models. Each is a hub name, a package name, a local path, or ``"lexical"``.

    Attributes:
        embedder: a sentence-transformers model. Its token vectors are used too.
        cross_encoder: a sentence-transformers cross-encoder for (query, response) pairs.
        nlp: a spaCy pipeline with a parser and an entity recogniser.
        hhem: a model with the layout of HHEM-2, for the metric ``hhem``. It has no lexical replacement.
        grounding: computes ``groundedness``: ``"minilm"`` for the formula over the embedder's vectors, or a grounding
            model, such as LettuceDetect, MiniCheck, FactCG or an NLI cross-encoder. It runs with ONNX Runtime where its
            folder has ``onnx_file``.
        grounding_template: how the grounding model wants its input. ``"auto"`` recognises it by the model's name and
            its ``config.json``; the others are ``"lettucedetect"``, ``"pair"``, ``"minicheck"`` and ``"factcg"``.
        download: True to download models that are not on this machine, in the background.
        load_timeout: seconds after which a model that is still loading counts as not available.
        backend: computes the models on the CPU: ``"auto"`` for ONNX Runtime where it is installed, ``"onnx"`` to insist
            on it, ``"torch"`` for PyTorch. On other devices PyTorch computes.
        precision: the weights that ONNX Runtime computes with: ``"int8"``, ``"fp32"``, or ``"auto"`` for int8 in the
            embedder, where it hardly changes any score, and fp32 elsewhere.
        onnx_file: the ONNX file in a model's folder or hub repository; the same for all models. Without this file the
            graph is made from the weights. A file that is named here is used as it is.
        device: torch device for the models, such as ``"cpu"`` or ``"cuda:0"``.
        cache_mb: memory for computed values of passages, in MiB.
    """

    embedder: str = Field(default=MINILM[0], description=_MODEL_NAME)
    cross_encoder: str = Field(default="cross-encoder/ms-marco-MiniLM-L-6-v2", description=_MODEL_NAME)
    nlp: str = Field(default="en_core_web_sm", description=_MODEL_NAME)
    hhem: str = Field(default="vectara/hallucination_evaluation_model", description=_MODEL_NAME)
    grounding: str = Field(default=FORMULA, description=f"{FORMULA!r}, a model's name, or an existing path")
    grounding_template: Literal["auto", "lettucedetect", "pair", "minicheck", "factcg"] = Field(
        default="auto", description="'auto', 'lettucedetect', 'pair', 'minicheck' or 'factcg'"
    )
    download: bool = Field(default=True, description=YES_OR_NO)
    load_timeout: Number = Field(default=120.0, gt=0, allow_inf_nan=False, description="seconds, more than 0")
    backend: Literal["auto", "onnx", "torch"] = Field(default="auto", description="'auto', 'onnx' or 'torch'")
    precision: Literal["auto", "int8", "fp32"] = Field(default="auto", description="'auto', 'int8' or 'fp32'")
    onnx_file: str = Field(default=ONNX_FILE, min_length=1, description="a file, such as 'onnx/model.onnx'")
    device: str = Field(default="cpu", description="a torch device, such as 'cpu' or 'cuda:0'")
    cache_mb: Number = Field(default=64.0, ge=0, allow_inf_nan=False, description="MiB, 0 or more")

    @field_validator("embedder", "cross_encoder", "nlp", "hhem", "grounding")
    @classmethod
    def _existing_path(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("is empty")
        if looks_like_path(name) and not os.path.exists(os.path.expanduser(name)):
            raise ValueError(f"no such path: {name}")
        return name

    @field_validator("grounding")
    @classmethod
    def _not_lexical(cls, name: str) -> str:
        if name == LEXICAL:
            raise ValueError(f"the formula uses words alone where the embedder is lexical: set embedder={LEXICAL!r}")
        return name

    @model_validator(mode="after")
    def _backend_is_here(self) -> ModelSettings:
        if self.backend == "onnx":
            if find_spec("onnxruntime") is None:
                raise ValueError("backend='onnx' needs onnxruntime: pip install \"rageval-hooks[local]\"")
            if self.device != "cpu":
                raise ValueError(f"backend='onnx' computes on the CPU: not on device={self.device!r}")
        return self


def looks_like_path(name: str) -> bool:
    """Return True if a model's name can only be a path on this machine."""
    return name.startswith((".", "~", "/", os.sep)) or os.path.isabs(name)


_TIERS: dict[str, dict[str, str]] = {
    "default": {},
    LEXICAL: {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": LEXICAL, "hhem": LEXICAL},
}


def tier_of(value: Any) -> Any:
    """Return the fields of a tier, such as ``"lexical"``, or a mapping of fields that was written as JSON.

    Raises:
        UnknownNameError: there is no such tier.
    """
    value = parsed(value, lambda text: text)
    if not isinstance(value, str):
        return value
    if value not in _TIERS:
        fields = ", ".join(ModelSettings.model_fields)
        raise UnknownNameError("tier of models", value, _TIERS, f"Or give a mapping with any of the keys {fields}.")
    return _TIERS[value]
