"""The limits of a judge's calls (timeouts, retries, rates), and their price."""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import Field, ValidationError

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.runtime.jsonable import Data

__all__ = ["CallOptions", "CallPolicy"]


class CallPolicy(Data):
    """Limits and price of a judge's calls.

    Attributes:
        timeout: seconds for one request.
        total_timeout: seconds for one question, from its first request, including all retries and pauses.
        max_retries: retries of one question after temporary failures. Requests repeated without a refused parameter,
            and the one correction of an unusable answer, do not count.
        max_concurrency: concurrent requests per event loop.
        requests_per_minute: limit in any minute; None for no limit.
        tokens_per_minute: limit of input and output tokens together, estimated before a request and corrected after
            it; None for no limit.
        max_answer_bytes: a larger response is not read to its end.
        circuit_failures: failures in a row that open the circuit breaker.
        circuit_cooldown: seconds that the circuit stays open the first time. Doubled after each failed probe, up to
            600 s.
        price_per_1k: USD for 1,000 tokens, read or written; None for the price that genai-prices has for the model, if
            it has one.
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
    price_per_1k: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @classmethod
    def build(cls, options: CallOptions) -> CallPolicy:
        """Make a policy from keyword arguments.

        Raises:
            ConfigurationError: an option is unknown or out of range.
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
    price_per_1k: float | None


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown judge option {name!r}. Valid: {', '.join(CallPolicy.model_fields)}")
        else:
            given: Any = item["msg"]
            lines.append(f"{name}: {given}")
    return "; ".join(lines)
