"""Load a grounding model: a folder, or a name on the hub."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.errors import model_requires
from rageval_hooks.models.grounding.layout import Layout, read_config, read_layout, unavailable
from rageval_hooks.models.grounding.model import GroundingModel
from rageval_hooks.models.grounding.network import Network, OnnxNetwork, load_weights, onnx_file
from rageval_hooks.models.grounding.pair_model import HhemReader, PairModel, TemplateReader
from rageval_hooks.models.grounding.templates import PAIR_TEMPLATES
from rageval_hooks.models.grounding.token_model import MOST_TOKENS, TokenModel
from rageval_hooks.models.hhem import load_hhem
from rageval_hooks.models.sources import hub_file, load_pretrained
from rageval_hooks.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
    with model_requires("grounding", "sentence-transformers", "local", "a grounding model"):
        import transformers  # noqa: F401

    def load(path: str, local: bool) -> GroundingModel:
        folder = path
        if not local:
            folder = os.path.dirname(hub_file(path, "config.json", True) or "")
        return _load(path, folder, settings, local=local)

    return load_pretrained("grounding", settings.grounding, settings.download, load)


def _load(path: str, folder: str, settings: ModelSettings, *, local: bool) -> GroundingModel:
    """Load a model of a known layout.

    Args:
        path: where the libraries load from: a folder, or a name on the hub.
        folder: the folder of its ``config.json``.
        settings: the settings.
        local: True to read files of this machine only.
    """
    name = settings.grounding
    config = read_config(folder, name)
    layout = read_layout(config, name, settings.grounding_template)
    if layout.family == "hhem":
        reader = HhemReader(load_hhem(settings.model_copy(update={"hhem": name})))
        return PairModel(name=name, version=_version(layout), details=_details(layout, "torch", folder), reader=reader)
    _check_type(config, name)
    tokenizer = _load_tokenizer(path, name, local=local)
    network = _load_network(path, folder, layout, settings, tokenizer, local=local)
    return _build(name, layout, network, tokenizer, _details(layout, network.backend, folder))


def _build(
    name: str, layout: Layout, network: Network, tokenizer: PreTrainedTokenizerFast, details: dict[str, str]
) -> GroundingModel:
    # A copy, since every call of the library changes padding and truncation of its tokenizer.
    encoder = copy.deepcopy(tokenizer.backend_tokenizer)
    encoder.no_padding()
    encoder.no_truncation()
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
    end = str(tokenizer.eos_token or tokenizer.sep_token or "")
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


def _load_tokenizer(path: str, name: str, *, local: bool) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=local, trust_remote_code=False)
    if not getattr(tokenizer, "is_fast", False):
        raise unavailable(f"{name} has no fast tokenizer (tokenizer.json), which the places of tokens need")
    return tokenizer


def _load_network(
    path: str,
    folder: str,
    layout: Layout,
    settings: ModelSettings,
    tokenizer: PreTrainedTokenizerFast,
    *,
    local: bool,
) -> Network:
    """Load the ONNX file where the folder has it and onnxruntime is installed, else the weights."""
    # A model that writes text is exported as several files.
    graph = None if layout.family == "seq2seq" else onnx_file(folder, settings.onnx_file, settings.device)
    if graph is not None:
        try:
            return OnnxNetwork(graph)
        except ImportError:
            pass  # the weights give the same numbers
    with model_requires("grounding", "torch", "local", "a grounding model without an ONNX file"):
        import torch  # noqa: F401
    reads_types = "token_type_ids" in tokenizer.model_input_names
    return load_weights(path, layout.family, settings.device, local=local, reads_types=reads_types)


def _version(layout: Layout) -> str:
    return f"{layout.template}-{_VERSION}"


def _details(layout: Layout, backend: str, folder: str) -> dict[str, str]:
    family = "token classification" if layout.family == "tokens" else "sequence pair"
    details = {"family": family, "template": layout.template, "backend": backend}
    snapshot = _SNAPSHOT.search(os.path.realpath(folder))
    if snapshot:
        details["revision"] = snapshot.group(1)
    return details
