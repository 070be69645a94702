"""Load a grounding model: a folder, or a name on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.errors import model_requires
from rageval_hooks.models.grounding.layout import Layout, read_config, read_layout, unavailable
from rageval_hooks.models.grounding.model import GroundingModel
from rageval_hooks.models.grounding.network import Network, OnnxNetwork, load_weights
from rageval_hooks.models.grounding.pair_model import HhemReader, PairModel, TemplateReader
from rageval_hooks.models.grounding.templates import PAIR_TEMPLATES
from rageval_hooks.models.grounding.token_model import MOST_TOKENS, TokenModel
from rageval_hooks.models.hhem import load_hhem
from rageval_hooks.models.onnx import GraphKind, onnx_is_wanted, open_graph
from rageval_hooks.models.sources import find_model, load_tokenizer, read_json, reading
from rageval_hooks.settings import ModelSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["load_grounding"]

_VERSION: Final = "1"
"""Changes when a model is asked in another way and its scores change: the template, the windows, the aggregation."""

# The commit of a snapshot in the hub's cache: ".../snapshots/0f1e2d…".
_SNAPSHOT: Final = re.compile(r"snapshots[/\\]([0-9a-f]{40})")


def load_grounding(settings: ModelSettings) -> GroundingModel:
    """Load the model that the settings name.

    Raises:
        ModelUnavailableError: the model cannot be loaded, or is of another kind; the message says what to do.
    """
    name = settings.grounding
    onnx_file = settings.onnx_file if onnx_is_wanted(settings) else ""
    folder = find_model("grounding", name, download=settings.download, onnx_file=onnx_file)
    with reading("grounding", name):
        config = read_config(str(folder), name)
        layout = read_layout(config, name, settings.grounding_template)
        if layout.family == "hhem":
            reader = HhemReader(load_hhem(settings.model_copy(update={"hhem": name})))
            details = _details(layout, "torch", str(folder))
            return PairModel(name=name, version=_version(layout), details=details, reader=reader)
        network = _load_network(folder, layout, settings)
        tokenizer = load_tokenizer("grounding", folder, name)
        end = _end_token(read_json(folder / "tokenizer_config.json") or {})
        return _build(name, layout, network, tokenizer, end, _details(layout, network.backend, str(folder)))


def _end_token(config: Mapping[str, Any]) -> str:
    """Return the token at the end of a text, which some templates need."""
    token = config.get("eos_token") or config.get("sep_token") or ""
    return str(token.get("content", "")) if isinstance(token, Mapping) else str(token)


def _build(
    name: str, layout: Layout, network: Network, encoder: Tokenizer, end: str, details: dict[str, str]
) -> GroundingModel:
    if layout.family == "tokens":
        return TokenModel(
            name=name,
            version=_version(layout),
            details=details,
            network=network,
            tokenizer=encoder,
            index=layout.index,
            limit=min(MOST_TOKENS, layout.positions or MOST_TOKENS),
        )
    template = PAIR_TEMPLATES[f"{layout.template}-t5" if layout.family == "seq2seq" else layout.template]
    reader = TemplateReader(network, encoder, end, template, layout.index, layout.positions)
    return PairModel(name=name, version=_version(layout), details=details, reader=reader)


def _check_type(config: Mapping[str, Any], name: str) -> None:
    """Raise an error for a model that needs code from its own repository."""
    from transformers import CONFIG_MAPPING

    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise unavailable(
            f"{name} is of the type {kind!r}, which transformers does not know: it needs code from its repository, "
            "and such code is never run. Update transformers, or choose another model"
        )


def _load_network(folder: Path, layout: Layout, settings: ModelSettings) -> Network:
    """Load a graph where ONNX Runtime can compute the model, else the weights."""
    name = settings.grounding
    # A model that writes text is exported as several files.
    if layout.family != "seq2seq":
        kind: GraphKind = "tokens" if layout.family == "tokens" else "pair"
        graph = open_graph("grounding", name, folder, settings, kind)
        if graph is not None:
            return OnnxNetwork(graph)
    with model_requires("grounding", "sentence-transformers", "local", "a grounding model that PyTorch computes"):
        import torch  # noqa: F401
        import transformers  # noqa: F401
    _check_type(read_config(str(folder), name), name)
    names = (read_json(folder / "tokenizer_config.json") or {}).get("model_input_names", ["token_type_ids"])
    return load_weights(str(folder), layout.family, settings.device, reads_types="token_type_ids" in names)


def _version(layout: Layout) -> str:
    return f"{layout.template}-{_VERSION}"


def _details(layout: Layout, backend: str, folder: str) -> dict[str, str]:
    family = "token classification" if layout.family == "tokens" else "sequence pair"
    details = {"family": family, "template": layout.template, "backend": backend}
    snapshot = _SNAPSHOT.search(os.path.realpath(folder))
    if snapshot:
        details["revision"] = snapshot.group(1)
    return details
