"""How a judge may be called: times, retries, limits."""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import Field, ValidationError

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.runtime.jsonable import Data

__all__ = ["CallOptions", "CallPolicy"]


class CallPolicy(Data):
    """Limits of a judge's calls.

    Attributes:
        timeout: seconds for one request.
        total_timeout: seconds for one question, from its first request on, with all retries and pauses.
        max_retries: requests beyond the first for one question that failed for a passing reason. Requests without a
            parameter that the model refused, and the one repair of a wrong answer, do not count.
        max_concurrency: requests at the same time, per event loop.
        requests_per_minute: no minute holds more; None for no limit.
        tokens_per_minute: input and output together, estimated before a request and corrected after it; None for no
            limit.
        max_answer_bytes: a response that is larger is not read to its end.
        circuit_failures: requests in a row that must fail to open the circuit breaker.
        circuit_cooldown: seconds that it stays open the first time; twice as long after each failed probe, at most
            600 s.
    """

    timeout: float = Field(default=120.0, gt=0)
    total_timeout: float = Field(default=300.0, gt=0)
    max_retries: int = Field(default=3, ge=0)
    max_concurrency: int = Field(default=8, ge=1)
    requests_per_minute: float | None = Field(default=None, ge=1)
    tokens_per_minute: float | None = Field(default=None, ge=1)
    max_answer_bytes: int = Field(default=512 * 1024, ge=1)
    circuit_failures: int = Field(default=5, ge=1)
    circuit_cooldown: float = Field(default=30.0, gt=0)

    @classmethod
    def build(cls, options: CallOptions) -> CallPolicy:
        """Make a policy from keyword arguments.

        Raises:
            ConfigurationError: an option is unknown or out of its range.
        """
        try:
            return cls(**options)
        except ValidationError as error:
            raise ConfigurationError(_explain(error)) from None


class CallOptions(TypedDict, total=False):
    """The fields of :class:`CallPolicy`, as keyword arguments."""

    timeout: float
    total_timeout: float
    max_retries: int
    max_concurrency: int
    requests_per_minute: float | None
    tokens_per_minute: float | None
    max_answer_bytes: int
    circuit_failures: int
    circuit_cooldown: float


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"a judge has no option {name!r}. Valid: {', '.join(CallPolicy.model_fields)}")
        else:
            given: Any = item["msg"]
            lines.append(f"{name}: {given}")
    return "; ".join(lines)
