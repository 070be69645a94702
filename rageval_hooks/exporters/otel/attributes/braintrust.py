"""Attributes on the span of an evaluation that Braintrust turns into scores."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.otel.attributes.ordering import Value, json_string
from rageval_hooks.exporters.otlp_places import otlp_places
from rageval_hooks.score import Score

__all__ = ["braintrust_attributes", "goes_to_braintrust"]

_HOST = "braintrust.dev"
_PARENT_HEADER = "x-bt-parent"


def goes_to_braintrust(provider: object) -> bool:
    """Return True if a provider's spans go to Braintrust: to its host, or to any with the header of its projects."""
    for place in otlp_places(provider):
        # For example https://api-eu.braintrust.dev/otel.
        host = urlsplit(place.url).hostname or ""
        if host.endswith(_HOST) or _PARENT_HEADER in place.headers:
            return True
    return False


def braintrust_attributes(scores: Iterable[Score]) -> dict[str, Value]:
    """Return the attributes for some scores. Braintrust takes shares, from 0 to 1, and nothing else."""
    shares = {score.name: score.value for score in scores if score.low == 0 and score.high == 1}
    if not shares:
        return {}
    return {
        semconv.BRAINTRUST_SCORES: json_string(shares),
        semconv.BRAINTRUST_SPAN_ATTRIBUTES: json_string({"type": "score"}),
    }
