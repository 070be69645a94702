"""The other end of a delivery queue: one method that posts, and the errors that say what to do next.

* ExportError
    * DestinationAbsentError   forget the queue; ask again later or never
    * PostError
        * TargetsMissingError  wait: spans are still on their way
        * RejectedError        never send this again
        * UnavailableError     send this again after a pause
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from rageval_hooks.errors import ExportError
from rageval_hooks.exporters.delivery.item import Item

__all__ = [
    "Destination",
    "DestinationAbsentError",
    "PostError",
    "RejectedError",
    "Searchable",
    "TargetsMissingError",
    "UnavailableError",
    "post_each",
]


class Destination(Protocol):
    """A score API. Its ``repr`` names the server without any key: log lines show it.

    Attributes:
        own_queue: True if the server itself keeps scores whose targets have not arrived.
    """

    own_queue: ClassVar[bool]

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        """Send items of one route. If this raises, only the first ``error.taken`` of them are stored.

        Args:
            route: the kind of request.
            bodies: the items.
            confirmed: True to learn whether they were stored, which needs their targets to be there. False for the last
                attempt: leave them to the server's own queue if it has one, else try once more. What still misses its
                target is then lost.

        Raises:
            TargetsMissingError: targets have not arrived yet.
            RejectedError: the server does not accept what was sent, and never will.
            UnavailableError: the server cannot be reached, is overloaded, or wants another key.
        """

    def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class Searchable(Protocol):
    """A score API that can be asked for what it has."""

    def has(self, item: Item) -> bool:
        """Return True if the server shows an item that was posted.

        Raises:
            UnavailableError: the server cannot be asked.
        """


class DestinationAbsentError(ExportError):
    """There is no such server.

    Attributes:
        ask_again: seconds after which it may be worth asking again.
    """

    def __init__(self, ask_again: float = math.inf) -> None:
        super().__init__("there is no such server")
        self.ask_again = ask_again


class PostError(ExportError):
    """A post failed.

    Attributes:
        taken: how many of the first items were stored before it failed; the others were not.
    """

    taken: int = 0


class TargetsMissingError(PostError):
    """Targets have not arrived at the server yet.

    Attributes:
        targets: their ids.
    """

    def __init__(self, targets: frozenset[str]) -> None:
        super().__init__(f"{len(targets)} targets are missing")
        self.targets = targets


class RejectedError(PostError):
    """The server does not accept what was sent, and never will."""


class UnavailableError(PostError):
    """The server cannot be reached, does not work, or wants another key. A later attempt may succeed.

    Attributes:
        retry_after: seconds for which the server wants to be left alone; None if it does not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def post_each(bodies: Sequence[Mapping[str, Any]], post: Callable[[Mapping[str, Any]], None]) -> None:
    """Post items one by one, to an API that takes one score per request.

    Raises:
        PostError: an item failed; ``taken`` counts those before it.
    """
    for taken, body in enumerate(bodies):
        try:
            post(body)
        except PostError as error:
            error.taken = taken
            raise
