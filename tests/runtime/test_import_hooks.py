"""Functions that are called when a module has been imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rageval_hooks.runtime.import_hooks import call_after_import, cancel_after_import

NAME = "rageval_imported_later"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and is not."""
    path = tmp_path / f"{NAME}.py"
    path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop(NAME, None)


@pytest.fixture
def calls() -> list[str]:
    return []


def test_the_function_is_called_when_the_module_is_complete(module: Path) -> None:
    """And before the ``import`` statement returns."""
    seen = []
    call_after_import(NAME, lambda: seen.append(sys.modules[NAME].value))
    assert not seen

    importlib.import_module(NAME)

    assert seen == [1]


def test_an_imported_module_counts_at_once(calls: list[str]) -> None:
    """Nothing has to happen any more."""
    call_after_import("sys", lambda: calls.append("sys"))

    assert calls == ["sys"]


def test_the_same_function_is_called_once(module: Path, calls: list[str]) -> None:
    """However often it was given, and however often the module is imported."""

    def note() -> None:
        calls.append("once")

    call_after_import(NAME, note)
    call_after_import(NAME, note)
    importlib.import_module(NAME)
    sys.modules.pop(NAME)
    importlib.import_module(NAME)

    assert calls == ["once"]


def test_an_exception_does_not_reach_the_import(module: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and other functions are called."""
    calls: list[str] = []

    def fail() -> None:
        raise RuntimeError("no")

    call_after_import(NAME, fail)
    call_after_import(NAME, lambda: calls.append("second"))

    assert importlib.import_module(NAME).value == 1
    assert calls == ["second"]
    assert f"after the import of {NAME} failed" in caplog.text


def test_a_failed_import_is_no_import(module: Path, calls: list[str]) -> None:
    """The function is called after the one that works."""
    module.write_text("raise ImportError('not yet')\n")
    call_after_import(NAME, lambda: calls.append("imported"))
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module(NAME)
    assert not calls

    module.write_text("value = 22\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)

    assert calls == ["imported"]


def test_a_module_that_is_only_looked_for_is_not_imported(module: Path, calls: list[str]) -> None:
    """``find_spec`` answers as usual."""
    call_after_import(NAME, lambda: calls.append("imported"))

    spec = importlib.util.find_spec(NAME)

    assert spec is not None
    assert spec.origin == str(module)
    assert not calls
    importlib.import_module(NAME)
    assert calls == ["imported"]


def test_afterwards_nothing_is_left(module: Path, calls: list[str]) -> None:
    """Neither among the finders, nor on the loader; the same after a cancellation."""
    before = list(sys.meta_path)

    def note() -> None:
        calls.append("imported")

    call_after_import(NAME, note)
    assert sys.meta_path != before
    cancel_after_import(NAME, note)
    assert sys.meta_path == before

    call_after_import(NAME, note)
    imported = importlib.import_module(NAME)
    assert sys.meta_path == before
    assert "exec_module" not in vars(imported.__loader__)
    assert calls == ["imported"]
