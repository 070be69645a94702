"""How explanations say who counted the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rageval_hooks.turn import UsageSource

__all__ = ["COUNTED_BY"]

COUNTED_BY: Final[Mapping[UsageSource, str]] = {
    "provider": "counted by the provider",
    "tiktoken": "estimated with tiktoken",
    "characters": "estimated from the number of characters",
}
