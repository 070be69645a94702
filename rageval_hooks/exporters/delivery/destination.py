"""The other end of a delivery queue: one method that posts, and the errors that say what to do next.

* ExportError
    * DestinationAbsentError   forget the queue; ask again later or never
    * TargetsMissingError      wait: spans are still on their way
    * RejectedError            never send this again
    * UnavailableError         send this again after a pause
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rageval_hooks.errors import ExportError

__all__ = ["Destination", "DestinationAbsentError", "RejectedError", "TargetsMissingError", "UnavailableError"]


class Destination(Protocol):
    """A score API. Its ``repr`` names the server without any key: log lines show it."""

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        """Send items of one route; all of them are taken, or none.

        Args:
            route: the kind of request.
            bodies: the items.
            confirmed: True to learn whether they were stored, which needs their targets to be there. False to leave
                them to the server's own queue, if it has one.

        Raises:
            TargetsMissingError: targets have not arrived yet.
            RejectedError: the server does not accept what was sent, and never will.
            UnavailableError: the server cannot be reached, is overloaded, or wants another key.
        """

    def close(self) -> None:
        """Close the connections."""


class DestinationAbsentError(ExportError):
    """There is no such server.

    Attributes:
        ask_again: seconds after which it may be worth asking again.
    """

    def __init__(self, ask_again: float = math.inf) -> None:
        super().__init__("there is no such server")
        self.ask_again = ask_again


class TargetsMissingError(ExportError):
    """Targets have not arrived at the server yet; nothing of the request was taken.

    Attributes:
        targets: their ids.
    """

    def __init__(self, targets: frozenset[str]) -> None:
        super().__init__(f"{len(targets)} targets are missing")
        self.targets = targets


class RejectedError(ExportError):
    """The server does not accept what was sent, and never will; nothing of the request was taken."""


class UnavailableError(ExportError):
    """The server cannot be reached, does not work, or wants another key. A later attempt may succeed.

    Attributes:
        retry_after: seconds for which the server wants to be left alone; None if it does not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
