"""Counts of the process and the state of its queues."""

from __future__ import annotations

import gc
import os

import pytest

from rageval_hooks.online.counters import Counters
from rageval_hooks.runtime.queues import PROCESS_TOTALS, BoundedQueue, ProcessTotals


def test_counts_outlive_the_pipeline_that_they_come_from() -> None:
    """A counter that a metrics backend has seen must not go down."""
    before = PROCESS_TOTALS["sampled_out"]
    counters = Counters()
    counters.add("sampled_out", 2)
    del counters
    gc.collect()
    assert PROCESS_TOTALS["sampled_out"] - before == 2


def test_queues_of_one_name_are_added_up() -> None:
    totals = ProcessTotals()
    lanes = [BoundedQueue("evaluate", 10), BoundedQueue("evaluate", 20), BoundedQueue("export", 5)]
    for lane in lanes:
        totals.watch(lane)
    lanes[0].pending, lanes[1].pending = 3, 4
    assert totals.queues() == {"evaluate": (7, 30), "export": (0, 5)}


def test_a_queue_that_is_gone_is_not_reported_but_what_it_dropped_is() -> None:
    totals = ProcessTotals()
    lane = BoundedQueue("evaluate", 10)
    totals.watch(lane)
    totals.add_dropped("evaluate", 3)
    del lane
    gc.collect()
    assert totals.queues() == {}
    assert totals.dropped() == {"evaluate": 3}


def test_a_queue_without_a_drop_reports_zero() -> None:
    """A rate can only be computed from a counter that exists before the first event."""
    totals = ProcessTotals()
    lane = BoundedQueue("evaluate", 10)
    totals.watch(lane)
    assert totals.dropped() == {"evaluate": 0}
    assert lane.pending == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_counts_its_own_turns() -> None:
    totals = ProcessTotals()
    totals.add("turns", 5)
    child = os.fork()
    if child == 0:
        totals.add("turns")
        os._exit(totals["turns"])
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert totals["turns"] == 5
