"""Admission of single requests: a budget can refuse further requests to a judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import ClassVar

from rageval_hooks.errors import JudgeError

__all__ = ["Admission", "Gate", "GateClosedError"]


class GateClosedError(JudgeError):
    """The gate admits no further request. Nothing is wrong with the judge."""

    kind: ClassVar[str] = "not_asked"


@dataclass
class Admission:
    """One admitted request.

    Attributes:
        sent: True if it was sent.
        cost: USD; 0 if there was no answer, None if the answer's price is unknown.
        tokens: input and output tokens; 0 if there was no answer, None if the answer does not report them.
    """

    sent: bool = False
    cost: float | None = 0.0
    tokens: float | None = 0.0


class Gate(ABC):
    """Admits requests one by one: first attempts, retries and corrections. Cache hits do not pass it."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """True if a request would be admitted now."""

    @abstractmethod
    def request(self) -> AbstractAsyncContextManager[Admission]:
        """Admit a request for as long as it runs. The caller records the cost on the admission.

        Raises:
            GateClosedError: the request is refused.
        """
