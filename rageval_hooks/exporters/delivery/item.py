"""The items that the delivery queue carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Item"]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One score on its way to an API.

    Attributes:
        route: the kind of request that takes it; a request has items of one route.
        target: the id of the span or trace that it is about. Items of one target wait and travel together.
        body: as the API expects it. Sent twice, it must not become two scores: it has an id, or the API replaces what
            has the same target and name.
    """

    route: str
    target: str
    body: Mapping[str, Any]
