"""Log lines that cannot flood."""

from __future__ import annotations

import logging
import os
import signal

import pytest

from rageval_hooks.runtime.logs import RateLimitedLogger

LOGGER = logging.getLogger("rageval_hooks.tests")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged here: threads of earlier tests may have something to say, too."""
    return [record.getMessage() for record in caplog.records if record.name == LOGGER.name]


def test_one_line_of_a_kind_within_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    """The next one says how many were held back; other kinds are not held back by it."""
    limited_log = RateLimitedLogger(LOGGER)
    for number in range(3):
        limited_log.warn("judge", "the judge is down: %d", number)
    limited_log.warn("exporter", "the exporter failed")

    assert lines(caplog) == ["rageval-hooks: the judge is down: 0", "rageval-hooks: the exporter failed"]


def test_what_was_held_back_is_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost without a word."""
    limited_log = RateLimitedLogger(LOGGER)
    for now in (0.0, 1.0, 59.0, 61.0):
        monkeypatch.setattr("rageval_hooks.runtime.logs.time.monotonic", lambda now=now: now)
        limited_log.warn("judge", "down")

    assert lines(caplog) == ["rageval-hooks: down", "rageval-hooks: down (2 more like this were not logged)"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_line_does_no_harm() -> None:
    """The child can complain, although a thread that it does not have was about to when it was forked."""
    limited_log = RateLimitedLogger(LOGGER)
    with limited_log._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(5)  # ends it if it waits for ever
            limited_log.warn("judge", "down")
            os._exit(0)
        _, status = os.waitpid(child, 0)

    assert status == 0
