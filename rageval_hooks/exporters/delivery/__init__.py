"""Shared by exporters to score APIs: a base class, HTTP, and a queue with batching, retries and counted losses."""

from rageval_hooks.exporters.delivery.destination import (
    Destination,
    DestinationAbsentError,
    PostError,
    RejectedError,
    TargetsMissingError,
    UnavailableError,
    post_each,
)
from rageval_hooks.exporters.delivery.exporter import ScoreApiExporter
from rageval_hooks.exporters.delivery.http import Answer, HttpApi, HttpDestination, basic_auth
from rageval_hooks.exporters.delivery.item import Item
from rageval_hooks.exporters.delivery.options import DeliveryOptions, as_secret, reveal, variable
from rageval_hooks.exporters.delivery.queue import DeliveryQueue

__all__ = [
    "Answer",
    "DeliveryOptions",
    "DeliveryQueue",
    "Destination",
    "DestinationAbsentError",
    "HttpApi",
    "HttpDestination",
    "Item",
    "PostError",
    "RejectedError",
    "ScoreApiExporter",
    "TargetsMissingError",
    "UnavailableError",
    "as_secret",
    "basic_auth",
    "post_each",
    "reveal",
    "variable",
]
