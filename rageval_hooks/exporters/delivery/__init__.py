"""The delivery queue that exporters to score APIs share: batching, retries, counted losses, deadlines."""

from rageval_hooks.exporters.delivery.destination import (
    Destination,
    DestinationAbsentError,
    RejectedError,
    TargetsMissingError,
    UnavailableError,
)
from rageval_hooks.exporters.delivery.item import Item
from rageval_hooks.exporters.delivery.queue import DeliveryQueue

__all__ = [
    "DeliveryQueue",
    "Destination",
    "DestinationAbsentError",
    "Item",
    "RejectedError",
    "TargetsMissingError",
    "UnavailableError",
]
