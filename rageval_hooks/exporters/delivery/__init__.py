"""Shared by exporters to score APIs: a base class, the server, and a queue with retries and counted losses."""

from rageval_hooks.exporters.delivery.exporter import DeliveryOptions, PlacedResult, ScoreApiExporter
from rageval_hooks.exporters.delivery.queue import (
    DeliveryQueue,
    DestinationAbsentError,
    Item,
    PostError,
    RejectedError,
    TargetsMissingError,
    UnavailableError,
)
from rageval_hooks.exporters.delivery.server import ScoreServer

__all__ = [
    "DeliveryOptions",
    "DeliveryQueue",
    "DestinationAbsentError",
    "Item",
    "PlacedResult",
    "PostError",
    "RejectedError",
    "ScoreApiExporter",
    "ScoreServer",
    "TargetsMissingError",
    "UnavailableError",
]
