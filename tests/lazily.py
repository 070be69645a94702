"""Modules that are imported when a test uses them: PyTorch takes seconds, and every worker collects all tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["LazyModule"]


class LazyModule:
    """Stands for a module, and imports it when an attribute is read.

    Args:
        name: the full name of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for marks and fixtures in everything that a test module has
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
