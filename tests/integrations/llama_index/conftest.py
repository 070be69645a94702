from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.conftest import Captured


@pytest.fixture
def captured(caplog: pytest.LogCaptureFixture) -> Iterator[Captured]:
    """An instrumented process without metrics. Afterwards the table is empty and no error was counted."""
    exporter = InMemoryExporter()
    given_up = shared_recorder().given_up  # by earlier tests: the recorder is that of the process
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        yield Captured(handle, exporter)
        assert handle.flush(10)
        stats = handle.stats()
        assert len(shared_recorder()) == 0, "runs are left in the table"
    assert stats["internal_errors"] == 0
    assert stats["given_up"] == given_up
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("rageval_hooks")]
    assert not [line for line in lines if "no passages to evaluate with" not in line]
    assert logging.getLogger("rageval_hooks").level == logging.NOTSET
