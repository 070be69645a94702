from __future__ import annotations

from tests.integrations.langchain.conftest import Captured, captured

__all__ = ["Captured", "captured"]
