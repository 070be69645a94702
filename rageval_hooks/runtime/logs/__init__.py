"""Log lines of the background: at a limited rate, and redacted."""

from rageval_hooks.runtime.logs.rate_limited import RateLimitedLogger
from rageval_hooks.runtime.logs.redaction import LOG_REDACTION

__all__ = ["LOG_REDACTION", "RateLimitedLogger"]
