"""Handlers and guards are copied with the chains that have them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel

import rageval_hooks
from rageval_hooks import GroundingGuard
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.runtime import copying
from rageval_hooks.testing import InMemoryExporter

COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_copy_of_a_handler_is_the_handler(copied: Callable[[Any], Any]) -> None:
    """So is that of a guard and of what ``instrument`` returns: they have threads and queues."""
    handler, guard = CallbackHandler(models="lexical", exporters=[]), GroundingGuard(models="lexical", on_fail="flag")

    assert copied(handler) is handler
    assert copied(guard) is guard
    with rageval_hooks.instrument(models="lexical", exporters=[]) as handle:
        assert copied(handle) is handle


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "in another process"])
def test_a_chain_that_a_guard_wraps_is_copied(copied: Callable[[Any], Any], is_elsewhere: bool) -> None:
    """With its guard."""
    model = FakeListChatModel(responses=["It opened in 1987."])
    guard = GroundingGuard(models="lexical", on_fail="replace", fallback="No.", timeout_ms=20_000, on_error="closed")
    chain = guard.wrap(model)
    if is_elsewhere:
        content = pickle.dumps(chain)
        copying._pickled.clear()
        chain = pickle.loads(content)

    assert copied(chain).invoke("When did it open?").content == "No."


def test_a_model_with_a_handler_is_copied() -> None:
    """As low-code builders and tests do."""
    handler = CallbackHandler(models="lexical", exporters=[InMemoryExporter()])
    model = FakeListChatModel(responses=["It opened in 2019."], callbacks=[handler])

    assert model.model_copy(deep=True).callbacks == [handler]


def test_in_another_process_a_handler_is_made_once() -> None:
    """With the same arguments."""
    content = pickle.dumps(CallbackHandler(models="lexical", exporters=[], metrics=["latency"]))
    copying._pickled.clear()

    first, second = pickle.loads(content), pickle.loads(content)

    assert first is second
    assert [metric.name for metric in first.pipeline.metrics] == ["latency"]
