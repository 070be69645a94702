"""Shared by exporters to score APIs: a base class, HTTP, and a queue with batching, retries and counted losses."""

from rageval_hooks.exporters.delivery.exporter import (
    DeliveryOptions,
    PlacedResult,
    ScoreApiExporter,
    as_secret,
    evaluated_at,
    iso_time,
    reveal,
    score_details,
    score_id,
    variable,
)
from rageval_hooks.exporters.delivery.http import (
    HttpAnswer,
    HttpApi,
    HttpDestination,
    asks_version,
    basic_auth,
    post_each,
)
from rageval_hooks.exporters.delivery.queue import (
    DeliveryQueue,
    Destination,
    DestinationAbsentError,
    Item,
    PostError,
    RejectedError,
    TargetsMissingError,
    UnavailableError,
)

__all__ = [
    "DeliveryOptions",
    "DeliveryQueue",
    "Destination",
    "DestinationAbsentError",
    "HttpAnswer",
    "HttpApi",
    "HttpDestination",
    "Item",
    "PlacedResult",
    "PostError",
    "RejectedError",
    "ScoreApiExporter",
    "TargetsMissingError",
    "UnavailableError",
    "as_secret",
    "asks_version",
    "basic_auth",
    "evaluated_at",
    "iso_time",
    "post_each",
    "reveal",
    "score_details",
    "score_id",
    "variable",
]
