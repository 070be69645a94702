"""Garbage collection while a command scores."""

from __future__ import annotations

import gc
from contextlib import suppress

from rageval_hooks.offline.running import rare_collection


def test_the_collector_is_as_before_at_the_end_also_after_an_error() -> None:
    before = gc.get_threshold()

    with suppress(KeyboardInterrupt), rare_collection():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
        raise KeyboardInterrupt

    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
