"""What stands before each single request of a judge: who pays for it may say that there are to be no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import ClassVar

from rageval_hooks.errors import JudgeError

__all__ = ["Admission", "Gate", "GateClosedError"]


class GateClosedError(JudgeError):
    """No further request is to be sent. Nothing is wrong with the judge."""

    kind: ClassVar[str] = "not_asked"


@dataclass
class Admission:
    """One request that was let through.

    Attributes:
        sent: whether it was sent at all.
        cost: USD; 0 for what was not answered, None if it was and its price is not known.
    """

    sent: bool = False
    cost: float | None = 0.0


class Gate(ABC):
    """Lets requests through, one by one: first ones, retries and repairs. Answers from a cache do not pass it."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether a request would be let through now."""

    @abstractmethod
    def request(self) -> AbstractAsyncContextManager[Admission]:
        """Let a request through, for as long as it takes; what it took must be written on its admission.

        Raises:
            GateClosedError: it is not to be sent.
        """
