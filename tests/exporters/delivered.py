"""Evaluations on the way that a pipeline hands them over: content is hidden there, before the exporters."""

from __future__ import annotations

import math

from rageval_hooks.exporters.base import ContentPolicy, Exporter
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.privacy import NO_PRIVACY
from rageval_hooks.runtime.worker import shared_worker


def delivery_to(exporter: Exporter, capture_content: bool | None = None) -> Delivery:
    """Return a delivery to one exporter, with the policy of the setting and of the environment."""
    return Delivery(
        exporters=[exporter],
        worker=shared_worker(),
        counters=Counters(),
        privacy=NO_PRIVACY,
        content=ContentPolicy.of_settings(capture_content),
        max_bytes=math.inf,
    )
